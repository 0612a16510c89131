package main

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/hub"
)

// logFlags are what of a log a person wants to see.
type logFlags struct {
	follow  bool
	seq     int64
	attempt int // only this one; 0 = all
	last    int // only so many lines of what is there; below 0 = all
	since   moment
}

// hides reports whether a line of a log is of no attempt or time that is wanted.
func (f *logFlags) hides(l hub.LogLine) bool {
	attempt := l.Attempt
	if l.Missing != nil {
		attempt = l.Missing.Attempt
	}
	return f.attempt > 0 && attempt > 0 && attempt != f.attempt || l.Data != nil && l.At.Before(f.since.at)
}

// A logView shows output to people: where the agent wrote it, and on standard error where
// another attempt begins.
type logView struct {
	a       *app
	last    int // lines that are kept back until flush; below 0 = none, and all are shown
	attempt int // of what came last
	kept    []keptLine
	screens map[string]*screen // by stream, of those that go to a terminal
}

// A keptLine is a line of output, or the beginning of one, or a mark on standard error.
type keptLine struct {
	stream string
	text   []byte
}

// output takes what an attempt has written.
func (v *logView) output(attempt int, stream string, data []byte) error {
	if attempt != v.attempt && (v.attempt > 0 || attempt > 1) {
		if err := v.mark(fmt.Sprintf("[attempt %d]", attempt)); err != nil {
			return err
		}
	}
	v.attempt = attempt
	if v.last < 0 {
		return v.print(stream, data)
	}
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if end == 0 {
			end = len(data)
		}
		v.keep(stream, data[:end])
		data = data[end:]
	}
	return nil
}

// print writes output to where the agent wrote it.
func (v *logView) print(stream string, data []byte) error {
	to := v.a.out
	if stream == "stderr" {
		to = v.a.err
	}
	if !terminal(to) {
		_, err := to.Write(data)
		return err
	}
	if v.screens == nil {
		v.screens = map[string]*screen{}
	}
	if v.screens[stream] == nil {
		v.screens[stream] = &screen{colours: v.a.colours(to)}
	}
	_, err := fmt.Fprint(to, v.screens[stream].show(string(data)))
	return err
}

// mark takes a line that is not output.
func (v *logView) mark(text string) error {
	if v.last >= 0 {
		v.keep("stderr", []byte(text+"\n"))
		return nil
	}
	_, err := fmt.Fprintln(v.a.err, printable(text))
	return err
}

// keep keeps the last lines: the rest of one that has begun in the same stream belongs to it.
func (v *logView) keep(stream string, text []byte) {
	for i := range slices.Backward(v.kept) {
		if k := &v.kept[i]; k.stream == stream {
			if !bytes.HasSuffix(k.text, []byte("\n")) {
				k.text = append(k.text, text...)
				return
			}
			break
		}
	}
	v.kept = append(v.kept, keptLine{stream, slices.Clone(text)})
	if n := len(v.kept) - v.last; n > 0 {
		v.kept = slices.Delete(v.kept, 0, n)
	}
}

// flush shows what was kept back; what comes then is shown as it comes.
func (v *logView) flush() error {
	v.last = -1
	for _, k := range v.kept {
		if err := v.print(k.stream, k.text); err != nil {
			return err
		}
	}
	v.kept = nil
	return nil
}

// check refuses what a program, or a host, cannot be shown.
func (f *logFlags) check(a *app, v agentView) error {
	switch {
	case f.attempt < 0:
		return misuse("--attempt is the number of an attempt: 1 or more")
	case f.attempt > v.Attempt:
		return misuse("agent %s has no attempt %d: its last one is %d", v.ShortID, f.attempt, v.Attempt).Hinting("see").Running("status", v.ShortID)
	case f.last >= 0 && a.wantsJSON():
		return misuse("-n counts lines, and a program reads pieces").Hinting("use --since-seq, or --since")
	case v.Hub != "" && (f.seq != 0 || f.since.at != time.Time{}):
		return misuse("--since and --since-seq count what arrived at a hub; on a spoke the output is in files").Hinting("use -n, or see: ls %s/*/control", v.Dir)
	}
	return nil
}
