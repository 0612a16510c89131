package conformance

import (
	"bytes"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/transport"
)

// A stream is an output stream of an attempt.
type stream struct {
	task    string
	attempt int
	name    string
}

// kept is what the hub has of a stream.
type kept struct {
	bytes  []byte
	ended  bool
	pieces int
}

// logs takes pieces of output as section 8 says, and answers each.
func (p *peer) logs(list []transport.Report) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := &commands.OutputStored{}
	for _, r := range list {
		m, ok := p.read(r.Envelope)
		if !ok {
			continue
		}
		l, ok := m.Body.(*commands.Log)
		if !ok {
			p.fault("%s came in the queue of output", m.Body.Kind())
			continue
		}
		answer.Streams = append(answer.Streams, p.piece(l))
	}
	if len(answer.Streams) > 0 && !p.mood.forgets {
		p.say(answer)
	}
	return nil
}

// piece takes one piece. The caller holds mu.
func (p *peer) piece(l *commands.Log) commands.StoredStream {
	s := stream{l.Task, l.Attempt, l.Stream}
	k := p.outputs[s]
	if k == nil {
		k = &kept{}
		p.outputs[s] = k
	}
	k.pieces++
	through, told := int64(len(k.bytes)), commands.StoredStream{Task: l.Task, Attempt: l.Attempt, Stream: l.Stream}
	end := l.Offset + int64(len(l.Data))
	switch {
	case l.Offset == through && (!k.ended || len(l.Data) == 0):
		k.bytes, k.ended = append(k.bytes, l.Data...), k.ended || l.End != nil
	case end <= through:
		if !bytes.Equal(k.bytes[l.Offset:end], l.Data) {
			p.fault("bytes %d to %d of the %s of %s came again with another content", l.Offset, end, l.Stream, l.Task)
		}
	default:
		told.Code = commands.Offset
	}
	told.Through, told.Ended = int64(len(k.bytes)), k.ended
	return told
}

// output returns what is there of a stream.
func (p *peer) output(s stream) (k kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if there := p.outputs[s]; there != nil {
		k = *there
		k.bytes = bytes.Clone(k.bytes)
	}
	return k
}
