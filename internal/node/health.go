package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/spoke"
)

// How long the checks of an instance may take, and its database of it.
const (
	checkTime    = 5 * time.Second
	databaseTime = 2 * time.Second
)

// plain is what programs that watch the instance ask for.
func (n *Node) plain() api.Plain {
	return api.Plain{Healthz: http.HandlerFunc(healthz), Readyz: http.HandlerFunc(n.readyz), Metrics: n.metrics}
}

// healthz says that the process serves, whatever else is the matter.
func healthz(w http.ResponseWriter, _ *http.Request) { answer(w, struct{}{}) }

// readyz says whether the instance can do what it is for.
func (n *Node) readyz(w http.ResponseWriter, r *http.Request) {
	checks := n.checkReady(r.Context())
	var lacks []string
	for _, c := range checks {
		switch {
		case c.OK:
		case control.Caller(r).Known():
			lacks = append(lacks, c.Name+": "+withLine(c))
		default: // a problem may name what is of this host
			lacks = append(lacks, c.Name)
		}
	}
	if lacks != nil {
		control.Error(w, commands.Refuse(commands.NotReady, "%s", strings.Join(lacks, "; ")).Hinting("see").Running("doctor"))
		return
	}
	if !control.Caller(r).Known() {
		checks = mapped(checks, func(c control.Check) control.Check { return control.Check{Name: c.Name, OK: c.OK} })
	}
	answer(w, struct {
		Checks []api.Check `json:"checks"`
	}{mapped(checks, checkOf)})
}

// withLine is a problem with the command line that its last words lead to.
func withLine(c control.Check) string {
	if len(c.Run) == 0 {
		return c.Problem
	}
	return c.Problem + ": " + commands.Line(c.Run...)
}

// checkReady looks at what this host has to have for the instance to work. A link that is down is not
// among it: it needs the other host, too, and what is ordered meanwhile waits.
func (n *Node) checkReady(ctx context.Context) []control.Check {
	ctx, done := context.WithTimeout(ctx, checkTime)
	defer done()
	list := n.checkDatabase(ctx)
	if n.Hub != nil {
		_, server := n.Hub.Describe(ctx)
		list = append(list, server...)
	}
	var rules func() spoke.Room
	if n.Spoke != nil {
		rules = n.Spoke.Reserve
	}
	return append(append(list, spoke.CheckDisk(n.Instance.Dir, rules)), n.checkTries()...)
}

// checkTries looks at what this instance does again and again, and needs no other for.
func (n *Node) checkTries() (list []control.Check) {
	if n.Spoke != nil {
		list = append(list, control.NewCheck("claims", n.Spoke.ClaimsFail()))
	}
	var silent error
	for _, s := range n.living() {
		if s.Unsealed != nil {
			silent = errors.Join(silent, fmt.Errorf("none can be made for %s: %w", s.Name, s.Unsealed))
		}
	}
	return append(list, control.NewCheck("heartbeats", silent))
}

// checkAnswers names linked peers that answer no heartbeats, or whose heartbeats are not taken: mostly a clock is wrong.
func (n *Node) checkAnswers() (list []control.Check) {
	for _, s := range n.living() {
		for _, r := range s.Heartbeats() {
			list = append(list, control.Check{Name: "heartbeats of " + s.Name, Problem: strings.TrimSuffix(r.Text+"; "+r.Fix, "; "), Remote: true})
		}
		if s.Unanswered != nil {
			list = append(list, control.Check{Name: "heartbeats to " + s.Name, Problem: "not answered: " + s.Unanswered.Error(), Remote: true})
		}
	}
	return list
}

func (n *Node) checkDatabase(ctx context.Context) []control.Check {
	ctx, done := context.WithTimeout(ctx, databaseTime)
	defer done()
	err := n.databaseAnswers(ctx)
	schema := control.Check{Name: "migrations", Problem: "not known while the database does not answer"}
	if err == nil {
		schema = control.NewCheck("migrations", n.Instance.DB.Migrated(ctx))
	}
	list := []control.Check{control.NewCheck(control.DatabaseCheck, err), schema}
	if err != nil {
		return list // its clock is not known
	}
	return append(list, n.checkClock(ctx))
}

// databaseAnswers says why the database has given no answer in the time of ctx.
func (n *Node) databaseAnswers(ctx context.Context) error {
	began := time.Now()
	_, err := n.Instance.DB.Now(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the database has not answered within %s", time.Since(began).Round(time.Second))
	}
	return err
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who asked has left
}
