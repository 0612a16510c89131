package door

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/remove"
)

// A secret is the digest of a token.
type secret [sha256.Size]byte

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// keepToken returns the token in the file path, and writes a new one where there is none: 32 random bytes, for the
// agent's user alone. Whatever else the agent has put there goes.
func keepToken(path string, user int) (*secret, error) {
	if had := readToken(path); tokenForm.MatchString(had) {
		return secretOf(had), nil
	}
	if err := remove.All(path); err != nil {
		return nil, err
	}
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // it never fails
	token := base64.RawURLEncoding.EncodeToString(raw)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(token + "\n")
	if err == nil && user != 0 {
		err = f.Chown(user, user)
	}
	return secretOf(token), errors.Join(err, f.Close())
}

// readToken reads what may be a token. Neither a link nor a pipe in its place leads or holds up the caller.
func readToken(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	raw, _ := io.ReadAll(io.LimitReader(f, 64))
	return strings.TrimSuffix(string(raw), "\n")
}

func secretOf(token string) *secret {
	s := secret(sha256.Sum256([]byte(token)))
	return &s
}

// allowed passes on what has the token, when it is its turn: connections are few and each waits with what it has asked,
// so nothing that an agent sends is answered more often than that.
func (d *Door) allowed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.enter() {
			panic(http.ErrAbortHandler) // to return would be to answer that it is done
		}
		defer d.busy.Done()
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		known := subtle.ConstantTimeCompare(secretOf(token)[:], d.secret[:]) == 1
		turns := d.wrong
		if known {
			turns = d.rate
		}
		if turns.Wait(r.Context()) != nil {
			panic(http.ErrAbortHandler) // nobody waits for an answer, or the door closes
		}
		if !known {
			answer(w, r, nil, commands.Refuse(commands.Unauthenticated, "the request does not have the token of this attempt").
				Hinting("send what is in the file that SPAWNMESH_TOKEN_FILE names, as Authorization: Bearer TOKEN"))
			return
		}
		d.room.Heard()
		h.ServeHTTP(w, r)
		d.room.Heard() // what it waited for has come, perhaps
	})
}
