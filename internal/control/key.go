package control

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

// keyHeader is the header of a request that holds the key of the instance.
const keyHeader = "Spawnmesh-Control-Key"

// KeyFile is where the instance in dir keeps the header with its key, as curl -H @FILE sends it. Only its user and root may read it.
func KeyFile(dir string) string { return filepath.Join(dir, "control.key") }

// makeKey makes the key of an instance that starts in dir. What had the one before gets in no more.
func makeKey(dir string) (key string, err error) {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // it never fails
	key = hex.EncodeToString(raw)
	return key, fsync.Replace(KeyFile(dir), []byte(keyHeader+": "+key+"\n"), 0o600)
}

// readKey reads the key of the instance in dir; "" where there is none for this user, as of an instance of an earlier version. Where agents
// have the user of the instance something else may be in its place: that holds nobody up. The error says what to do.
func readKey(dir string) (string, error) {
	path := KeyFile(dir)
	raw, err := readRegular(path, 256)
	if err != nil && !isOwn(path) {
		return "", nil // whoever is dialled says why this user gets in nowhere
	}
	const restart = "stop the instance and start it again: it makes another one"
	switch name, key, _ := strings.Cut(string(bytes.TrimSpace(raw)), ": "); {
	case errors.Is(err, os.ErrPermission):
		return "", commands.Refuse(commands.Forbidden, "the key of the instance, %s, is closed to its own user; nothing was asked", path).
			Hinting("run: chmod 600 %s, or %s", path, restart)
	case err != nil:
		return "", commands.Refuse(commands.Forbidden, "the key of the instance cannot be read: %v; nothing was asked", err).Hinting("%s", restart)
	case name != keyHeader || strings.ContainsAny(key, "\r\n"):
		return "", commands.Refuse(commands.Forbidden, "%s does not hold the key of an instance; nothing was asked", path).Hinting("%s", restart)
	default:
		return key, nil
	}
}

// isOwn reports whether something is at a path, and is this user's or anybody's for root.
func isOwn(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && (os.Geteuid() == 0 || int(s.Uid) == os.Geteuid())
}

// readRegular reads up to most bytes of a regular file. A link is none.
func readRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s is not a regular file", path))
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// checkKey refuses a request without the key of the instance. What a process descends from is no proof: a child of an agent that
// has ended its shim descends from none. What it may not read it cannot send.
func (s *Local) checkKey(r *http.Request) error {
	sent := r.Header.Values(keyHeader)
	if len(sent) == 1 && subtle.ConstantTimeCompare([]byte(sent[0]), []byte(s.key)) == 1 {
		return nil
	}
	if _, err := os.Stat(KeyFile(s.dir)); errors.Is(err, os.ErrNotExist) {
		return commands.Refuse(commands.Forbidden, "the request has no key of this instance: %s is gone", KeyFile(s.dir)).Hinting("stop the instance and start it again: it makes another one")
	}
	if len(sent) == 0 {
		return commands.Refuse(commands.Forbidden, "the request has no key of this instance").
			Hinting("send the header in %s, as with curl -H @FILE; a spawnmesh that is told this is older than the instance, so use the one that it runs", KeyFile(s.dir))
	}
	return commands.Refuse(commands.Forbidden, "the key of the request is not that of this instance").Hinting("it is another one after each start: send the header in %s", KeyFile(s.dir))
}

// Transport sends requests to the instance in dir, each with its key.
func Transport(dir string) http.RoundTripper {
	return keyed{dir, transport(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, Socket(dir)) })}
}

// transport goes to an instance of this host.
func transport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 128, IdleConnTimeout: idleTime / 2}
}

// keyed sends the key of the instance in a directory with each request.
type keyed struct {
	dir string
	*http.Transport
}

// RoundTrip sends a request with the key, and again where the instance was started anew after the key was read.
func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := readKey(k.dir)
	if err != nil && Runs(r.Context(), k.dir) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	resp, err := k.with(r, r.Body, key)
	if err != nil || resp.StatusCode != http.StatusForbidden || r.Body != nil && r.GetBody == nil {
		return resp, err
	}
	now, err := readKey(k.dir)
	if err != nil || now == key {
		return resp, nil
	}
	_ = resp.Body.Close() // it refuses the old key
	body := r.Body
	if body != nil {
		if body, err = r.GetBody(); err != nil {
			return nil, fmt.Errorf("asking again with the new key: %w", err)
		}
	}
	return k.with(r, body, now)
}

// with sends a request with a key, "" = none.
func (k keyed) with(r *http.Request, body io.ReadCloser, key string) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body = body
	if key != "" {
		r.Header.Set(keyHeader, key)
	}
	return k.Transport.RoundTrip(r)
}
