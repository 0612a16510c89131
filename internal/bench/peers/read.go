package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/bench/record"
	"github.com/spawnmesh/spawnmesh/internal/fleet"
)

// A question is what is asked of both hubs.
type question struct {
	Name  string    `json:"name"`
	Small quantiles `json:"small"`
	Large quantiles `json:"large"`
	P50   float64   `json:"p50_ratio"` // of the larger to the smaller
	P99   float64   `json:"p99_ratio"`

	path  func(*size) string // of one request for it
	short bool               // it takes so little that its 99th percentile is the scheduler's, unless it is asked ten times as often
}

type quantiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// A size is what a hub knows of.
type size struct {
	Ended   int `json:"ended"`
	Running int `json:"running"`

	mesh *fleet.Mesh
	next string // of its last answer
}

// A readResult is a whole run.
type readResult struct {
	record.Origin
	Asked     int         `json:"asked"` // each question, at each hub; what is short ten times as often
	Small     size        `json:"small"`
	Large     size        `json:"large"`
	Questions []*question `json:"questions"`
}

// read measures what people and programs ask of two hubs that differ in how much they know.
func read(ctx context.Context, o options) (err error) {
	r := readResult{Origin: record.Here(), Asked: o.count, Small: size{Ended: o.history / 100, Running: max(o.running/100, 100)}, Large: size{Ended: o.history, Running: o.running}}
	for _, s := range []*size{&r.Small, &r.Large} {
		s.mesh, err = hubWithHistory(ctx, o.bin, s.Ended, s.Running)
		if s.mesh != nil {
			defer func() { _ = s.mesh.Stop(context.WithoutCancel(ctx)) }()
		}
		if err != nil {
			return err
		}
	}
	for _, q := range questions {
		if err := q.ask(ctx, &r.Small, &r.Large, o.count); err != nil {
			return fmt.Errorf("asking for %s: %w", q.Name, err)
		}
		fmt.Printf("%-26s %6.2f / %6.2f ms at the smaller hub, %6.2f / %6.2f ms at the larger one: %.2f / %.2f\n", q.Name, q.Small.P50, q.Small.P99, q.Large.P50, q.Large.P99, q.P50, q.P99)
	}
	r.Questions = questions
	return record.Write(o.json, r)
}

var questions = []*question{
	{Name: "one that has ended", short: true, path: func(s *size) string { return "/api/v1/tasks/" + task(1+rand.IntN(s.Ended)) }},
	{Name: "one that runs", short: true, path: func(s *size) string { return "/api/v1/tasks/" + task(s.Ended+1+rand.IntN(s.Running)) }},
	{Name: "the 100 newest", path: func(*size) string { return "/api/v1/tasks?limit=100" }},
	{Name: "page after page of 100", path: func(s *size) string { return "/api/v1/tasks?limit=100&cursor=" + url.QueryEscape(s.next) }},
	{Name: "the 100 newest that run", path: func(*size) string { return "/api/v1/tasks?limit=100&open=true" }},
	{Name: "100 that run, by label", path: func(*size) string { return "/api/v1/tasks?limit=100&open=true&labels=team%3Dred" }},
}

// task is the id of the n-th agent of a hub.
func task(n int) string { return fmt.Sprintf("01900000-0000-7000-8000-%012x", n) }

// ask asks so often at each hub, one after the other, in turns. The first tenth warms up.
func (q *question) ask(ctx context.Context, small, large *size, count int) error {
	if q.short {
		count *= 10
	}
	took := map[*size][]float64{}
	for i := -count / 10; i < count; i++ {
		for _, s := range []*size{small, large} {
			began := time.Now()
			var answer struct{ Next string }
			if err := s.mesh.Ctl.Do(ctx, "GET", q.path(s), nil, &answer); err != nil {
				return err
			}
			if i >= 0 {
				took[s] = append(took[s], float64(time.Since(began).Microseconds())/1000)
			}
			s.next = answer.Next
		}
	}
	q.Small, q.Large = quantilesOf(took[small]), quantilesOf(took[large])
	q.P50, q.P99 = q.Large.P50/q.Small.P50, q.Large.P99/q.Small.P99
	return nil
}

func quantilesOf(times []float64) quantiles {
	return quantiles{P50: quantile(times, 0.5), P99: quantile(times, 0.99)}
}
