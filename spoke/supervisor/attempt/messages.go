package attempt

import (
	"time"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// A Request is what a spoke asks of a shim. There is no answer; what comes of
// it is reported.
type Request struct {
	Renew Instant // the new deadline; 0 = the present one
	Kill  *KillOrder
	Pause *bool // whether it is to stand still
}

// A KillOrder asks a shim to end its tree.
type KillOrder struct {
	Reason string
	Grace  time.Duration
}

// A Report is what a shim tells: one field is set.
type Report struct {
	Running *Running
	Failed  *StartError
	Exit    []byte // a record; with survivors the attempt is not over
}

// Running proves that the agent was executed.
type Running struct {
	Pid       int
	StartedAt time.Time
	Begun     Instant // the same, by the clock that never jumps
	Level     string
	Unlimited string
	Shim      int
	Cgroup    string
	Pause     Pause
}

// A Pause says whether a tree stands still, and for how long it did.
type Pause struct {
	Since   Instant       // it does; 0 = it does not
	Stood   time.Duration // in all, before
	Partly  bool          // some of it may run all the same
	Problem string        // that keeps it from going on; "" = none
}

// Total is for how long the tree has stood still until now.
func (p Pause) Total(now Instant) time.Duration {
	if p.Since == 0 {
		return p.Stood
	}
	return p.Stood + now.Sub(p.Since)
}

// SendAttempt tells a shim what to run.
func (c *Conn) SendAttempt(a Attempt, within time.Duration) error {
	var w writer
	w.text(a.Marker)
	w.texts(a.Argv)
	w.texts(a.Env)
	w.texts(a.Secrets)
	w.text(a.Dir)
	w.text(a.Token)
	for _, n := range []int64{int64(a.Timeout), int64(a.Grace), a.OutputCap, int64(a.Deadline), int64(a.Slack)} {
		w.number(n)
	}
	w.limits(a.Limits)
	w.texts(a.Counted.Dirs)
	w.texts(a.Counted.Shared)
	w.flag(a.NoCgroup)
	w.confine(a.Confine)
	return c.send(kindAttempt, w, within)
}

// ReceiveAttempt is the other side of SendAttempt.
func (c *Conn) ReceiveAttempt() (Attempt, error) {
	body, err := c.expect(kindAttempt, MaxAttempt)
	if err != nil {
		return Attempt{}, err
	}
	r := reader{rest: body}
	a := Attempt{Spec: Spec{Marker: r.text(), Argv: r.texts(), Env: r.texts(), Secrets: r.texts(), Dir: r.text()}, Token: r.text()}
	a.Timeout, a.Grace, a.OutputCap = time.Duration(r.number()), time.Duration(r.number()), r.number()
	a.Deadline, a.Slack = Instant(r.number()), time.Duration(r.number())
	a.Limits = r.limits()
	a.Counted = Counted{Dirs: r.texts(), Shared: r.texts()}
	a.NoCgroup = r.flag()
	a.Confine = r.confine()
	if len(a.Argv) == 0 {
		r.bad = true
	}
	return a, plain.Wrap("receiving an attempt", r.end())
}

// SendRequest asks something of a shim.
func (c *Conn) SendRequest(q Request) error {
	var w writer
	w.number(int64(q.Renew))
	w.flag(q.Kill != nil)
	if q.Kill != nil {
		w.text(q.Kill.Reason)
		w.number(int64(q.Kill.Grace))
	}
	w.flag(q.Pause != nil)
	if q.Pause != nil {
		w.flag(*q.Pause)
	}
	return c.send(kindRequest, w, sendTime)
}

// ReceiveRequest is the other side of SendRequest.
func (c *Conn) ReceiveRequest() (Request, error) {
	body, err := c.expect(kindRequest, MaxMessage)
	if err != nil {
		return Request{}, err
	}
	r := reader{rest: body}
	q := Request{Renew: Instant(r.number())}
	if r.flag() {
		q.Kill = &KillOrder{Reason: r.text(), Grace: time.Duration(r.number())}
	}
	if r.flag() {
		on := r.flag()
		q.Pause = &on
	}
	if err := r.end(); err != nil {
		return Request{}, plain.Wrap("receiving a request", err)
	}
	return q, nil
}

// SendReport tells a spoke.
func (c *Conn) SendReport(r Report) error {
	var w writer
	switch {
	case r.Running != nil:
		w.number(int64(r.Running.Pid))
		w.number(r.Running.StartedAt.UnixNano())
		w.number(int64(r.Running.Begun))
		w.text(r.Running.Level)
		w.text(r.Running.Unlimited)
		w.number(int64(r.Running.Shim))
		w.text(r.Running.Cgroup)
		w.number(int64(r.Running.Pause.Since))
		w.number(int64(r.Running.Pause.Stood))
		w.flag(r.Running.Pause.Partly)
		w.text(r.Running.Pause.Problem)
		return c.send(kindRunning, w, sendTime)
	case r.Failed != nil:
		w.text(string(r.Failed.Reason))
		w.text(r.Failed.Path)
		w.text(r.Failed.Text)
		return c.send(kindFailed, w, sendTime)
	}
	return c.send(kindExit, r.Exit, sendTime)
}

// ReceiveReport is the other side of SendReport.
func (c *Conn) ReceiveReport() (Report, error) {
	k, body, err := c.receive(MaxMessage)
	if err != nil {
		return Report{}, err
	}
	r, report := reader{rest: body}, Report{}
	switch k {
	case kindRunning:
		report.Running = &Running{
			Pid: int(r.number()), StartedAt: time.Unix(0, r.number()).UTC(), Begun: Instant(r.number()),
			Level: r.text(), Unlimited: r.text(), Shim: int(r.number()), Cgroup: r.text(),
			Pause: Pause{Since: Instant(r.number()), Stood: time.Duration(r.number()), Partly: r.flag(), Problem: r.text()},
		}
	case kindFailed:
		report.Failed = &StartError{Reason: Reason(r.text()), Path: r.text(), Text: r.text()}
	case kindExit:
		return Report{Exit: body}, nil
	default:
		r.bad = true
	}
	if err := r.end(); err != nil {
		return Report{}, plain.Wrap("receiving a report", err)
	}
	return report, nil
}

// ReceiveReportWithin is ReceiveReport of a shim that has to answer.
func (c *Conn) ReceiveReportWithin(d time.Duration) (r Report, err error) {
	err = c.within(d, func() (err error) {
		r, err = c.ReceiveReport()
		return err
	})
	return r, err
}
