package join

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// A join id is the name under which somebody joins: 32 hex digits of the invite
// and 32 letters of a MAC over the channel binding of his connection. A hub sees
// from it, before it keeps anything, whether he holds the invite's token, and it
// is worth nothing on any other connection.
const (
	joinIDInvite = 32
	joinIDMAC    = 20 // bytes; 160 bits
)

var joinIDText = base32.StdEncoding.WithPadding(base32.NoPadding)

// JoinID is the name under which the holder of the token joins on the
// connection with this exporter.
func (t Token) JoinID(exporter []byte) string {
	invite := strings.ReplaceAll(t.ID, "-", "")
	return invite + joinIDText.EncodeToString(joinIDSum(invite, t.ProofKey(), exporter))
}

func joinIDSum(invite string, proofKey, exporter []byte) []byte {
	mac := hmac.New(sha256.New, proofKey)
	mac.Write([]byte("spawnmesh-join-session-v1"))
	mac.Write([]byte(invite)) // of one length, so nothing can move between the parts
	mac.Write(exporter)
	return mac.Sum(nil)[:joinIDMAC]
}

// InviteOf returns the id of the invite that a join id names, proven or not; ""
// when the text is none.
func InviteOf(joinID string) string {
	if len(joinID) != joinIDInvite+joinIDText.EncodedLen(joinIDMAC) {
		return ""
	}
	invite := joinID[:joinIDInvite]
	if raw, err := hex.DecodeString(invite); err != nil || hex.EncodeToString(raw) != invite {
		return ""
	}
	return invite[:8] + "-" + invite[8:12] + "-" + invite[12:16] + "-" + invite[16:20] + "-" + invite[20:]
}

// CheckJoinID reports whether whoever chose joinID on the connection with this
// exporter holds the token with this proof key. It takes the same time for every
// answer.
func CheckJoinID(joinID string, proofKey, exporter []byte) bool {
	invite := InviteOf(joinID)
	if invite == "" {
		return false
	}
	want := joinID[:joinIDInvite] + joinIDText.EncodeToString(joinIDSum(joinID[:joinIDInvite], proofKey, exporter))
	return hmac.Equal([]byte(want), []byte(joinID))
}
