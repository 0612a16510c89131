package signing

import "strconv"

// appendPAE appends DSSE's pre-authentication encoding of (t, payload): what a signature
// and a leaf cover, so neither means the same under another type.
func appendPAE(b []byte, t Type, payload []byte) []byte {
	b = append(b, "DSSEv1 "...)
	b = strconv.AppendInt(b, int64(len(t)), 10)
	b = append(b, ' ')
	b = append(b, t...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(payload)), 10)
	b = append(b, ' ')
	return append(b, payload...)
}

// paeSize is at least the length of the encoding.
func paeSize(t Type, payload []byte) int { return len(payload) + len(t) + 32 }

func pae(t Type, payload []byte) []byte {
	return appendPAE(make([]byte, 0, paeSize(t, payload)), t, payload)
}
