// Package metrics counts what happens in an instance, and writes it in the text format of
// Prometheus together with what is looked at when somebody asks.
//
// Every label has few values: none is the name of a task, a command line, a key or a text
// that somebody else chose. Each instance has a registry of its own.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// prefix is what the names of all metrics of the product begin with.
const prefix = "spawnmesh_"

// Counters count what happens. A nil one counts nothing: rooms that are used without an
// instance have none.
type Counters struct {
	claims, reclaimed, orders, linkLosses prometheus.Counter
	starts, sweeps, late                  prometheus.Histogram
	ends, kills, refusals, results, fires bounded
	deliveries, questions                 bounded
	exhausted                             prometheus.Counter
}

// Words are the values that labels have from the beginning: what is not known yet to have
// happened is zero, and not missing.
type Words struct{ Outcomes, Results, Fires, Deliveries, Questions []string }

// What an agent is ended for before its time.
const (
	ByOrder = "order" // somebody asked for it
	ByLease = "lease" // its spoke has lost the lease

	ByOverrun = "overrun" // it ran longer than estimated, and told no progress
)

func newCounters(r prometheus.Registerer, words Words) *Counters {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
		r.MustRegister(c)
		return c
	}
	seconds := func(name, help string, buckets ...float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	by := func(label, name, help string, from ...string) bounded {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, []string{label})
		r.MustRegister(v)
		b := bounded{vec: v, seen: &seen{values: map[string]bool{}}}
		for _, value := range from { // the first one that is counted is an increase, too
			v.WithLabelValues(b.seen.bound(value))
		}
		return b
	}
	return &Counters{
		claims:     counter("claims_total", "Tasks that this spoke has claimed."),
		reclaimed:  counter("leases_reclaimed_total", "Leases that had run out and were taken back: their workers were not heard any more."),
		orders:     counter("orders_total", "Orders that this hub has stored."),
		linkLosses: counter("link_losses_total", "Links with other instances that went down."),
		starts:     seconds("start_seconds", "Time from the claim of a task to the stored proof that its agent runs.", .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		sweeps:     seconds("sweep_seconds", "Time that one look at what is due took.", .001, .005, .025, .1, .5, 1, 5, 15),
		late:       seconds("schedule_late_seconds", "Time from when a schedule was due to what became of it.", .1, .5, 1, 5, 30, 60, 300, 3600),
		fires:      by("outcome", "schedule_fires_total", "Schedules that were due, by what became of it: ordered, skipped or refused.", words.Fires...),
		deliveries: by("outcome", "webhook_deliveries_total", "Tries to tell a webhook, by what came of it: delivered, retried (it failed, and another one follows) or given_up.", words.Deliveries...),
		questions:  by("outcome", "questions_closed_total", "Questions of agents on spokes that are closed, by what became of them.", words.Questions...),
		ends:       by("outcome", "attempts_ended_total", "Attempts of agents that have ended on this spoke, by how.", words.Outcomes...),
		kills:      by("cause", "kills_total", "Agents that this spoke was to end before their time, by what for: order, lease or overrun.", ByOrder, ByLease),
		refusals:   by("code", "messages_refused_total", "Messages of other instances that were refused here, by why.", Other),
		results:    by("state", "results_total", "Results of agents that this hub has taken in, by the state of their tasks.", words.Results...),
		exhausted:  counter("retries_exhausted_total", "Results of agents that failed with all their retries used up."),
	}
}

// Claimed counts tasks that were claimed.
func (c *Counters) Claimed(n int) {
	if c != nil {
		c.claims.Add(float64(n))
	}
}

// Reclaimed counts leases that were taken back.
func (c *Counters) Reclaimed(n int) {
	if c != nil {
		c.reclaimed.Add(float64(n))
	}
}

// Ordered counts orders that were stored.
func (c *Counters) Ordered(n int) {
	if c != nil {
		c.orders.Add(float64(n))
	}
}

// Fired counts a schedule that was due so long ago.
func (c *Counters) Fired(outcome string, late time.Duration) {
	if c != nil {
		c.fires.inc(outcome)
		c.late.Observe(late.Seconds())
	}
}

// Delivered counts a try to tell a webhook.
func (c *Counters) Delivered(outcome string) {
	if c != nil {
		c.deliveries.inc(outcome)
	}
}

// QuestionClosed counts a question of an agent, by what became of it.
func (c *Counters) QuestionClosed(outcome string) {
	if c != nil {
		c.questions.inc(outcome)
	}
}

// LinkLost counts a link that went down.
func (c *Counters) LinkLost() {
	if c != nil {
		c.linkLosses.Inc()
	}
}

// Started counts an agent that runs so long after its task was claimed.
func (c *Counters) Started(after time.Duration) {
	if c != nil {
		c.starts.Observe(after.Seconds())
	}
}

// Swept counts a look at what is due that took so long.
func (c *Counters) Swept(took time.Duration) {
	if c != nil {
		c.sweeps.Observe(took.Seconds())
	}
}

// Ended counts the end of an attempt.
func (c *Counters) Ended(outcome string) {
	if c != nil {
		c.ends.inc(outcome)
	}
}

// Killed counts an agent that is to be ended.
func (c *Counters) Killed(cause string) {
	if c != nil {
		c.kills.inc(cause)
	}
}

// Refused counts a message that was refused, by a code of this instance's own.
func (c *Counters) Refused(code string) {
	if c != nil {
		c.refusals.inc(code)
	}
}

// Result counts the result of an agent. Exhausted: it had used up its retries.
func (c *Counters) Result(state string, exhausted bool) {
	if c == nil {
		return
	}
	c.results.inc(state)
	if exhausted {
		c.exhausted.Inc()
	}
}

// maxValues bounds the values of a label. All of them are words of the product, which has
// fewer: what is beyond would be a defect, and must not fill the memory of whoever collects.
const maxValues = 100

// Other stands for the values of a label beyond those that it may have.
const Other = "other"

// A bounded vector has one label, with maxValues values at most.
type bounded struct {
	vec  *prometheus.CounterVec
	seen *seen
}

type seen struct {
	mu     sync.Mutex // guards values
	values map[string]bool
}

func (b bounded) inc(value string) { b.vec.WithLabelValues(b.seen.bound(value)).Inc() }

func (s *seen) bound(value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.values[value] {
		if len(s.values) >= maxValues {
			return Other
		}
		s.values[value] = true
	}
	return value
}
