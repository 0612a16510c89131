package door

import (
	"cmp"
	"net/http"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/store/backlog"
)

func (d *Door) show(r *http.Request) (Attempt, error) {
	f := d.room.Fence
	a := Attempt{Task: f.Task, ShortID: commands.ShortID(f.Task), Attempt: f.Attempt}
	if !d.room.Deadline.IsZero() {
		a.Deadline = &d.room.Deadline
	}
	var err error
	a.Questions, err = d.room.Backlog.Questions(r.Context(), f.Task)
	return a, err
}

// heartbeat notes that the agent lives. Its lease does not need that: the supervisor renews it.
func (d *Door) heartbeat(r *http.Request, _ struct{}) (Noted, error) {
	at, err := d.room.Backlog.Heard(r.Context(), d.room.Fence)
	return Noted{at}, err
}

func (d *Door) progress(r *http.Request, p commands.Progress) (Noted, error) {
	if err := d.hideIn(r.Context(), p.Validate, nil, &p.Unit, &p.Step); err != nil {
		return Noted{}, err
	}
	step, err := d.room.Backlog.SayProgress(r.Context(), d.room.Fence, p)
	if err == nil && d.room.Progressed != nil {
		d.room.Progressed(step)
	}
	return Noted{step.At}, err
}

// checkpoint keeps the body as it is.
func (d *Door) checkpoint(w http.ResponseWriter, r *http.Request) {
	b := bodyOf(w, r, MaxCheckpoint)
	at, err := d.room.KeepData(r.Context(), b)
	b.end()
	answer(w, r, Noted{at}, cmp.Or(b.wrong(err), err))
}

// A Session is one of the runtime of an agent.
type Session struct {
	ID string `json:"session"`
}

func (d *Door) session(r *http.Request, s Session) (Noted, error) {
	fits := func() error { return backlog.CheckSession(s.ID) }
	if err := d.hideIn(r.Context(), fits, nil, &s.ID); err != nil {
		return Noted{}, err
	}
	at, err := d.room.KeepSession(r.Context(), s.ID)
	return Noted{at}, err
}
