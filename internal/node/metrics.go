package node

import (
	"context"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub/webhook"
	"github.com/spawnmesh/spawnmesh/internal/metrics"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/store"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

// maxConnections bounds how many connections have figures of their own: the oldest.
const maxConnections = 1000

// How long the database may take for figures, and for how long they are good.
const (
	figuresTime = 2 * time.Second
	fresh       = 5 * time.Second
	freshSizes  = time.Minute
)

// newMetrics makes what this instance exports.
func (n *Node) newMetrics() *metrics.Registry {
	r := metrics.New(metrics.Words{Outcomes: texts(commands.Outcomes), Fires: store.FireOutcomes, Deliveries: webhook.Outcomes, Questions: commands.QuestionOutcomes, Results: texts(slices.DeleteFunc(slices.Clone(commands.States), func(s commands.State) bool { return !s.Terminal() }))})
	n.instanceFigures(r)
	n.linkFigures(r)
	n.databaseFigures(r)
	if n.Hub != nil {
		n.webhookFigures(r)
	}
	if n.Spoke != nil {
		n.spokeFigures(r)
	}
	if n.API != nil {
		n.apiFigures(r)
	}
	return r
}

func texts[T ~string](list []T) []string { return mapped(list, func(v T) string { return string(v) }) }

// one is a reading of a figure without labels.
func one(f metrics.Figure, value float64) metrics.Reading {
	return metrics.Reading{Of: f, Value: value}
}

// instanceFigures are what the instance knows without its database.
func (n *Node) instanceFigures(r *metrics.Registry) {
	ok := metrics.NewFigure("check_ok", "Whether what the instance needs on its own host is there (1) or not (0), as /readyz has it.", metrics.Gauge, "check")
	r.Group("checks", checkTime+time.Second, fresh, func(ctx context.Context) (list []metrics.Reading, _ error) {
		for _, c := range n.checkReady(ctx) {
			list = append(list, metrics.Reading{Of: ok, Value: metrics.Bool(c.OK), Labels: []string{c.Name}})
		}
		return list, nil
	}, ok)
	free := metrics.NewFigure("disk_free_bytes", "Bytes that are free in the file system of the data directory.", metrics.Gauge)
	r.Group("disk", time.Second, 0, func(context.Context) ([]metrics.Reading, error) {
		room, err := spoke.Free(n.Instance.Dir)
		return []metrics.Reading{one(free, float64(room.Bytes))}, err
	}, free)
	outages := metrics.NewFigure("database_outages_total", "Times that the database could not be reached, went away or did not answer.", metrics.Counter)
	r.Group("outages", time.Second, 0, func(context.Context) ([]metrics.Reading, error) {
		return []metrics.Reading{one(outages, float64(n.Instance.DB.Outages()))}, nil
	}, outages)
}

// apiFigures are what the API for other programs has refused before it was asked anything.
func (n *Node) apiFigures(r *metrics.Registry) {
	refused := metrics.NewFigure("api_connections_refused_total", "Connections to the API that were closed because there were too many: of one address, or of all.", metrics.Counter, "cause")
	r.Group("api", time.Second, 0, func(context.Context) (list []metrics.Reading, _ error) {
		for cause, count := range n.API.RefusedConnections() {
			list = append(list, metrics.Reading{Of: refused, Value: float64(count), Labels: []string{cause}})
		}
		return list, nil
	}, refused)
}

// spokeFigures are what a spoke knows of itself.
func (n *Node) spokeFigures(r *metrics.Registry) {
	slots := metrics.NewFigure("slots", "Agents that this spoke runs at a time.", metrics.Gauge)
	running := metrics.NewFigure("slots_taken", "Slots of this spoke that attempts have.", metrics.Gauge)
	paused := metrics.NewFigure("agents_paused", "Agents of this spoke that stand still; each keeps its slot.", metrics.Gauge)
	r.Group("slots", time.Second, 0, func(context.Context) ([]metrics.Reading, error) {
		return []metrics.Reading{one(slots, float64(n.Spoke.Slots)), one(running, float64(n.Spoke.Running())), one(paused, float64(n.Spoke.Paused()))}, nil
	}, slots, running, paused)
}

// ofConnection is a figure of each connection.
type ofConnection struct {
	metrics.Figure
	value func(federation.Status) (float64, bool)
}

// linkFigures are what is known in memory of connections that have not ended.
func (n *Node) linkFigures(r *metrics.Registry) {
	always := func(is func(federation.Status) bool) func(federation.Status) (float64, bool) {
		return func(s federation.Status) (float64, bool) { return metrics.Bool(is(s)), true }
	}
	heard := func(value func(*store.Beat) float64) func(federation.Status) (float64, bool) {
		return func(s federation.Status) (float64, bool) {
			if s.Beat == nil {
				return 0, false
			}
			return value(s.Beat), true
		}
	}
	list := []ofConnection{
		{gauge("linked", "Whether there is a link (1) or not (0)."), always(func(s federation.Status) bool { return s.Linked })},
		{gauge("suspended", "Whether the connection is suspended on this side (1) or not (0)."), always(func(s federation.Status) bool { return s.State == store.Suspended })},
		{gauge("limited", "Whether the peer was above its rate in the last minute (1) or not (0)."), always(func(s federation.Status) bool { return s.Limited })},
		{gauge("full", "Whether no more messages of the peer are kept (1) or they are (0)."), always(func(s federation.Status) bool { return s.Full })},
		{gauge("silent_seconds", "Time since the last heartbeat of the peer."), heard(func(b *store.Beat) float64 { return max(0, time.Since(b.At).Seconds()) })},
		{gauge("peer_running", "Agents that the peer says it runs, of all its hubs."), heard(func(b *store.Beat) float64 { return float64(b.Body.Running) })},
		{gauge("peer_queued", "Tasks that the peer says stand ready there."), heard(func(b *store.Beat) float64 { return float64(b.Body.Queued) })},
	}
	figures := []metrics.Figure{metrics.NewFigure("connections", "Connections that have not ended.", metrics.Gauge)}
	for _, f := range list {
		figures = append(figures, f.Figure)
	}
	r.Group("connections", time.Second, 0, func(context.Context) (all []metrics.Reading, _ error) {
		living := n.living()
		for _, s := range living[:min(len(living), maxConnections)] {
			for _, f := range list {
				if v, known := f.value(s); known {
					all = append(all, metrics.Reading{Of: f.Figure, Value: v, Labels: labels(s)})
				}
			}
		}
		return append(all, one(figures[0], float64(len(living)))), nil
	}, figures...)
}

// gauge is a figure of each connection.
func gauge(name, help string) metrics.Figure {
	return metrics.NewFigure("connection_"+name, help, metrics.Gauge, "connection", "peer")
}

// labels name a connection: no two that have not ended have one name.
func labels(s federation.Status) []string {
	if s.Authority == store.Commands {
		return []string{s.Name, "spoke"}
	}
	return []string{s.Name, "hub"}
}

// living are the connections that have not ended, the oldest first.
func (n *Node) living() (list []federation.Status) {
	for _, s := range n.board.Statuses(store.Commands, store.Obeys) {
		if !s.State.Ended() {
			list = append(list, s)
		}
	}
	return list
}

// databaseFigures are what only the database knows.
func (n *Node) databaseFigures(r *metrics.Registry) {
	open := gauge("unconfirmed", "Messages to the peer that its database has not confirmed.")
	age := gauge("unconfirmed_age_seconds", "Age of the oldest message to the peer that is not confirmed; 0 without one.")
	r.Group("outbox", figuresTime, fresh, func(ctx context.Context) (list []metrics.Reading, _ error) {
		boxes, err := n.Instance.DB.Outboxes(ctx)
		byConn := map[string]store.Outbox{}
		for _, b := range boxes {
			byConn[b.Conn] = b
		}
		living := n.living()
		for _, s := range living[:min(len(living), maxConnections)] {
			if b, found := byConn[s.ID]; found {
				list = append(list, metrics.Reading{Of: open, Value: float64(b.Unconfirmed), Labels: labels(s)}, metrics.Reading{Of: age, Value: b.Age.Seconds(), Labels: labels(s)})
			}
		}
		return list, err
	}, open, age)
	n.backlogFigures(r)
	questions := metrics.NewFigure("questions_open", "Questions of agents that wait for an answer, of those that this instance ordered and of those that run here; up to 10,000 are counted.", metrics.Gauge)
	waits := metrics.NewFigure("question_oldest_seconds", "Age of the oldest question that waits for an answer; 0 without one.", metrics.Gauge)
	r.Group("questions", figuresTime, fresh, func(ctx context.Context) ([]metrics.Reading, error) {
		open, age, err := n.Instance.DB.QuestionFigures(ctx)
		return []metrics.Reading{one(questions, float64(open)), one(waits, age.Seconds())}, err
	}, questions, waits)
	sizes := metrics.NewFigure("stored_bytes", "Bytes that are stored: tables that grow with their indexes, output of agents in files (logs), signed bytes of received messages in tables (envelopes).", metrics.Gauge, "of")
	r.Group("sizes", figuresTime, freshSizes, func(ctx context.Context) ([]metrics.Reading, error) {
		s, err := n.Instance.DB.Sizes(ctx)
		return []metrics.Reading{{Of: sizes, Value: float64(s.Tables), Labels: []string{"tables"}}, {Of: sizes, Value: float64(s.Logs), Labels: []string{"logs"}},
			{Of: sizes, Value: float64(s.Envelopes), Labels: []string{"envelopes"}}}, err
	}, sizes)
}

// backlogFigures count the tasks of this instance's own backlog. A hub has one, too.
func (n *Node) backlogFigures(r *metrics.Registry) {
	tasks := metrics.NewFigure("tasks", "Tasks of the backlog by state and lane: queued ones as ready, due or deps; those that have ended as long as they are kept. Lanes that nobody has set are other.", metrics.Gauge, "state", "lane")
	expired := metrics.NewFigure("leases_expired", "Leases that have run out and were not taken back yet.", metrics.Gauge)
	oldest := metrics.NewFigure("oldest_ready_seconds", "Age of the oldest task of the main workspace that stands ready; 0 without one.", metrics.Gauge)
	b := backlog.Open(n.Instance.DB, spoke.Answer)
	r.Group("backlog", figuresTime, fresh, func(ctx context.Context) (list []metrics.Reading, _ error) {
		f, err := b.Figures(ctx)
		for _, l := range f.Lanes {
			list = append(list, metrics.Reading{Of: tasks, Value: float64(l.Tasks), Labels: []string{l.State, l.Lane}})
		}
		return append(list, one(expired, float64(f.ExpiredLeases)), one(oldest, f.OldestReady.Seconds())), err
	}, tasks, expired, oldest)
}
