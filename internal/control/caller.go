package control

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
)

type callerKey struct{}

// A Principal is who makes a request, and what it may ask. The zero value is unknown; no handler under [Serve]
// sees that.
type Principal struct {
	name   string
	access api.Access
	agent  bool  // it is a process of an agent that is run here
	untold error // why it is not known whether it is
}

// user is who has a user of this host that owns the instance.
func user(uid int) Principal {
	return Principal{name: "uid:" + strconv.Itoa(uid), access: api.Access{Role: api.Owner, Workspace: api.Everywhere}}
}

// Holder is who has shown the token with a name.
func Holder(name string, access api.Access) Principal {
	return Principal{name: "token:" + name, access: access}
}

// String names the principal as the audit does: "uid:1000", "token:ci".
func (p Principal) String() string {
	if p.name == "" {
		return "unknown"
	}
	return p.name
}

// Known reports whether it is known who asks.
func (p Principal) Known() bool { return p.name != "" }

// SeesContent reports whether the principal sees what agents were given and what they wrote.
func (p Principal) SeesContent() bool {
	return p.access.Role == api.Owner || p.access.Role == api.Operator
}

// IsOwner reports whether the principal may do everything, and give anybody a right.
func (p Principal) IsOwner() bool { return p.access.Role == api.Owner }

// NeedsFence reports whether the principal speaks of tasks that it has claimed, and of no others.
func (p Principal) NeedsFence() bool { return p.access.Role == api.Worker }

// Everywhere reports whether the principal may ask in every workspace, and about the whole instance.
func (p Principal) Everywhere() bool { return p.access.Workspace == api.Everywhere }

// WithCaller is ctx of a request that p makes.
func WithCaller(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, callerKey{}, p)
}

// Caller returns who makes the request.
func Caller(r *http.Request) Principal { return CallerOf(r.Context()) }

// CallerOf returns who makes the request of a context.
func CallerOf(ctx context.Context) Principal {
	p, _ := ctx.Value(callerKey{}).(Principal)
	return p
}

// May refuses a request for the route of a pattern that its caller may not make. It is for [api.Serve].
func May(r *http.Request, pattern string) error {
	p := Caller(r)
	asked := r.Method + " " + r.URL.Path
	switch p.access.Denies(pattern, r.URL.EscapedPath()) {
	case api.Granted:
		return nil
	case api.Anonymous:
		return commands.Refuse(commands.Unauthenticated, "%s needs a token", asked).Hinting("send one in the header: Authorization: Bearer smt_...; an owner makes one with: spawnmesh token create --name NAME --role ROLE --workspace WORKSPACE")
	case api.OutOfSight:
		return commands.Refuse(commands.NotFound, "there is no such workspace").Hinting("the token is for the workspace %s", p.access.Workspace)
	case api.NotForWorkspace:
		return commands.Refuse(commands.Forbidden, "%s is about the whole instance, and %s is for the workspace %s", asked, p, p.access.Workspace).Hinting("use a token that was made with --workspace '*'")
	}
	return commands.Refuse(commands.Forbidden, "%s is not for the role %s, which %s has", asked, p.access.Role, p).Hinting("use a token with another role; docs/operating.md has a table of them")
}
