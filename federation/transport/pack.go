package transport

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A pack is several messages of one subject in one: the server syncs its disk
// once for all of them, and once again when they are acknowledged. It is a JSON
// array of the bodies, which must be JSON objects themselves; a message that is
// alone travels as it is.
const (
	packMost  = 64
	packBytes = 200 << 10
)

// pack puts neighbours with the same subject together. at gives for each message
// of the result the places in msgs that it carries.
func pack(msgs []*nats.Msg) (packed []*nats.Msg, at [][]int) {
	size := 0
	for i, m := range msgs {
		last := len(packed) - 1
		if last >= 0 && packed[last].Subject == m.Subject && len(at[last]) < packMost && size+len(m.Data)+1 <= packBytes &&
			packable(m) && packable(msgs[i-1]) {
			at[last] = append(at[last], i)
			size += len(m.Data) + 1
			continue
		}
		packed, at = append(packed, m), append(at, []int{i})
		size = len(m.Data) + 2
	}
	for n, places := range at {
		if len(places) > 1 {
			packed[n] = join(msgs, places)
		}
	}
	return packed, at
}

func packable(m *nats.Msg) bool {
	return len(m.Data) >= 2 && m.Data[0] == '{' && m.Data[len(m.Data)-1] == '}'
}

// join makes one message of several. Its id names exactly this set: the same
// messages sent again in the same company are known for a repetition.
func join(msgs []*nats.Msg, places []int) *nats.Msg {
	ids, size := sha256.New(), 1
	for _, i := range places {
		ids.Write([]byte(msgs[i].Header.Get(jetstream.MsgIDHeader)))
		ids.Write([]byte{0})
		size += len(msgs[i].Data) + 1
	}
	body := make([]byte, 0, size)
	for n, i := range places {
		body = append(append(body, "[,"[min(n, 1)]), msgs[i].Data...)
	}
	return stamped(msgs[places[0]].Subject, "pack."+hex.EncodeToString(ids.Sum(nil)), append(body, ']'))
}

// unpack returns the bodies that a message carries, exactly as they were put in.
// What is no pack, or too much of one, is one body: its reader will say why it
// is none.
func unpack(body []byte) [][]byte {
	if len(body) == 0 || body[0] != '[' || !json.Valid(body) {
		return [][]byte{body}
	}
	list := elements(body, packMost+1)
	if len(list) == 0 || len(list) > packMost {
		return [][]byte{body}
	}
	return list
}

// elements returns the first elements of a valid JSON array, as parts of it.
func elements(array []byte, most int) (list [][]byte) {
	start, depth, text := 1, 0, false
	for i := 1; i < len(array) && len(list) < most; i++ {
		switch c := array[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{', c == '[':
			depth++
		case depth > 0 && (c == '}' || c == ']'):
			depth--
		case depth == 0 && (c == ',' || c == ']'):
			if e := bytes.TrimSpace(array[start:i]); len(e) > 0 {
				list = append(list, e[:len(e):len(e)])
			}
			start = i + 1
		}
	}
	return list
}
