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
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
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

// checkPasswordFile reports whether there is one. One that others may read is refused.
func (l layout) checkPasswordFile() (exists bool, err error) {
	info, err := os.Lstat(l.passwordFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking for the passwords of the database: %w", err)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is no file: remove it, and it is made anew", l.passwordFile())
	case info.Mode().Perm()&0o077 != 0:
		return false, fmt.Errorf("others may read the passwords of the database; if nobody has, run: chmod 600 %[1]s; else remove that file, and they are made anew", l.passwordFile())
	}
	return true, nil
}

// readPasswords reads the file, and returns new ones where there is none.
func (l layout) readPasswords() (passwords, error) {
	text, err := os.ReadFile(l.passwordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return newPasswords(), nil
	}
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
