package hub

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/tracing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Defaults and bounds of an order.
const (
	DefaultLife  = 24 * time.Hour // how long a spoke may still start what was ordered
	MaxLife      = 7 * 24 * time.Hour
	DefaultGrace = 10 * time.Second
)

// A SpawnRequest is what an operator asks for.
type SpawnRequest struct {
	ID             string // chosen by the caller, or by the hub
	Spoke          string
	Any            bool
	Spawn          commands.Spawn
	Values         commands.Values // of its variables, files and standard input; as they are only on the way to this hub
	ExpiresInMS    int64
	IdempotencyKey string
	Labels         commands.Labels // no spoke is told
}

// Revealed is r as it is sent to the hub, with its values as they are: r itself does not
// say them.
func (r SpawnRequest) Revealed() api.NewTask {
	s := r.Spawn
	v := api.NewTask{ID: r.ID, IdempotencyKey: r.IdempotencyKey, Spoke: r.Spoke, Any: r.Any, Title: s.Title, Runtime: api.NewTaskRuntime(s.Runtime), Argv: s.Argv, Dir: s.Dir,
		Capabilities: s.Capabilities, Priority: s.Priority, TimeoutMS: s.TimeoutMS, EstimateMS: s.EstimateMS, Review: s.Review, MaxRetries: s.MaxRetries, BackoffMS: s.BackoffMS, OnLoss: api.NewTaskOnLoss(s.OnLoss), ExpiresInMS: r.ExpiresInMS, Labels: api.Labels(r.Labels)}
	values := r.Values
	next := func() (value string) {
		if len(values) > 0 {
			value, values = values[0].Reveal(), values[1:]
		}
		return value
	}
	for _, e := range s.Env {
		v.Env = append(v.Env, api.Variable{Name: e.Name, As: api.VariableAs(e.As), Value: next()})
	}
	for _, f := range s.Files {
		v.Files = append(v.Files, api.InlineFile{Path: f.Path, Exec: f.Exec, Content: []byte(next())})
	}
	if s.Stdin {
		v.Stdin = []byte(next())
	}
	if s.Prompt {
		v.Prompt = []byte(next())
	}
	for _, in := range s.Inputs {
		v.Inputs = append(v.Inputs, api.Input{Kind: api.InputKind(in.Kind), Digest: in.Digest, Size: in.Size, Path: in.Path, Tip: in.Tip, Origin: in.Origin, Exec: in.Exec})
	}
	return v
}

// RequestOf is what was sent.
func RequestOf(v api.NewTask) SpawnRequest {
	r := SpawnRequest{ID: v.ID, Spoke: v.Spoke, Any: v.Any, ExpiresInMS: v.ExpiresInMS, IdempotencyKey: v.IdempotencyKey, Labels: commands.Labels(v.Labels), Spawn: commands.Spawn{Title: v.Title, Runtime: string(v.Runtime), Argv: v.Argv, Dir: v.Dir,
		Capabilities: v.Capabilities, Priority: v.Priority, TimeoutMS: v.TimeoutMS, EstimateMS: v.EstimateMS, Review: v.Review, MaxRetries: v.MaxRetries, BackoffMS: v.BackoffMS, OnLoss: string(v.OnLoss)}}
	for _, e := range v.Env {
		r.Spawn.Env, r.Values = append(r.Spawn.Env, commands.EnvVar{Name: e.Name, As: string(e.As)}), append(r.Values, commands.NewSecret(e.Value))
	}
	for _, f := range v.Files {
		r.Spawn.Files, r.Values = append(r.Spawn.Files, commands.File{Path: f.Path, Exec: f.Exec}), append(r.Values, commands.NewSecret(string(f.Content)))
	}
	if r.Spawn.Stdin = len(v.Stdin) > 0; r.Spawn.Stdin {
		r.Values = append(r.Values, commands.NewSecret(string(v.Stdin)))
	}
	if r.Spawn.Prompt = len(v.Prompt) > 0; r.Spawn.Prompt {
		r.Values = append(r.Values, commands.NewSecret(string(v.Prompt)))
	}
	for _, in := range v.Inputs {
		r.Spawn.Inputs = append(r.Spawn.Inputs, commands.Input{Kind: string(in.Kind), Blob: commands.Blob{Digest: in.Digest, Size: in.Size}, Path: in.Path, Tip: in.Tip, Origin: in.Origin, Exec: in.Exec})
	}
	return r
}

// A SpawnAnswer says what was stored. Existing tells that it was there before.
type SpawnAnswer struct {
	ID       string `json:"id"`
	ShortID  string `json:"short_id"`
	Spoke    string `json:"spoke"`
	Existing bool   `json:"existing,omitempty"`
	Note     string `json:"note,omitempty"` // what keeps the order from its spoke now; "" = nothing that is known
}

// Spawn stores an order and returns when it cannot be lost any more.
func (h *Hub) Spawn(ctx context.Context, r SpawnRequest, actor string) (SpawnAnswer, error) {
	order, err := h.orderOf(ctx, r, actor)
	if err != nil {
		return SpawnAnswer{}, err
	}
	o, err := h.submit(ctx, order)
	if err != nil {
		return SpawnAnswer{}, err
	}
	a := SpawnAnswer{ID: o.Task, ShortID: commands.ShortID(o.Task), Spoke: o.Spoke, Existing: o.Existing}
	if s, known := h.board.Status(order.Conn); known && !o.Existing && !order.Anywhere {
		a.Note = ungiven(s)
	}
	return a, nil
}

// orderOf checks a request, and says where it may go.
func (h *Hub) orderOf(ctx context.Context, r SpawnRequest, actor string) (order store.SpawnOrder, err error) {
	if r.Spawn.Task = r.ID; r.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return order, err
		}
		r.Spawn.Task = id.String()
	}
	h.demand(&r.Spawn)
	r.Spawn.Trace = h.trace(ctx)
	if err := r.Check(); err != nil { // of all that is sent, the trace with it
		return order, err
	}
	order = store.SpawnOrder{Spawn: &r.Spawn, Values: r.Values, Life: r.life(), IdempotencyKey: r.IdempotencyKey, Labels: r.Labels, Actor: actor}
	return order, h.address(&order, r)
}

// trace is what an order belongs to: a span of this hub, or where it tells none, that of who asks.
func (h *Hub) trace(ctx context.Context) string {
	parent := tracing.ParentOf(ctx)
	if !h.Tracer.On() {
		return parent
	}
	return tracing.Begin(parent)
}

// submit stores an order, and tells how long that took.
func (h *Hub) submit(ctx context.Context, order store.SpawnOrder) (store.Ordered, error) {
	from := time.Now()
	o, err := h.orders.Submit(ctx, order)
	if err == nil && o.Err != nil {
		err = o.Err
	}
	if err == nil && !o.Existing {
		h.Tracer.Tell(tracing.Span{Name: "order", Self: order.Spawn.Trace, Parent: tracing.ParentOf(ctx), From: from, To: time.Now(),
			About: []string{"task", o.Task, "spoke", o.Spoke}})
	}
	return o, err
}

// Check checks what can be seen of r alone: no spoke and no hub is asked. The error is a [*commands.Refused].
func (r *SpawnRequest) Check() error {
	life := r.life()
	switch {
	case life < time.Second || life > MaxLife:
		return commands.Refuse(commands.Validation, "an order may be started for 1s to 7d, not %s", commands.Lasting(life))
	case len(r.IdempotencyKey) > 256:
		return commands.Refuse(commands.Validation, "the idempotency key is longer than 256 bytes")
	case r.Spoke != "" && r.Any:
		return commands.Refuse(commands.Validation, "give a spoke or any, not both")
	}
	if err := r.Labels.Check(); err != nil {
		return err
	}
	if err := r.Spawn.ValidateOrder(); err != nil {
		return err
	}
	if r.Spawn.Sealed != nil {
		return commands.Refuse(commands.Validation, "the hub seals the values of an order itself: give them under values")
	}
	if err := r.Spawn.CheckValues(r.Values); err != nil {
		return err
	}
	return r.Spawn.CheckSize(r.Values) // else it would stop all orders of its round
}

// life is how long a spoke may still start what is ordered.
func (r *SpawnRequest) life() time.Duration {
	if r.ExpiresInMS != 0 {
		return time.Duration(r.ExpiresInMS) * time.Millisecond
	}
	return DefaultLife
}

// demand adds what every spoke must have that runs this: what this hub demands of one that starts a program for
// it, and that it takes what the order brings.
func (h *Hub) demand(s *commands.Spawn) {
	var list []string
	if s.Runtime == commands.RuntimeExec {
		list = commands.IsolationCapabilities(h.Isolation)
	}
	for _, b := range brings {
		if b.some(s) {
			list = append(list, b.capability)
		}
	}
	for _, c := range list {
		if !slices.Contains(s.Capabilities, c) {
			s.Capabilities = append(s.Capabilities, c)
		}
	}
}

// orderAll is one round of the order group, in one transaction.
func (h *Hub) orderAll(ctx context.Context, orders []store.SpawnOrder) ([]store.Ordered, error) {
	// The callers may have left; what they were promised is decided here.
	list, err := h.DB.OrderSpawns(context.WithoutCancel(ctx), orders)
	if err == nil {
		h.noteOrders(ctx, list)
	}
	return list, err
}

// address says where an order may go: to the named spoke, to the only one there
// is, or to any that can run it.
func (h *Hub) address(o *store.SpawnOrder, r SpawnRequest) error {
	switch {
	case r.Spoke != "":
		s, err := h.findSpoke(r.Spoke)
		if err == nil {
			err = takes(s, o.Spawn)
		}
		o.Conn = s.ID
		return err
	case r.Any:
		o.Anywhere = true
		o.Among, o.Nowhere = h.candidates(o.Spawn)
		return nil
	}
	only, err := h.onlySpoke()
	if err != nil {
		return err
	}
	o.Conn = only.ID
	return takes(only, o.Spawn)
}

// onlySpoke is the one that an order goes to that names none.
func (h *Hub) onlySpoke() (federation.Status, error) {
	open := slices.DeleteFunc(h.board.Statuses(store.Commands), func(s federation.Status) bool { return s.State.Ended() })
	active := slices.DeleteFunc(slices.Clone(open), func(s federation.Status) bool { return s.State != store.Active })
	switch {
	case len(active) == 1:
		return active[0], nil
	case len(open) == 0:
		return federation.Status{}, commands.Refuse(commands.Validation, "this hub has no spoke that could take the order").Hinting("invite one").Running("invite", "--name", "NAME")
	case len(open) == 1:
		return federation.Status{}, commands.Refuse(commands.Validation, "the only spoke, %s, is %s", open[0].Name, open[0].State).
			Hinting("name it with --spoke %s and the order waits; what to do about it", open[0].Name).Running("why", open[0].Name)
	}
	return federation.Status{}, commands.Refuse(commands.Validation, "the order names no spoke, and this hub has %d", len(open)).
		Hinting("name one with --spoke NAME, or let the hub choose with --any")
}

// A bring is what an order may bring that not every spoke takes, with the capability of those that do.
type bring struct {
	capability string
	some       func(*commands.Spawn) bool
	none       string // what others take
	allow      string // what its host can do
}

var brings = []bring{
	{commands.InlineFiles, (*commands.Spawn).Inline, "no files and no standard input with an order",
		"the host of a spoke allows them with inline_files: true in its policy.yaml, from the version on that knows this"},
	{commands.InputsTaken, func(s *commands.Spawn) bool { return len(s.Inputs) > 0 }, "no inputs of an order",
		"the host of a spoke allows inputs with max_input_bytes in its policy.yaml, from the version on that fetches them"},
	{commands.ReviewTaken, func(s *commands.Spawn) bool { return s.Review }, "no order whose work is reviewed",
		"it does from the version on that knows this"},
}

// takes refuses what a spoke is known not to take: one of an older version cannot even read the order, and
// would count it as a bad message.
func takes(s federation.Status, spawn *commands.Spawn) error {
	for _, b := range brings {
		if b.some(spawn) && s.Beat != nil && !slices.Contains(s.Beat.Body.Capabilities, b.capability) {
			return commands.Refuse(commands.Capability, "spoke %s takes %s", s.Name, b.none).Hinting("%s", b.allow)
		}
	}
	if unreviewed(s, spawn) {
		return commands.Refuse(commands.Grant, "spoke %s takes no reviews of this hub: what the agent delivers would wait for one for good", s.Name).
			Hinting("its host allows them by the kind %s in the grant of this hub; which ones it allows now", commands.ReviewKind).Running("why", s.Name)
	}
	return nil
}

// unreviewed reports whether the work of an order is to be reviewed, and the grant at its spoke is known to allow no review.
func unreviewed(s federation.Status, spawn *commands.Spawn) bool {
	return spawn.Review && s.Beat != nil && slices.ContainsFunc(s.Beat.Body.Declines, func(d commands.Decline) bool {
		return d.Code == commands.DeclinesKind && d.What == string(commands.ReviewKind)
	})
}
