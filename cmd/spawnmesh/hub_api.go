package main

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/internal/listener"
)

// An apiChoice is where a hub serves its API to other programs, which is nowhere unless a flag says so, or a variable of
// the environment.
type apiChoice struct{ listener.Config }

// add adds the flags.
func (c *apiChoice) add(f *pflag.FlagSet) {
	f.StringVar(&c.Address, "api", "", "serve the API to other programs on `ADDRESS`, as in 127.0.0.1:7480; off by default ($SPAWNMESH_API)")
	f.StringVar(&c.Cert, "api-cert", "", "`FILE` with the certificate of the API; needed beyond loopback ($SPAWNMESH_API_CERT)")
	f.StringVar(&c.Key, "api-key", "", "`FILE` with its key, 0600 ($SPAWNMESH_API_KEY)")
	f.StringSliceVar(&c.Hosts, "api-host", nil, "`NAME` by which clients reach the API, besides localhost; may be given again ($SPAWNMESH_API_HOST)")
}

// check completes the choice, and says what is wrong with it.
func (c *apiChoice) check(ctx context.Context, a *app, log *slog.Logger) error {
	c.Address = cmp.Or(c.Address, a.getenv("SPAWNMESH_API"))
	c.Cert, c.Key = cmp.Or(c.Cert, a.getenv("SPAWNMESH_API_CERT")), cmp.Or(c.Key, a.getenv("SPAWNMESH_API_KEY"))
	if v := a.getenv("SPAWNMESH_API_HOST"); len(c.Hosts) == 0 && v != "" {
		c.Hosts = strings.Split(v, ",")
	}
	if c.Address != "" {
		return c.Check(ctx, log)
	}
	if c.Cert != "" || c.Key != "" || len(c.Hosts) > 0 {
		return misuse("--api-cert, --api-key and --api-host say how the API is served, and nothing says where").Hinting("add --api ADDRESS, as in --api 127.0.0.1:7480")
	}
	return nil
}

// open takes the address; nil where there is none.
func (c *apiChoice) open(ctx context.Context, log *slog.Logger) (*listener.Listener, error) {
	if c.Address == "" {
		return nil, nil
	}
	return listener.Open(ctx, c.Config, log)
}
