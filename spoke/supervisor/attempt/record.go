package attempt

import (
	"os"
	"syscall"

	"github.com/spawnmesh/spawnmesh/spoke/supervisor/plain"
)

// MaxRecord bounds a record; the reason is its largest part, which may name a
// program by a long path.
const MaxRecord = 1 << 20

// Record is the exit as it is stored and told: the JSON that the tags of the type
// describe.
func (e Exit) Record() []byte {
	var o object
	o.text("outcome", string(e.Outcome))
	if e.Reason != "" {
		o.text("reason", e.Reason)
	}
	if e.Failed != "" {
		o.text("failed", string(e.Failed))
	}
	o.number("code", int64(e.Code))
	if e.Signal != "" {
		o.text("signal", e.Signal)
	}
	if !e.StartedAt.IsZero() {
		o.moment("started_at", e.StartedAt)
	}
	if !e.EndedAt.IsZero() {
		o.moment("ended_at", e.EndedAt)
	}
	if e.Breach != (Breach{}) {
		o.name("breach")
		o = append(o, e.Breach.record()...)
	}
	if e.Level != "" {
		o.text("level", e.Level)
	}
	if e.Unlimited != "" {
		o.text("unlimited", e.Unlimited)
	}
	e.recordProcesses(&o)
	o.name("stdout")
	o = append(o, e.Stdout.record()...)
	o.name("stderr")
	o = append(o, e.Stderr.record()...)
	o.number("max_rss", e.MaxRSS)
	o.number("cpu", int64(e.CPU))
	return o.end()
}

func (b Breach) record() []byte {
	var o object
	o.text("limit", string(b.Limit))
	o.text("unit", string(b.Unit))
	o.number("allowed", b.Allowed)
	o.number("measured", b.Measured)
	return o.end()
}

func (e Exit) recordProcesses(o *object) {
	if e.OOMKills != 0 {
		o.number("oom_kills", e.OOMKills)
	}
	if e.Refused != 0 {
		o.number("refused", e.Refused)
	}
	o.list("reaped", len(e.Reaped), func(o *object, i int) {
		o.number("pid", int64(e.Reaped[i].Pid))
		o.text("command", e.Reaped[i].Command)
	})
	if e.ReapedTotal != 0 {
		o.number("reaped_total", int64(e.ReapedTotal))
	}
	o.list("survivors", len(e.Survivors), func(o *object, i int) {
		o.number("pid", int64(e.Survivors[i].Pid))
		o.text("command", e.Survivors[i].Command)
		o.text("state", e.Survivors[i].State)
		o.text("wchan", e.Survivors[i].Wchan)
	})
}

func (out Output) record() []byte {
	var o object
	o.number("bytes", out.Bytes)
	if out.Dropped != 0 {
		o.number("dropped", out.Dropped)
	}
	o.list("gaps", len(out.Gaps), func(o *object, i int) {
		o.number("from", out.Gaps[i].From)
		o.number("to", out.Gaps[i].To)
		o.number("at", out.Gaps[i].At)
	})
	if out.Cut {
		o.name("cut")
		o = append(o, "true"...)
	}
	o.number("size", out.Size)
	if out.SHA256 != "" {
		o.text("sha256", out.SHA256)
	}
	return o.end()
}

// ReserveRecord takes the room of a record while there is some: an agent may
// fill the disk.
func ReserveRecord(dir string) error {
	const doing = "reserving room for the exit record"
	f, err := OpenPlain(plain.Join(dir, ExitFile+draftSuffix), os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return plain.Wrap(doing, err)
	}
	defer f.Close()
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	return plain.Wrap(doing, syscall.Fallocate(int(f.Fd()), keepSize, 0, 32<<10))
}

// WriteRecord makes the record durable. The caller holds the lock, so there is
// one writer; a crash before the rename leaves no record, after it this one.
func WriteRecord(dir string, e Exit) error {
	err := Replace(dir, ExitFile, func(f *os.File) error {
		_, err := f.Write(e.Record()) // over what was reserved
		return err
	})
	return plain.Wrap("writing the exit record", err)
}
