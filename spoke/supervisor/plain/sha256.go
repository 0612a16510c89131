package plain

import "math/bits"

// A SHA256 is a running digest of FIPS 180-4. Its zero value has nothing in it.
type SHA256 struct {
	started bool
	h       [8]uint32
	block   [64]byte
	used    int // bytes of block that wait for the rest of it
	length  uint64
}

var initial = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

var round = [64]uint32{
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}

// Write adds bytes to what is digested. Its error is always nil.
func (d *SHA256) Write(b []byte) (int, error) {
	if !d.started {
		d.started, d.h = true, initial
	}
	n := len(b)
	d.length += uint64(n)
	if d.used > 0 {
		taken := copy(d.block[d.used:], b)
		d.used, b = d.used+taken, b[taken:]
		if d.used < len(d.block) {
			return n, nil
		}
		d.mix(d.block[:])
		d.used = 0
	}
	whole := len(b) &^ 63
	d.mix(b[:whole])
	d.used = copy(d.block[:], b[whole:])
	return n, nil
}

// Sum returns the digest of what was written so far, which may go on.
func (d *SHA256) Sum() [32]byte {
	end := *d
	length := end.length
	padding := make([]byte, 1, 72)
	padding[0] = 0x80
	for (length+uint64(len(padding)))%64 != 56 {
		padding = append(padding, 0)
	}
	for shift := 56; shift >= 0; shift -= 8 {
		padding = append(padding, byte(length<<3>>shift))
	}
	_, _ = end.Write(padding)
	var sum [32]byte
	for i, word := range end.h {
		sum[4*i], sum[4*i+1], sum[4*i+2], sum[4*i+3] = byte(word>>24), byte(word>>16), byte(word>>8), byte(word)
	}
	return sum
}

// mix takes in whole blocks.
func (d *SHA256) mix(p []byte) {
	var w [64]uint32
	s := d.h
	for ; len(p) >= 64; p = p[64:] {
		for i := range 16 {
			w[i] = uint32(p[4*i])<<24 | uint32(p[4*i+1])<<16 | uint32(p[4*i+2])<<8 | uint32(p[4*i+3])
		}
		for i := 16; i < 64; i++ {
			a, b := w[i-15], w[i-2]
			w[i] = w[i-16] + w[i-7] +
				(bits.RotateLeft32(a, -7) ^ bits.RotateLeft32(a, -18) ^ a>>3) +
				(bits.RotateLeft32(b, -17) ^ bits.RotateLeft32(b, -19) ^ b>>10)
		}
		a, b, c, e, f, g, h, k := s[0], s[1], s[2], s[4], s[5], s[6], s[7], s[3]
		for i := range 64 {
			t1 := h + (bits.RotateLeft32(e, -6) ^ bits.RotateLeft32(e, -11) ^ bits.RotateLeft32(e, -25)) +
				(e&f ^ ^e&g) + round[i] + w[i]
			t2 := (bits.RotateLeft32(a, -2) ^ bits.RotateLeft32(a, -13) ^ bits.RotateLeft32(a, -22)) +
				(a&b ^ a&c ^ b&c)
			h, g, f, e, k, c, b, a = g, f, e, k+t1, c, b, a, t1+t2
		}
		for i, v := range [8]uint32{a, b, c, k, e, f, g, h} {
			s[i] += v
		}
	}
	d.h = s
}

// HMAC is the code of RFC 2104 with SHA-256.
func HMAC(key, message []byte) [32]byte {
	if len(key) > 64 {
		var d SHA256
		_, _ = d.Write(key)
		sum := d.Sum()
		key = sum[:]
	}
	var inner, outer SHA256
	var pad [64]byte
	copy(pad[:], key)
	for i := range pad {
		pad[i] ^= 0x36
	}
	_, _ = inner.Write(pad[:])
	_, _ = inner.Write(message)
	for i := range pad {
		pad[i] ^= 0x36 ^ 0x5c
	}
	sum := inner.Sum()
	_, _ = outer.Write(pad[:])
	_, _ = outer.Write(sum[:])
	return outer.Sum()
}

// Equal compares two codes in a time that says nothing of where they differ.
func Equal(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	var differs byte
	for i := range a {
		differs |= a[i] ^ b[i]
	}
	return differs == 0
}
