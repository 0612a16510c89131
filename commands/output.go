package commands

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spawnmesh/spawnmesh/signing"
)

// MaxPiece bounds the bytes of output in one [Log].
const MaxPiece = 128 << 10

// Streams are the names of the output streams of an attempt.
var Streams = []string{"stdout", "stderr"}

// Log is a piece of an agent's output: the bytes of a stream from Offset. (task,
// attempt, stream, offset) names them for ever, so a repeated piece is harmless.
// One without bytes and without an end asks how much of the stream is stored.
type Log struct {
	Task    string  `json:"task"`
	Attempt int     `json:"attempt"`
	Stream  string  `json:"stream"` // one of Streams
	Offset  int64   `json:"offset"` // in the stream as it was kept, in bytes from 0
	End     *LogEnd `json:"end,omitempty"`
	Data    []byte  `json:"-"` // travels behind the JSON, as it is
}

// A LogEnd says that a stream ends behind the bytes of its [Log].
type LogEnd struct {
	Gaps []Gap `json:"gaps,omitempty"` // what a bound dropped of the stream before it was kept
	Cut  bool  `json:"cut,omitempty"`  // what was kept was lost, or its keeper was killed: there may have been more
}

// MaxStored is how many streams one [OutputStored] names.
const MaxStored = 256

// OutputStored says how much of streams its sender has on disk. The other side
// goes on from there, also when that is less than it was told before.
type OutputStored struct {
	Streams []StoredStream `json:"streams"`
}

// A StoredStream is what is on disk of one stream.
type StoredStream struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Stream  string `json:"stream"`
	Through int64  `json:"through"`         // bytes from the beginning of the stream
	Ended   bool   `json:"ended,omitempty"` // its end, too: nothing more is wanted
	Code    Code   `json:"code,omitempty"`  // why a piece was refused; it had no effect
}

// Kind returns [LogKind].
func (*Log) Kind() Kind { return LogKind }

// Kind returns [OutputStoredKind].
func (*OutputStored) Kind() Kind { return OutputStoredKind }

// Validate checks b.
func (b *Log) Validate() error {
	if b.Offset > maxNumber || len(b.Data) > MaxPiece {
		return Refuse(Validation, "a piece of output has at most %d bytes, at an offset of at most %d", MaxPiece, int64(maxNumber))
	}
	if e := b.End; e != nil {
		if err := checkGaps(e.Gaps); err != nil {
			return err
		}
	}
	return checkStream(b.Task, b.Attempt, b.Stream, b.Offset)
}

// Validate checks b.
func (b *OutputStored) Validate() error {
	if len(b.Streams) == 0 || len(b.Streams) > MaxStored {
		return Refuse(Validation, "a confirmation of output names 1 to %d streams", MaxStored)
	}
	for _, s := range b.Streams {
		if s.Through > maxNumber || s.Code != "" && !codeForm.MatchString(string(s.Code)) {
			return Refuse(Validation, "a confirmation of output has a number of bytes, and may have a code")
		}
		if err := checkStream(s.Task, s.Attempt, s.Stream, s.Through); err != nil {
			return err
		}
	}
	return nil
}

func checkStream(task string, attempt int, stream string, offset int64) error {
	if !slices.Contains(Streams, stream) || offset < 0 {
		return Refuse(Validation, "output is of stdout or stderr, and its offset counts from 0")
	}
	return checkAttempt(task, attempt)
}

func checkGaps(gaps []Gap) error {
	if len(gaps) > MaxGaps {
		return Refuse(Validation, "an output has more than %d gaps", MaxGaps)
	}
	for _, g := range gaps {
		if g.From < 0 || g.To < g.From || g.At < 0 {
			return Refuse(Validation, "a gap of an output is from one offset to a later one")
		}
	}
	return nil
}

// BodyToSend is [EncodeBody] for a message that this instance signs: a body that its
// receiver would have to refuse is an error here.
func BodyToSend(b Body) ([]byte, error) {
	raw, err := EncodeBody(b)
	if err == nil {
		err = b.Validate()
	}
	if err == nil && len(raw) > signing.MaxBody {
		err = Refuse(Validation, "it is %d bytes, limit %d", len(raw), signing.MaxBody)
	}
	if err == nil {
		head, _, _ := bytes.Cut(raw, []byte{'\n'}) // what follows are the bytes of a Log
		err = signing.CheckBody(head)
	}
	if err != nil {
		return nil, fmt.Errorf("a %s that its receiver would refuse: %w", b.Kind(), err)
	}
	return raw, nil
}

// EncodeBody writes b as the body of a message: JSON, and for a [Log] a line feed
// and its bytes behind it.
func EncodeBody(b Body) ([]byte, error) {
	head, err := signing.EncodeBody(b)
	if l, ok := b.(*Log); ok && err == nil {
		head = append(append(head, '\n'), l.Data...)
	}
	return head, err
}

// decodeBody reads raw into b. The data of a [Log] is a part of raw.
func decodeBody(raw []byte, b Body) error {
	l, ok := b.(*Log)
	switch {
	case ok:
	case b.Kind().newerFields():
		return signing.DecodeKnown(raw, b)
	default:
		return signing.DecodeBody(raw, b)
	}
	head, data, found := bytes.Cut(raw, []byte{'\n'})
	if !found {
		return &signing.Rejected{Code: signing.BodyJSON, Why: "there is no line feed between the JSON of a piece of output and its bytes"}
	}
	if err := signing.DecodeBody(head, b); err != nil {
		return err
	}
	l.Data = data
	return nil
}
