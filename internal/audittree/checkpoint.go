package audittree

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/spawnmesh/spawnmesh/signing"
)

// A Checkpoint says what the tree of an instance was.
type Checkpoint struct {
	Instance signing.InstanceID
	Size     int64
	Root     Hash
	Era      int64 // 0, or when the database was restored from a backup last, in µs since 1970: the tree goes on from before
	At       time.Time
}

// MaxCheckpoint is how long a signed one is at most.
const MaxCheckpoint = 512

// text is a checkpoint as logs have it (c2sp.org/tlog-checkpoint), with two lines of our own.
func (c Checkpoint) text() string {
	return fmt.Sprintf("spawnmesh/%s\n%d\n%s\nera %d\ntime %d\n", c.Instance, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]), c.Era, c.At.UnixMicro())
}

// Sign returns c as a note that is signed with the identity key of its instance.
func (c Checkpoint) Sign(identity *signing.Signer) (string, error) {
	signed, err := note.Sign(&note.Note{Text: c.text()}, signer{voice{identity.Public()}, identity})
	return string(signed), err
}

// ErrCheckpoint is what is wrong with a checkpoint that nobody has to believe.
var ErrCheckpoint = errors.New("it is not a checkpoint that this instance has signed")

// Open returns the checkpoint in a note, which the instance whose identity key is public has signed.
func Open(text string, public ed25519.PublicKey) (c Checkpoint, err error) {
	if len(text) > MaxCheckpoint || len(public) != ed25519.PublicKeySize {
		return c, ErrCheckpoint
	}
	n, err := note.Open([]byte(text), note.VerifierList(voice{public}))
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 6 {
		return c, ErrCheckpoint
	}
	c.Instance = signing.InstanceIDOf(public)
	var at int64
	era, isEra := strings.CutPrefix(lines[3], "era ")
	moment, isTime := strings.CutPrefix(lines[4], "time ")
	root, badRoot := tlog.ParseHash(lines[2])
	c.Root = root
	for into, digits := range map[*int64]string{&c.Size: lines[1], &c.Era: era, &at: moment} {
		if *into, err = strconv.ParseInt(digits, 10, 64); err != nil || *into < 0 {
			return c, ErrCheckpoint
		}
	}
	if c.At = time.UnixMicro(at).UTC(); !isEra || !isTime || badRoot != nil || c.text() != n.Text {
		return c, ErrCheckpoint
	}
	return c, nil
}

// A voice is the identity key of an instance as notes name it: by the instance, and a hash. The type of the signature is
// that of others (0xff): what is signed names its type in front, as all that a key of this program signs.
type voice struct{ public ed25519.PublicKey }

func (v voice) Name() string { return string(signing.InstanceIDOf(v.public)) }

func (v voice) KeyHash() uint32 {
	h := sha256.Sum256(append([]byte(v.Name()+"\n\xff"+string(signing.Checkpoint)+"\n"), v.public...))
	return binary.BigEndian.Uint32(h[:])
}

func (v voice) Verify(msg, sig []byte) bool {
	return signing.Verify(v.public, signing.Checkpoint, msg, sig)
}

type signer struct {
	voice
	identity *signing.Signer
}

func (s signer) Sign(msg []byte) ([]byte, error) {
	return s.identity.Sign(signing.Checkpoint, msg), nil
}
