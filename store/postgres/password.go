package postgres

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

// keysDir is where the instance keeps what nobody but it may read.
const keysDir = "keys"

// passwordFile has a line for each role that may log in, in the form that PostgreSQL's clients read (.pgpass). An
// address that names the file is no secret.
func (l layout) passwordFile() string { return filepath.Join(l.dir, keysDir, "pgpass") }

// iterations of the derivation make words that people choose harder to guess. Nobody guesses 32 random bytes, and each
// connection would pay: 1 ms for the usual 4,096.
const iterations = 1

// passwords are those of the roles that may log in.
type passwords map[string]string

// newPasswords makes a password of 32 random bytes for each role.
func newPasswords() passwords {
	p := passwords{}
	for _, role := range []string{programRole, backupRole} {
		secret := make([]byte, 32)
		rand.Read(secret)
		p[role] = hex.EncodeToString(secret)
	}
	return p
}

// openPasswords opens the file as key files are opened: one that others may use, that is another
// user's, that is no file, or that others could have put there is refused. What is not there is
// [fs.ErrNotExist].
func (l layout) openPasswords() (*os.File, error) {
	f, err := hostfile.Open(l.passwordFile(), hostfile.Rule{Secret: true, NoLink: true})
	if unsafe, ok := errors.AsType[*hostfile.UnsafeError](err); ok {
		return nil, fmt.Errorf("reading the passwords of the database: %w; if others have read them, remove %s, and they are made anew", unsafe, l.passwordFile())
	}
	if err != nil {
		return nil, fmt.Errorf("reading the passwords of the database: %w", err)
	}
	return f, nil
}

// checkPasswordFile reports whether there is one.
func (l layout) checkPasswordFile() (exists bool, err error) {
	f, err := l.openPasswords()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// readPasswords reads the file, and returns new ones where there is none.
func (l layout) readPasswords() (passwords, error) {
	f, err := l.openPasswords()
	if errors.Is(err, fs.ErrNotExist) {
		return newPasswords(), nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading the passwords of the database: %w", err)
	}
	p := passwords{}
	for line := range strings.Lines(string(text)) {
		if field := strings.Split(strings.TrimSpace(line), ":"); len(field) == 5 {
			p[field[3]] = field[4]
		}
	}
	if p[programRole] == "" || p[backupRole] == "" {
		return nil, fmt.Errorf("%s lacks a password: remove it, and it is made anew", l.passwordFile())
	}
	return p, nil
}

// write keeps the passwords; the key directory is made where there is none.
func (p passwords) write(l layout) error {
	if err := os.MkdirAll(filepath.Dir(l.passwordFile()), 0o700); err != nil {
		return fmt.Errorf("making the key directory: %w", err)
	}
	var text strings.Builder
	for _, role := range []string{programRole, backupRole} {
		fmt.Fprintf(&text, "*:*:*:%s:%s\n", role, p[role])
	}
	if err := fsync.Replace(l.passwordFile(), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("keeping the passwords of the database: %w", err)
	}
	return nil
}

// verifier is what the server keeps of a password (RFC 5803), and all that it is ever told.
func verifier(password string) (string, error) {
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("deriving a verifier: %w", err)
	}
	keyed := func(word string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(word))
		return mac.Sum(nil)
	}
	stored, text := sha256.Sum256(keyed("Client Key")), base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, text(salt), text(stored[:]), text(keyed("Server Key"))), nil
}
