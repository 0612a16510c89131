package join

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// A session is the name under which somebody joins: 32 hex digits of the invite
// and 32 letters of a MAC over the channel binding of his connection. A hub sees
// from it, before it keeps anything, whether he holds the invite's token, and it
// is worth nothing on any other connection.
const (
	sessionInvite = 32
	sessionMAC    = 20 // bytes; 160 bits
)

var sessionText = base32.StdEncoding.WithPadding(base32.NoPadding)

// Session is the name under which the holder of the token joins on the
// connection with this exporter.
func (t Token) Session(exporter []byte) string {
	invite := strings.ReplaceAll(t.ID, "-", "")
	return invite + sessionText.EncodeToString(sessionSum(invite, t.ProofKey(), exporter))
}

func sessionSum(invite string, proofKey, exporter []byte) []byte {
	mac := hmac.New(sha256.New, proofKey)
	mac.Write([]byte("spawnmesh-join-session-v1"))
	mac.Write([]byte(invite)) // of one length, so nothing can move between the parts
	mac.Write(exporter)
	return mac.Sum(nil)[:sessionMAC]
}

// InviteOf returns the id of the invite that a session names, proven or not; ""
// when the text is no session.
func InviteOf(session string) string {
	if len(session) != sessionInvite+sessionText.EncodedLen(sessionMAC) {
		return ""
	}
	invite := session[:sessionInvite]
	if raw, err := hex.DecodeString(invite); err != nil || hex.EncodeToString(raw) != invite {
		return ""
	}
	return invite[:8] + "-" + invite[8:12] + "-" + invite[12:16] + "-" + invite[16:20] + "-" + invite[20:]
}

// CheckSession reports whether whoever chose session on the connection with this
// exporter holds the token with this proof key. It takes the same time for every
// answer.
func CheckSession(session string, proofKey, exporter []byte) bool {
	invite := InviteOf(session)
	if invite == "" {
		return false
	}
	want := session[:sessionInvite] + sessionText.EncodeToString(sessionSum(session[:sessionInvite], proofKey, exporter))
	return hmac.Equal([]byte(want), []byte(session))
}
