package commands

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/signing"
)

// MaxValueBytes bounds the values of all variables of a spawn together, with its files and its
// standard input. A variable alone may have [MaxEnvBytes].
const MaxValueBytes = 96 << 10

// An EnvVar is one variable of an agent's environment. Its value is in [Sealed].
type EnvVar struct {
	Name string `json:"name"`
	As   string `json:"as,omitempty"` // EnvPlain, EnvSecret, EnvFile
}

// How an agent gets a value.
const (
	EnvPlain  = ""       // as the variable's value
	EnvSecret = "secret" // so, too, and it is taken out of the agent's output
	EnvFile   = "file"   // in a file of its home that the variable names; it is taken out of the output, too
)

// Sealed are the values of a spawn's variables, files and standard input: only the spoke that
// the message is for can read them.
type Sealed struct {
	Key  signing.SealingKeyID `json:"key"`  // of the spoke
	Mark []byte               `json:"mark"` // 32 bytes: the same for the same values, as their sender says
	Box  []byte               `json:"box"`  // the key share and the ciphertext
}

// Values are those of a spawn's variables, in their order, then what its files hold, then its
// standard input.
type Values []Secret

// valuesField is what a ciphertext of values is bound to, see [signing.Place].
const valuesField = "env"

// ValuesPlace is where the values of a spawn message belong, whose receiver is aud.
func ValuesPlace(aud signing.InstanceID, conn, message string) signing.Place {
	return signing.Place{Aud: aud, Conn: conn, Message: message, Field: valuesField}
}

// bound names what values belong to.
func (s *Spawn) bound() []byte {
	var b []byte
	for _, e := range s.Env {
		b = append(append(b, e.Name...), 0)
		b = append(append(b, e.As...), 0)
	}
	return s.boundInline(b)
}

// plaintext is what is encrypted: a JSON list of strings.
func (s *Spawn) plaintext(v Values) ([]byte, error) { return json.Marshal(s.inText(v)) }

// CheckValues checks values that are to be sealed with s; the error is a [*Refused] and shows
// none.
func (s *Spawn) CheckValues(v Values) error {
	if len(v) != s.sealedParts() {
		return Refuse(BadEnv, "%d values for %d environment variables, files and standard inputs", len(v), s.sealedParts())
	}
	total := 0
	for i, secret := range v {
		value := secret.Reveal()
		total += len(value)
		if i < len(s.Env) && (len(value) > MaxEnvBytes || !IsText(value)) {
			return Refuse(BadEnv, "the value of %s contains a NUL, is not UTF-8 or is above %d bytes", Clip(s.Env[i].Name), MaxEnvBytes)
		}
	}
	switch {
	case total > MaxValueBytes && s.Inline():
		return Refuse(Validation, "files, standard input and values of variables are %d bytes together, limit %d (96 KiB)", total, MaxValueBytes).
			Hinting("put what is larger where the spoke's host can read it, or let the agent fetch it")
	case total > MaxValueBytes:
		return Refuse(BadEnv, "the values of all environment variables are %d bytes, limit %d", total, MaxValueBytes)
	}
	return nil
}

// CheckSize wants a message to have room for s once v is sealed into it. Limits of its parts do not
// say that: JSON writes some characters in two to six bytes, and a ciphertext a third longer. The
// error is a [*Refused].
func (s *Spawn) CheckSize(v Values) error {
	full := *s
	if len(v) > 0 {
		plain, err := s.plaintext(v)
		if err != nil {
			return err
		}
		full.Sealed = &Sealed{signing.SealingKeyIDOf(nil), make([]byte, 32), make([]byte, signing.EncryptOverhead+len(plain))}
	}
	raw, err := EncodeBody(&full)
	if err == nil && len(raw) > signing.MaxBody {
		return Refuse(Validation, "the order is %d bytes as its spoke gets it, JSON with the values encrypted; limit %d", len(raw), signing.MaxBody).
			Hinting("put what is large into a file on the spoke and name the file; in arguments, quotes, backslashes and control characters take 2 to 6 bytes each")
	}
	return err
}

// Marked returns s with the mark of its values: what the database of their sender keeps.
func (s *Spawn) Marked(own *signing.Decrypter, v Values) (*Spawn, error) {
	plain, err := s.plaintext(v)
	if err != nil || len(v) == 0 {
		return s, err
	}
	marked := *s
	marked.Sealed = &Sealed{Mark: own.Mark(plain)}
	return &marked, nil
}

// WithoutBox returns s as [Spawn.Marked] makes it.
func (s *Spawn) WithoutBox() *Spawn {
	if s.Sealed == nil {
		return s
	}
	marked := *s
	marked.Sealed = &Sealed{Mark: s.Sealed.Mark}
	return &marked
}

// Seal returns s, which is marked, with values for the owner of the sealing key pub.
func (s *Spawn) Seal(pub []byte, at signing.Place, v Values) (*Spawn, error) {
	box, err := s.Encrypt(pub, at, v)
	if err != nil {
		return nil, err
	}
	sealed := *s
	sealed.Sealed = &Sealed{signing.SealingKeyIDOf(pub), s.Sealed.Mark, box}
	return &sealed, nil
}

// Encrypt returns the values of s for the owner of the sealing key pub.
func (s *Spawn) Encrypt(pub []byte, at signing.Place, v Values) ([]byte, error) {
	plain, err := s.plaintext(v)
	if err != nil {
		return nil, err
	}
	return signing.Encrypt(pub, at, s.bound(), plain)
}

// Values opens what came sealed with s; the error is a [*Refused].
func (s *Spawn) Values(d *signing.Decrypter, at signing.Place) (Values, error) {
	if s.Sealed == nil {
		return nil, nil
	}
	return s.Decrypt(d, s.Sealed.Key, at, s.Sealed.Box)
}

// Decrypt opens values of s; the error is a [*Refused].
func (s *Spawn) Decrypt(d *signing.Decrypter, key signing.SealingKeyID, at signing.Place, box []byte) (Values, error) {
	plain, err := d.Open(key, at, s.bound(), box)
	if err != nil {
		return nil, Refuse(signing.SealOpen, "the values of the environment variables: %v", err).
			Hinting("order it again under another id; if that is refused too, the spoke has to join anew")
	}
	var v Values
	if err := signing.DecodeBody(plain, &v); err != nil {
		return nil, Refuse(BadEnv, "the values of the environment variables are no list of strings")
	}
	if err := s.fromText(v); err != nil {
		return nil, err
	}
	return v, s.CheckValues(v)
}

// checkSealed wants values where there is something that has them, and only there.
func (s *Spawn) checkSealed() error {
	parts := s.sealedParts()
	if s.Sealed == nil && parts > 0 {
		return Refuse(BadEnv, "there are environment variables, files or standard input and no sealed values")
	}
	if s.Sealed == nil {
		return nil
	}
	if b := s.Sealed; parts == 0 || !b.Key.Valid() || len(b.Mark) != 32 || len(b.Box) < signing.EncryptOverhead+2 {
		return Refuse(BadEnv, "the sealed values lack what has them, or their key, mark or ciphertext has not its form")
	}
	return nil
}

func (s *Spawn) checkEnv() error {
	if len(s.Env) > MaxEnv {
		return Refuse(BadEnv, "%d environment variables, limit %d", len(s.Env), MaxEnv)
	}
	seen := map[string]bool{}
	for _, e := range s.Env {
		folded := strings.ToUpper(e.Name)
		switch {
		case e.Name == "" || len(e.Name) > 128 || strings.Contains(e.Name, "=") || !IsText(e.Name):
			return Refuse(BadEnv, "environment variable name %q is not allowed", Clip(e.Name))
		case !slices.Contains([]string{EnvPlain, EnvSecret, EnvFile}, e.As):
			return Refuse(BadEnv, "%s is to be given as %q, which is neither secret nor file", e.Name, Clip(e.As))
		case e.As == EnvFile && !fileName(e.Name):
			return Refuse(BadEnv, "%s is to be a file, whose name has letters, digits and _ only", e.Name)
		case seen[folded]:
			return Refuse(BadEnv, "%s is given twice, or in two spellings", e.Name)
		}
		seen[folded] = true
	}
	return nil
}

// fileName reports whether name can be that of a file and means nothing else.
func fileName(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_'
	})
}
