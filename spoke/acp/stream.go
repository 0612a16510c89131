package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/spoke/acp/wire"
)

const (
	maxLine = 8 << 20 // of one message
	maxOdd  = 100     // lines that are no messages, and answers that nobody has asked for
)

// lines is one message per line, as the protocol has it, for [jsonrpc2.Conn]. What it reads it does not trust: a line has its bound, and a few that are no
// messages, as programs that start others print them, are shown and passed over.
type lines struct {
	r     *bufio.Reader
	w     io.WriteCloser
	write sync.Mutex

	mu  sync.Mutex
	odd int
	err error        // that has ended it; nil = the agent has closed its side
	say func(string) // shows what is no message
}

func newLines(r io.Reader, w io.WriteCloser, say func(string)) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), w: w, say: say}
}

// ReadObject reads the next message.
func (l *lines) ReadObject(out any) error {
	for {
		line, err := l.line()
		if errors.Is(err, os.ErrClosed) { // the agent is gone
			err = io.EOF
		}
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if line[0] == '{' && json.Unmarshal(line, out) == nil {
			return nil
		}
		if err := l.note("a line that is no message: " + commands.Clip(string(line))); err != nil {
			return err
		}
	}
}

// line reads a line. One that is too long is passed over where it is an update, which nobody waits for; else it ends the talk.
func (l *lines) line() (line []byte, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			head := line[:min(len(line), 1024)]
			if !bytes.Contains(head, []byte(`"`+wire.SessionUpdated+`"`)) {
				return nil, l.end(fmt.Errorf("the agent sent a message of more than %d MiB", maxLine>>20))
			}
			for err == bufio.ErrBufferFull {
				_, err = l.r.ReadSlice('\n')
			}
			l.say("an update of more than " + fmt.Sprint(maxLine>>20) + " MiB is left out")
			line = line[:0]
			if err != nil {
				return nil, err
			}
			continue
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case err == io.EOF && len(line) > 0: // the last one, without an end
			return line, nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

// note shows what is no part of the protocol; too much of it is an error.
func (l *lines) note(what string) error {
	l.mu.Lock()
	l.odd++
	n := l.odd
	l.mu.Unlock()
	if n > maxOdd {
		return l.end(fmt.Errorf("the agent does not speak the protocol: %s", what))
	}
	l.say("the agent sent " + what)
	return nil
}

// Printf hears of answers that nobody has asked for.
func (l *lines) Printf(format string, v ...any) {
	if !strings.Contains(format, "ignoring") { // what ends it is told as that
		return
	}
	if l.note("an answer that nobody waits for"+strings.TrimPrefix(commands.OneLine(fmt.Sprintf(format, v...)), "jsonrpc2: ignoring response")) != nil {
		_ = l.Close()
	}
}

func (l *lines) end(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	return err
}

// wrong is what has ended it, beside the agent.
func (l *lines) wrong() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// WriteObject writes a message.
func (l *lines) WriteObject(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.write.Lock()
	defer l.write.Unlock()
	_, err = l.w.Write(append(raw, '\n'))
	return err
}

// Close lets the agent read the end of its input.
func (l *lines) Close() error { return l.w.Close() }
