package listener

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/token"
)

// admitted hands h the requests that name this host, with who asks, and logs all. One without a token is of nobody known.
func (l *Listener) admitted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &patient{w, http.NewResponseController(w), writeTime, 0}
		q := l.requests.begin(p, r)
		defer q.end()
		defer p.more()
		control.BoundBody(p, r, control.BodyTime)
		if err := l.checkHost(r); err != nil {
			control.Error(p, err)
			return
		}
		who, err := l.admit(r)
		if who.token == "" && r.ContentLength != 0 { // else the server reads the body before it answers
			p.Header().Set("Connection", "close")
		}
		q.by = who.principal
		ctx, done := control.WithCaller(r.Context(), who.principal), func() {}
		if err == nil && who.token != "" {
			ctx, done, err = l.open.begin(ctx, who.token)
		}
		if err != nil {
			if later, ok := errors.AsType[*tooMany](err); ok {
				p.Header().Set("Retry-After", strconv.Itoa(later.seconds))
			}
			control.Fail(p, r, err)
			return
		}
		defer done()
		h.ServeHTTP(p, r.WithContext(ctx))
	})
}

// checkHost refuses a request under a name that is not ours, as of a web page that has led its own to this address, and
// one of a page from elsewhere.
func (l *Listener) checkHost(r *http.Request) error {
	if r.URL.IsAbs() || !l.hosts[strings.ToLower(r.Host)] {
		return commands.Refuse(commands.Misdirected, "the request is for the host %q, which is no name of this hub", commands.Clip(r.Host)).
			Hinting("ask it by a name that it was started with: hub run --api-host NAME")
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	if origin != "" && origin != l.scheme+"://"+r.Host || site != "" && site != "same-origin" && site != "none" {
		return commands.Refuse(commands.Forbidden, "the request comes from a web page of another origin").Hinting("ask from a program, or from a page of this host")
	}
	return nil
}

// A caller is who has shown a token.
type caller struct {
	principal control.Principal
	token     string // its id, "" without one
}

// admit says who makes a request. A token is looked up before anything is counted: whoever has a valid one gets in,
// whatever others at his address show. What anybody may ask needs no database, and no token is looked at.
func (l *Listener) admit(r *http.Request) (caller, error) {
	from := addressOf(r)
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 || api.ForAnybody(r) {
		return caller{}, l.limits.anonymous(from)
	}
	t, err := readToken(headers)
	if err == nil {
		var who caller
		if who, err = l.use(r.Context(), t); commands.CodeOf(err) != commands.Unauthenticated {
			return who, err
		}
	}
	if late := l.limits.failed(from); late != nil {
		return caller{}, late
	}
	l.badTokens.Note(refusedToken(from.Addr().String(), err.Error()))
	return caller{}, err
}

// lookupTime is how long the database may take to say who has a token.
const lookupTime = 3 * time.Second

// use asks the database who has a token: one that was revoked a moment ago lets nobody in.
func (l *Listener) use(ctx context.Context, t token.Token) (caller, error) {
	looking, done := context.WithTimeout(ctx, lookupTime)
	defer done()
	if !l.limits.knows(t) {
		if err := l.limits.waitToLookUp(looking); err != nil {
			return caller{}, err
		}
	}
	u, err := l.db.UseToken(looking, t.ID, t.Digest())
	if err != nil {
		if commands.CodeOf(err) == commands.Unauthenticated {
			l.limits.forget(t)
		}
		return caller{}, err
	}
	return caller{control.Holder(u.Name, api.Access{Role: api.Role(u.Role), Workspace: u.Workspace}), t.ID}, l.limits.count(t)
}

// readToken reads the header that says who asks.
func readToken(headers []string) (token.Token, error) {
	scheme, text, _ := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return token.Token{}, commands.Refuse(commands.Unauthenticated, "the header Authorization does not hold one token").Hinting("send: Authorization: Bearer smt_...")
	}
	t, err := token.Parse(text)
	if err != nil {
		return token.Token{}, commands.Refuse(commands.Unauthenticated, "reading the token in the header Authorization: %v", err).Hinting("copy it again, or ask an owner of this instance for another one")
	}
	return t, nil
}

// A patient is a writer to a client that gets time for each part of an answer, not for the whole: an
// answer may go on for days, and one that nobody reads holds nothing up.
type patient struct {
	http.ResponseWriter
	c      *http.ResponseController
	within time.Duration
	status int // of the answer; 0 = none yet
}

// writeTime is how long a client may take for a part of an answer.
const writeTime = 30 * time.Second

func (p *patient) more() { _ = p.c.SetWriteDeadline(time.Now().Add(p.within)) }

// WriteHeader notes the status.
func (p *patient) WriteHeader(status int) {
	p.status = cmp.Or(p.status, status)
	p.ResponseWriter.WriteHeader(status)
}

// Write gives the client its time.
func (p *patient) Write(b []byte) (int, error) {
	p.status = cmp.Or(p.status, http.StatusOK)
	p.more()
	return p.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
