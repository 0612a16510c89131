package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Roles are all of them. None includes another one, but [Owner].
var Roles = []Role{Viewer, Operator, Worker, FederationAdmin, Owner}

// Everywhere is the workspace of who may ask in every one, and about the instance itself.
const Everywhere = "*"

// nobody is the role of who has not said who it is.
const nobody Role = ""

var (
	anybody     = []Role{nobody, Viewer, Operator, Worker, FederationAdmin}
	anyRole     = anybody[1:]
	readers     = []Role{Viewer, Operator}
	watchers    = []Role{Viewer, Operator, FederationAdmin}
	operators   = []Role{Operator}
	workers     = []Role{Worker}
	handlers    = []Role{Operator, Worker} // of tasks; a worker of those that it has claimed
	admins      = []Role{FederationAdmin}
	ownersAlone = []Role{}
)

// may names the roles for each operation of the document, by its method and path; [Owner] has every
// one that is named. What is not named is not there.
var may = map[string][]Role{
	"GET /healthz":      anybody,
	"GET /readyz":       anybody,
	"GET /openapi.json": anyRole,
	"GET /metrics":      watchers,
	"GET /instance":     watchers,

	"GET /connections":                       watchers,
	"GET /connections/{connection}":          watchers,
	"POST /connections/{connection}/suspend": admins,
	"POST /connections/{connection}/resume":  admins,
	"POST /connections/{connection}/revoke":  admins,
	"POST /connections/{connection}/resync":  admins,
	"PATCH /connections/{connection}/grant":  ownersAlone,

	"GET /tasks":                readers,
	"POST /tasks":               operators,
	"POST /blobs":               operators,
	"GET /tasks/{task}":         readers,
	"POST /tasks/kill":          operators,
	"POST /tasks/{task}/kill":   operators,
	"POST /tasks/{task}/cancel": operators,
	"POST /tasks/{task}/pause":  operators,
	"POST /tasks/{task}/resume": operators,
	"POST /tasks/{task}/retry":  operators,
	"POST /tasks/{task}/review": operators,
	"POST /tasks/{task}/ask":    operators,
	"GET /tasks/{task}/why":     readers,
	"GET /tasks/{task}/result":  readers,
	"GET /tasks/{task}/work":    operators,
	"GET /tasks/{task}/logs":    operators,

	"GET /tasks/{task}/progress": operators,

	"POST /tasks/archive":          operators,
	"POST /tasks/{task}/archive":   operators,
	"POST /tasks/{task}/unarchive": operators,
	"POST /tasks/{task}/labels":    operators,

	"GET /questions":                    operators,
	"GET /questions/{question}":         operators,
	"POST /questions/{question}/answer": operators,

	"POST /workspaces/{workspace}/tasks/{task}/pause":  operators,
	"POST /workspaces/{workspace}/tasks/{task}/resume": operators,

	"POST /workspaces/{workspace}/tasks/archive":          operators,
	"POST /workspaces/{workspace}/tasks/{task}/archive":   operators,
	"POST /workspaces/{workspace}/tasks/{task}/unarchive": operators,

	"GET /schedules":                  readers,
	"POST /schedules":                 operators,
	"GET /schedules/{schedule}":       readers,
	"PATCH /schedules/{schedule}":     operators,
	"DELETE /schedules/{schedule}":    operators,
	"POST /schedules/{schedule}/run":  operators,
	"GET /schedules/{schedule}/fires": readers,

	"GET /webhooks":                                         ownersAlone,
	"POST /webhooks":                                        ownersAlone,
	"GET /webhooks/{webhook}":                               ownersAlone,
	"PATCH /webhooks/{webhook}":                             ownersAlone,
	"DELETE /webhooks/{webhook}":                            ownersAlone,
	"POST /webhooks/{webhook}/test":                         ownersAlone,
	"POST /webhooks/{webhook}/rotate":                       ownersAlone,
	"GET /webhooks/{webhook}/deliveries":                    ownersAlone,
	"POST /webhooks/{webhook}/deliveries/{delivery}/resend": ownersAlone,

	"GET /events": readers,

	"GET /workspaces": readers,

	"GET /workspaces/{workspace}/tasks":                  readers,
	"POST /workspaces/{workspace}/tasks":                 operators,
	"GET /workspaces/{workspace}/tasks/{task}":           readers,
	"GET /workspaces/{workspace}/tasks/{task}/why":       readers,
	"POST /workspaces/{workspace}/tasks/{task}/complete": handlers,
	"POST /workspaces/{workspace}/tasks/{task}/fail":     handlers,
	"POST /workspaces/{workspace}/tasks/{task}/release":  handlers,
	"POST /workspaces/{workspace}/tasks/{task}/block":    handlers,
	"POST /workspaces/{workspace}/tasks/{task}/renew":    handlers,
	"POST /workspaces/{workspace}/tasks/{task}/unblock":  operators,
	"POST /workspaces/{workspace}/tasks/{task}/cancel":   operators,
	"POST /workspaces/{workspace}/tasks/{task}/retry":    operators,
	"POST /workspaces/{workspace}/tasks/{task}/reclaim":  operators,
	"POST /workspaces/{workspace}/tasks/{task}/link":     operators,
	"POST /workspaces/{workspace}/tasks/{task}/unlink":   operators,
	"POST /workspaces/{workspace}/claim":                 workers,
	"POST /workspaces/{workspace}/reclaim":               operators,
	"GET /workspaces/{workspace}/stats":                  readers,
	"GET /workspaces/{workspace}/audit":                  readers,
	"POST /workspaces/{workspace}/grants/verify":         handlers,
	"POST /workspaces/{workspace}/grants/rotate":         ownersAlone,

	"GET /workspaces/{workspace}/messages":                                   operators,
	"POST /workspaces/{workspace}/messages":                                  handlers,
	"GET /workspaces/{workspace}/messages/{message}":                         operators,
	"GET /workspaces/{workspace}/readers":                                    operators,
	"POST /workspaces/{workspace}/readers/{reader}/poll":                     handlers,
	"POST /workspaces/{workspace}/readers/{reader}/ack":                      handlers,
	"DELETE /workspaces/{workspace}/readers/{reader}":                        operators,
	"GET /workspaces/{workspace}/dead-letters":                               operators,
	"POST /workspaces/{workspace}/readers/{reader}/dead-letters/{seq}/retry": operators,
	"DELETE /workspaces/{workspace}/readers/{reader}/dead-letters/{seq}":     operators,

	"GET /workspaces/{workspace}/budgets":                  readers,
	"POST /workspaces/{workspace}/budgets":                 ownersAlone,
	"GET /workspaces/{workspace}/budgets/{budget}":         readers,
	"POST /workspaces/{workspace}/budgets/{budget}/grant":  ownersAlone,
	"POST /workspaces/{workspace}/budgets/{budget}/reset":  ownersAlone,
	"POST /workspaces/{workspace}/budgets/{budget}/remove": ownersAlone,
	"GET /workspaces/{workspace}/quotas":                   readers,
	"POST /workspaces/{workspace}/quotas":                  ownersAlone,
	"GET /workspaces/{workspace}/quotas/{quota}":           readers,
	"POST /workspaces/{workspace}/quotas/{quota}/remove":   ownersAlone,
	"GET /workspaces/{workspace}/lanes":                    readers,
	"PATCH /workspaces/{workspace}/lanes/{lane}":           operators,
	"GET /workspaces/{workspace}/freezes":                  readers,
	"POST /workspaces/{workspace}/freezes":                 operators,
	"POST /workspaces/{workspace}/freezes/lift":            operators,

	"GET /retention":          watchers,
	"PATCH /retention/{kind}": ownersAlone,

	"POST /policy/reload": ownersAlone,

	"GET /keys":         watchers,
	"POST /keys/rotate": ownersAlone,
	"POST /keys/revoke": ownersAlone,

	"GET /invites":                  admins,
	"POST /invites":                 admins,
	"POST /invites/{invite}/revoke": admins,

	"GET /tokens":                  ownersAlone,
	"POST /tokens":                 ownersAlone,
	"POST /tokens/{token}/confirm": ownersAlone,
	"POST /tokens/{token}/revoke":  ownersAlone,

	"GET /audit":             watchers,
	"GET /audit/checkpoint":  watchers,
	"GET /audit/checkpoints": watchers,
	"GET /audit/leaves":      operators,
}

// An Access is what somebody may ask: as a role, in a workspace. The zero value is that of who has
// not said who it is.
type Access struct {
	Role      Role
	Workspace string // or Everywhere
}

// A Denial says why an access does not suffice.
type Denial int

// What may be wrong with an access.
const (
	Granted         Denial = iota
	Anonymous              // it has to be said who asks
	NotForRole             // others may ask that
	NotForWorkspace        // it is about the whole instance
	OutOfSight             // it is about another workspace
)

// Denies says whether the access suffices for a request, by the pattern of its route, which is empty where there is none,
// and its path as it was sent.
func (a Access) Denies(pattern, path string) Denial {
	operation := strings.Replace(pattern, " "+Base, " ", 1)
	roles, there := may[operation]
	switch {
	case slices.Contains(roles, nobody):
		return Granted
	case a.Role == nobody:
		return Anonymous
	case pattern == "":
		return Granted // it is not there for anybody
	case !there || a.Role != Owner && !slices.Contains(roles, a.Role):
		return NotForRole
	case a.Workspace == Everywhere || operation == "GET /openapi.json":
		return Granted
	}
	return a.deniesWorkspace(operation, path)
}

// ForAnybody reports whether anybody may make a request, whoever it is.
func ForAnybody(r *http.Request) bool {
	return reads(r) && slices.Contains(may["GET "+r.URL.Path], nobody)
}

// inWorkspace is where paths of one workspace begin. Its name is the next part of them.
const inWorkspace = "/workspaces/{workspace}"

// rotateGrantKey changes the key that signs the claims of all workspaces.
const rotateGrantKey = "POST " + inWorkspace + "/grants/rotate"

func (a Access) deniesWorkspace(operation, path string) Denial {
	_, route, _ := strings.Cut(operation, " ")
	if route != inWorkspace && !strings.HasPrefix(route, inWorkspace+"/") {
		return NotForWorkspace
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(path, Base+"/workspaces/"), "/")
	switch {
	case name != a.Workspace: // no name of a workspace has a character that is written in two ways
		return OutOfSight
	case operation == rotateGrantKey:
		return NotForWorkspace
	}
	return Granted
}

// CheckRole refuses what is no role.
func CheckRole(r Role) error {
	if slices.Contains(Roles, r) {
		return nil
	}
	return fmt.Errorf("there is no role %q", r)
}
