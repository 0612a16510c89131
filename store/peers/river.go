package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverWorkers is how many jobs River runs at a time when it is tuned for throughput.
const riverWorkers = 2000

const (
	riverCooldown = 2 * time.Millisecond // between two fetches; River's default is 100 ms
	riverPoll     = 20 * time.Millisecond
)

// A peerRiver is River, tuned for throughput and a short pickup.
type peerRiver struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts only
}

// A riverJob is what River stores of a job, and its name of the kind.
type riverJob job

// Kind is River's name for these jobs.
func (riverJob) Kind() string { return "nothing" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	do func(job)
}

// Work is called by River with each job.
func (w *riverWorker) Work(_ context.Context, j *river.Job[riverJob]) error {
	w.do(job(j.Args))
	return nil
}

func (r *peerRiver) open(ctx context.Context, url string) (about, error) {
	var err error
	if r.pool, err = pool(ctx, url); err != nil {
		return about{}, err
	}
	driver := riverpgxv5.New(r.pool)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: riverLog()})
	if err != nil {
		return about{}, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return about{}, err
	}
	// Inserts tell workers no more often than the inserting client's cooldown.
	r.client, err = river.NewClient(driver, &river.Config{Logger: riverLog(), FetchCooldown: riverCooldown})
	return about{
		Version: versionOf("github.com/riverqueue/river"),
		Settings: "2,000 workers (200 beside a backlog), fetch cooldown 2 ms, poll 20 ms, riverpgxv5, 16 connections; " +
			"many: InsertManyFast",
	}, err
}

func riverLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (r *peerRiver) insert(ctx context.Context, j job) error {
	_, err := r.client.Insert(ctx, riverJob(j), riverOpts(j))
	return err
}

func (r *peerRiver) insertMany(ctx context.Context, jobs []job) error {
	list := make([]river.InsertManyParams, len(jobs))
	for i, j := range jobs {
		list[i] = river.InsertManyParams{Args: riverJob(j), InsertOpts: riverOpts(j)}
	}
	_, err := r.client.InsertManyFast(ctx, list)
	return err
}

func riverOpts(j job) *river.InsertOpts {
	return &river.InsertOpts{Priority: int(priority(j))}
}

// work runs a client of its own until ctx ends: the number of workers is fixed
// when a client is made.
func (r *peerRiver) work(ctx context.Context, slots int, do func(job)) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{do: do})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown:     riverCooldown,
		FetchPollInterval: riverPoll,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		Workers:           workers,
		Logger:            riverLog(),
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return client.Stop(stop)
}

func (r *peerRiver) unfinished(ctx context.Context) (found bool, err error) {
	err = r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM river_job WHERE state = 'running') OR EXISTS (SELECT FROM river_job WHERE state = 'available')`).Scan(&found)
	return found, err
}

func (r *peerRiver) close() { r.pool.Close() }

// versionOf returns the version of a library that this program was built with.
func versionOf(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
