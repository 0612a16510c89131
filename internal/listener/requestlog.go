package listener

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/control"
)

// A requestLog has a line for each request: what was asked, by whom, and how it was answered. Of what
// was sent it has the path alone, without what follows ?.
type requestLog struct {
	log      *slog.Logger
	refusals *seldom
}

func newRequestLog(log *slog.Logger) *requestLog {
	return &requestLog{log: log, refusals: newSeldom(10, 50)}
}

// A request is one that is being answered.
type request struct {
	log   *requestLog
	w     *patient
	r     *http.Request
	id    string
	begun time.Time
	by    control.Principal
}

// RequestID is the header of each answer by which a log knows its request.
const RequestID = "X-Request-Id"

// begin gives a request its id.
func (l *requestLog) begin(w *patient, r *http.Request) *request {
	q := &request{log: l, w: w, r: r, id: strings.ToLower(rand.Text()[:12]), begun: time.Now()}
	w.Header().Set(RequestID, q.id)
	return q
}

// end writes the line. Who was refused matters more than what was changed, and that than what was read.
func (q *request) end() {
	log, ctx := q.log.log, context.WithoutCancel(q.r.Context())
	about := []any{"request", q.id, "method", clip(q.r.Method), "path", clip(withoutTokens(q.r.URL.Path)), "status", q.w.status,
		"took", time.Since(q.begun).Round(time.Microsecond), "by", q.by.String()}
	reads := q.r.Method == http.MethodGet || q.r.Method == http.MethodHead
	switch status := q.w.status; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusTooManyRequests, status == http.StatusMisdirectedRequest:
		if unsaid, now := q.log.refusals.due(); now {
			log.WarnContext(ctx, "a request to the API was refused", append(about, "from", addressOf(q.r).Addr(), "unsaid", unsaid)...)
		}
	case reads && status < http.StatusInternalServerError:
		log.DebugContext(ctx, "a request to the API was answered", about...)
	default:
		log.InfoContext(ctx, "a request to the API was answered", about...)
	}
}

// clip keeps a line of the log short.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// tokens are secrets that somebody may put where a name belongs.
var tokens = regexp.MustCompile(`(?i)(smt_|amj1\.)[^/]*`)

func withoutTokens(path string) string { return tokens.ReplaceAllString(path, "$1...") }
