package output

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A record is a head and data behind it. The head, big-endian: kind and stream, a
// byte each; attempt and length of the data, 4 bytes each; offset in the stream
// and time of arrival in ms since 1970, 8 bytes each; CRC-32C of all of the record
// but these last 4 bytes of the head.
const headSize = 30

const (
	recordData = 1 // data is output
	recordEnd  = 2 // data is a [commands.LogEnd] as JSON; offset is the size of the stream
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type record struct {
	kind    byte
	stream  string
	attempt int
	offset  int64
	at      time.Time
	data    []byte
}

func (r record) size() int64 { return int64(headSize + len(r.data)) }

func (r record) append(b []byte) []byte {
	from := len(b)
	b = append(b, r.kind, byte(slices.Index(commands.Streams, r.stream)))
	b = binary.BigEndian.AppendUint32(b, uint32(r.attempt))
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.data)))
	b = binary.BigEndian.AppendUint64(b, uint64(r.offset))
	b = binary.BigEndian.AppendUint64(b, uint64(r.at.UnixMilli()))
	sum := crc32.Update(crc32.Checksum(b[from:], castagnoli), castagnoli, r.data)
	return append(binary.BigEndian.AppendUint32(b, sum), r.data...)
}

// errDamaged says that the bytes of a segment are not what was written.
var errDamaged = errors.New("the segment is damaged")

// next takes the first record off b. Its data is a part of b.
func next(b []byte) (r record, rest []byte, err error) {
	if len(b) < headSize || int(b[1]) >= len(commands.Streams) {
		return r, nil, errDamaged
	}
	size := int(binary.BigEndian.Uint32(b[6:]))
	if size > len(b)-headSize {
		return r, nil, errDamaged
	}
	r = record{kind: b[0], stream: commands.Streams[b[1]], attempt: int(binary.BigEndian.Uint32(b[2:])),
		offset: int64(binary.BigEndian.Uint64(b[10:])), at: time.UnixMilli(int64(binary.BigEndian.Uint64(b[18:]))),
		data: b[headSize : headSize+size]}
	if crc32.Update(crc32.Checksum(b[:headSize-4], castagnoli), castagnoli, r.data) != binary.BigEndian.Uint32(b[headSize-4:]) {
		return r, nil, errDamaged
	}
	return r, b[headSize+size:], nil
}

// recordsOf returns what is new in p: its bytes, and the end behind them.
func recordsOf(p *commands.Log, at time.Time) ([]record, error) {
	var list []record
	r := record{recordData, p.Stream, p.Attempt, p.Offset, at, p.Data}
	if len(p.Data) > 0 {
		list = append(list, r)
	}
	if p.End != nil {
		raw, err := json.Marshal(p.End)
		if err != nil {
			return nil, err
		}
		r.kind, r.offset, r.data = recordEnd, p.Offset+int64(len(p.Data)), raw
		list = append(list, r)
	}
	return list, nil
}
