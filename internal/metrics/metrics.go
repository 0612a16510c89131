package metrics

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Registry is what one instance exports.
type Registry struct {
	Counters     *Counters
	http.Handler // writes all metrics

	all    *prometheus.Registry
	groups []*group
}

// New returns a registry with the counters, the Go runtime and the process.
func New(words Words) *Registry {
	all := prometheus.NewRegistry()
	all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Who reads is on this host, and the text is small: it is not compressed.
	h := promhttp.HandlerFor(all, promhttp.HandlerOpts{DisableCompression: true, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
	r := &Registry{all: all, Counters: newCounters(all, words), Handler: h}
	all.MustRegister(r.looks())
	return r
}

// A Kind says whether a figure only grows.
type Kind = prometheus.ValueType

// The kinds of figures.
const (
	Gauge   = prometheus.GaugeValue
	Counter = prometheus.CounterValue
)

// A Figure is a metric that is read where it stands.
type Figure struct {
	desc *prometheus.Desc
	kind Kind
}

// NewFigure describes a metric. Names are the product's own, without its prefix.
func NewFigure(name, help string, kind Kind, labels ...string) Figure {
	return Figure{prometheus.NewDesc(prefix+name, help, labels, nil), kind}
}

// A Reading is the value of a figure, with the values of its labels. Two of one group that
// are alike are a defect, and fail the group.
type Reading struct {
	Of     Figure
	Value  float64
	Labels []string
}

// A group is figures that are read together, for whoever asks within fresh once.
type group struct {
	name    string
	figures []Figure
	timeout time.Duration
	fresh   time.Duration
	read    func(ctx context.Context) ([]Reading, error)

	mu   sync.Mutex // held while it is read: who asks meanwhile takes what comes of it
	at   time.Time
	last []Reading
	err  error
}

// Group adds figures that read returns the values of. It is given timeout, and what it returned
// is good for fresh. While it fails its figures are missing, which spawnmesh_group_read says.
func (r *Registry) Group(name string, timeout, fresh time.Duration, read func(ctx context.Context) ([]Reading, error), figures ...Figure) {
	g := &group{name: name, figures: figures, timeout: timeout, fresh: fresh, read: read}
	r.groups = append(r.groups, g)
	r.all.MustRegister(g)
}

// Describe implements [prometheus.Collector].
func (g *group) Describe(to chan<- *prometheus.Desc) {
	for _, f := range g.figures {
		to <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (g *group) Collect(to chan<- prometheus.Metric) {
	list, err := g.now()
	if err != nil {
		return
	}
	for _, v := range list {
		to <- prometheus.MustNewConstMetric(v.Of.desc, v.Of.kind, v.Value, v.Labels...)
	}
}

func (g *group) now() ([]Reading, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() || time.Since(g.at) >= g.fresh {
		ctx, done := context.WithTimeout(context.Background(), g.timeout)
		defer done()
		g.last, g.err = g.read(ctx)
		g.at = time.Now() // a database that does not answer is not asked all the time
	}
	return g.last, g.err
}

// looks says of each group whether it could be read.
func (r *Registry) looks() prometheus.Collector {
	return readable{r, NewFigure("group_read", "Whether this group of metrics could be read (1), or is missing (0).", Gauge, "group")}
}

type readable struct {
	r *Registry
	f Figure
}

// Describe implements [prometheus.Collector].
func (c readable) Describe(to chan<- *prometheus.Desc) { to <- c.f.desc }

// Collect implements [prometheus.Collector].
func (c readable) Collect(to chan<- prometheus.Metric) {
	for _, g := range c.r.groups {
		_, err := g.now()
		to <- prometheus.MustNewConstMetric(c.f.desc, c.f.kind, Bool(err == nil), g.name)
	}
}

// Bool is 1 for true.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
