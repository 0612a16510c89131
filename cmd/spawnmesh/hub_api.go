package main

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/internal/listener"
)

// An apiChoice is where a hub serves its API to other programs, which is nowhere unless a setting says so.
type apiChoice struct{ listener.Config }

// add adds the flags.
func (c *apiChoice) add(f *pflag.FlagSet) {
	f.StringVar(&c.Address, "api", "", "serve the API to other programs on `ADDRESS`, as in 127.0.0.1:7480; off by default")
	f.StringVar(&c.Cert, "api-cert", "", "`FILE` with the certificate of the API; needed beyond loopback")
	f.StringVar(&c.Key, "api-key", "", "`FILE` with its key, 0600")
	f.StringSliceVar(&c.Hosts, "api-host", nil, "`NAME` by which clients reach the API, besides localhost; may be given again")
	f.IntVar(&c.Connections, "api-connections", listener.DefaultConnections, "at most `N` connections to the API, and half as many of one address")
	f.IntVar(&c.Rate, "api-rate", listener.DefaultRate, "at most `N` requests a second with one token")
	f.IntVar(&c.Open, "api-open", listener.DefaultOpen, "at most `N` requests with one token at a time, streams among them")
}

// check says what is wrong with the choice by itself.
func (c *apiChoice) check() error {
	if c.Address == "" && (c.Cert != "" || c.Key != "" || len(c.Hosts) > 0) {
		return misuse("--api-cert, --api-key and --api-host say how the API is served, and nothing says where").Hinting("add --api ADDRESS, as in --api 127.0.0.1:7480")
	}
	return c.Bounds.Check()
}

// checkFiles says what is wrong with its address and its certificate, as they are on this host.
func (c *apiChoice) checkFiles(log *slog.Logger) error {
	if c.Address == "" {
		return nil
	}
	return c.CheckFiles(log)
}

// look says what is wrong with it on this host.
func (c *apiChoice) look(ctx context.Context, log *slog.Logger) error {
	if c.Address == "" {
		return nil
	}
	return c.Check(ctx, log)
}

// open takes the address; nil where there is none.
func (c *apiChoice) open(ctx context.Context, log *slog.Logger) (*listener.Listener, error) {
	if c.Address == "" {
		return nil, nil
	}
	return listener.Open(ctx, c.Config, log)
}
