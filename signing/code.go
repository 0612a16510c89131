package signing

import (
	"fmt"
	"strings"
)

// A Code says why a message was refused. Codes cross the wire and are stored:
// a code is never renamed and never reused.
type Code string

// The codes of an envelope, in the order in which a receiver checks.
const (
	EnvSize       Code = "ENV_SIZE"       // larger than [MaxMessage]
	EnvCanon      Code = "ENV_CANON"      // not the one spelling of its content, or a place that no tree has
	EnvJSON       Code = "ENV_JSON"       // not a JSON object of the right shape
	EnvType       Code = "ENV_TYPE"       // a message type, or a version, that this node does not speak
	EnvSigCount   Code = "ENV_SIGCOUNT"   // too few or too many signatures
	EnvB64        Code = "ENV_B64"        // base64, or the length of what it holds: header, path, body, signature
	KeyUnknown    Code = "KEY_UNKNOWN"    // no such key in this connection's set
	SigBad        Code = "SIG_BAD"        // signature does not match type, header and place in the tree
	KeySetSigner  Code = "KEYSET_SIGNER"  // key set that lacks a signature which it needs
	HdrJSON       Code = "HDR_JSON"       // signed header is not JSON of the right shape
	HdrCanon      Code = "HDR_CANON"      // signed header is not in its one spelling
	HdrField      Code = "HDR_FIELD"      // a header field breaks its rule
	KidMismatch   Code = "KID_MISMATCH"   // key named inside differs from the one outside
	IssMismatch   Code = "ISS_MISMATCH"   // issuer does not own the key
	AudMismatch   Code = "AUD_MISMATCH"   // addressed to somebody else
	ConnUnknown   Code = "CONN_UNKNOWN"   // belongs to another connection
	EpochStale    Code = "EPOCH_STALE"    // from before the last handshake
	TimeTTL       Code = "TIME_TTL"       // lifetime negative or above the type's limit
	TimeFuture    Code = "TIME_FUTURE"    // issued in the future by more than the skew
	TimeExpired   Code = "TIME_EXPIRED"   // last moment of acceptance has passed
	BodyDigest    Code = "BODY_DIGEST"    // body differs from the signed digest
	BodyJSON      Code = "BODY_JSON"      // body breaks the strict JSON rules
	SealOpen      Code = "SEAL_OPEN"      // sealed body cannot be opened here
	ConnState     Code = "CONN_STATE"     // connection is not in a state that allows it
	KeyRevoked    Code = "KEY_REVOKED"    // key was revoked
	KeyWindow     Code = "KEY_WINDOW"     // key is not valid at this time
	ReplaySame    Code = "REPLAY_SAME"    // same message again: the stored receipt goes out again
	ReplayDiff    Code = "REPLAY_DIFF"    // message id used before with other content
	SeqReuse      Code = "SEQ_REUSE"      // sequence number used before with other content
	KeySetVersion Code = "KEYSET_VERSION" // key set that is not newer than the one in force
	KeyWeak       Code = "KEY_WEAK"       // foreign key fails the admission filter
	KeyDuplicate  Code = "KEY_DUPLICATE"  // key already belongs to somebody
)

// Rejected is the error for a message that will not be acted on.
//
// Header and Digest are set only when the signature was good and the header
// well formed: only then may the sender be answered, and only a message with a
// Header may be recorded under its id.
type Rejected struct {
	Code   Code
	Why    string
	Header *Header
	Digest Digest
}

// Error gives the code and the reason.
func (r *Rejected) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Why) }

// maxWhy bounds a reason, in bytes: it may quote what somebody else wrote.
const maxWhy = 1000

func reject(code Code, format string, args ...any) *Rejected {
	why := fmt.Sprintf(format, args...)
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy-3], "") + "..."
	}
	return &Rejected{Code: code, Why: why}
}
