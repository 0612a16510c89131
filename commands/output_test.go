package commands

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

// What a piece of output looks like to another implementation, byte for byte.
var pieces = map[string]struct {
	raw  string
	want *Log
	code Code // of the refusal
}{
	"text": {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":0}` + "\nhi\n",
		want: &Log{Task: task, Attempt: 1, Stream: "stdout", Data: []byte("hi\n")}},
	"any bytes": {raw: `{"task":"` + task + `","attempt":2,"stream":"stderr","offset":9007199254740991}` + "\n\n\x00\xff{\"",
		want: &Log{Task: task, Attempt: 2, Stream: "stderr", Offset: 1<<53 - 1, Data: []byte("\n\x00\xff{\"")}},
	"a question": {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":7}` + "\n",
		want: &Log{Task: task, Attempt: 1, Stream: "stdout", Offset: 7, Data: []byte{}}},
	"the end": {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":7,"end":{}}` + "\n",
		want: &Log{Task: task, Attempt: 1, Stream: "stdout", Offset: 7, End: &LogEnd{}, Data: []byte{}}},
	"the last bytes of what was not all kept": {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":7,"end":{"gaps":[{"from":5,"to":90,"at":5}],"cut":true}}` + "\nx",
		want: &Log{Task: task, Attempt: 1, Stream: "stdout", Offset: 7, End: &LogEnd{Gaps: []Gap{{From: 5, To: 90, At: 5}}, Cut: true}, Data: []byte("x")}},
	"nothing":                 {raw: "", code: signing.BodyJSON},
	"no line feed":            {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":0}`, code: signing.BodyJSON},
	"a line feed in the JSON": {raw: `{"task":"` + task + `",` + "\n" + `"attempt":1,"stream":"stdout","offset":0}` + "\nhi", code: signing.BodyJSON},
	"bytes behind the JSON":   {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":0}x` + "\nhi", code: signing.BodyJSON},
	"bytes as a field":        {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":0,"data":"aGk="}` + "\n", code: signing.BodyJSON},
	"another stream":          {raw: `{"task":"` + task + `","attempt":1,"stream":"stdin","offset":0}` + "\nhi", code: Validation},
	"an offset below 0":       {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":-1}` + "\nhi", code: Validation},
	"an offset above 2^53":    {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":9007199254740992}` + "\nhi", code: Validation},
	"attempt 0":               {raw: `{"task":"` + task + `","attempt":0,"stream":"stdout","offset":0}` + "\nhi", code: Validation},
	"too many bytes":          {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":0}` + "\n" + strings.Repeat("x", MaxPiece+1), code: Validation},
	"a gap that ends before it begins": {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":0,"end":{"gaps":[{"from":9,"to":8,"at":9}]}}` + "\n",
		code: Validation},
	"too many gaps": {raw: `{"task":"` + task + `","attempt":1,"stream":"stdout","offset":0,"end":{"gaps":[` + strings.Repeat(`{"from":1,"to":2,"at":1},`, MaxGaps) + `{"from":1,"to":2,"at":1}]}}` + "\n",
		code: Validation},
}

func TestPiecesOfOutput(t *testing.T) {
	s := newSealer(t)
	for name, tt := range pieces {
		t.Run(name, func(t *testing.T) {
			o, err := s.open(LogKind, []byte(tt.raw))
			require.NoError(t, err)

			c, err := Parse(o)

			if tt.code != "" {
				require.Equal(t, tt.code, CodeOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, c.Body)
			again, err := EncodeBody(tt.want)
			require.NoError(t, err)
			require.Equal(t, tt.raw, string(again))
		})
	}
}

// The largest piece fits into a message, whatever its bytes are.
func TestTheLargestPieceTravels(t *testing.T) {
	s := newSealer(t)
	raw, err := EncodeBody(&Log{Task: task, Attempt: maxAttempt, Stream: "stdout", Offset: maxNumber, Data: make([]byte, MaxPiece)})
	require.NoError(t, err)

	o, err := s.open(LogKind, raw)

	require.NoError(t, err)
	_, err = Parse(o)
	require.NoError(t, err)
}
