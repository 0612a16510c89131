package listener

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/token"
)

// What one client may do. Who has a valid token is not held up by others at its address.
const (
	perAddress    rate.Limit = 20 // requests a second without a token
	addressBurst             = 40
	triesPer      rate.Limit = 1.0 / 12 // tokens a second that are not valid
	triesBurst               = 5
	maxAddresses             = 4096
	secondsOfTry             = 12
	secondsOfRate            = 1
)

// How many tokens that are not known are looked up at a time, and how long each keeps its place: 400 lookups of one row
// a second are little for a database. With every connection waiting, a valid token waits 1.3 s and is not refused; who
// goes away leaves the queue.
const (
	lookupsAtOnce = 4
	lookupPause   = 10 * time.Millisecond
)

// limits count what clients do.
type limits struct {
	perToken int           // requests a second
	lookups  chan struct{} // a place for each lookup of a token that is not known

	mu      sync.Mutex // guards what follows
	tokens  map[string]*known
	without addresses // who has no token
	wrong   addresses // who has one that is not valid
}

// A known token was valid when it was used last.
type known struct {
	digest []byte
	rate   *rate.Limiter
}

func newLimits(perToken int) *limits {
	return &limits{perToken: perToken, lookups: make(chan struct{}, lookupsAtOnce), tokens: map[string]*known{}, without: addresses{perAddress, addressBurst, map[netip.Prefix]*rate.Limiter{}},
		wrong: addresses{triesPer, triesBurst, map[netip.Prefix]*rate.Limiter{}}}
}

// addresses have a limiter each.
type addresses struct {
	limit rate.Limit
	burst int
	each  map[netip.Prefix]*rate.Limiter
}

func (a addresses) of(p netip.Prefix) *rate.Limiter {
	if a.each[p] == nil {
		if len(a.each) >= maxAddresses { // whoever has so many is not stopped by this, and others are not held up
			clear(a.each)
		}
		a.each[p] = rate.NewLimiter(a.limit, a.burst)
	}
	return a.each[p]
}

// addressOf is where a request comes from, see [networkOf].
func addressOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return networkOf(at.Addr())
}

// networkOf is an address, of IPv6 the network, in which a client chooses addresses.
func networkOf(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(addr, bits).Masked()
}

// A tooMany refuses what may be done later.
type tooMany struct {
	*commands.Refused
	seconds int
}

func (t *tooMany) Unwrap() error { return t.Refused }

func refuseFor(seconds int, format string, args ...any) error {
	return &tooMany{commands.Refuse(commands.TooManyRequests, format, args...).Hinting("try again in %d s", seconds), seconds}
}

// anonymous counts a request without a token.
func (l *limits) anonymous(from netip.Prefix) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.without.of(from).Allow() {
		return refuseFor(secondsOfRate, "there are more than %v requests a second without a token from this address", perAddress)
	}
	return nil
}

// failed counts a token that is not valid, and refuses where there were too many: then it is not said what is wrong.
func (l *limits) failed(from netip.Prefix) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.wrong.of(from).Allow() {
		return refuseFor(secondsOfTry, "there were too many tokens from this address that are not valid")
	}
	return nil
}

// waitToLookUp waits for its turn.
func (l *limits) waitToLookUp(ctx context.Context) error {
	select {
	case l.lookups <- struct{}{}:
		time.AfterFunc(lookupPause, func() { <-l.lookups })
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting to look up a token: %w", ctx.Err())
	}
}

// knows reports whether the token was valid when it was used last.
func (l *limits) knows(t token.Token) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.tokens[t.ID]
	return k != nil && bytes.Equal(k.digest, t.Digest())
}

// forget takes back that the token is known.
func (l *limits) forget(t token.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.tokens[t.ID]; k != nil && bytes.Equal(k.digest, t.Digest()) {
		delete(l.tokens, t.ID)
	}
}

// count counts a request with a token that is valid.
func (l *limits) count(t token.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tokens[t.ID] == nil {
		l.tokens[t.ID] = &known{t.Digest(), rate.NewLimiter(rate.Limit(l.perToken), 2*l.perToken)}
	}
	if !l.tokens[t.ID].rate.Allow() {
		return refuseFor(secondsOfRate, "there are more than %v requests a second with this token", l.perToken)
	}
	return nil
}
