package commands

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

// examples holds one body of each kind with everything in it.
func examples() map[Kind]Body {
	exit := Exit{Code: -1, Signal: "SIGKILL", Error: "why", Breach: &Breach{Limit: OOMKilled, Unit: "bytes", Allowed: 1, Measured: 2}}
	reaped := []Process{{Pid: 7, Command: "sleep"}}
	pub, old := pubOf(1), pubOf(2)
	return map[Kind]Body{
		SpawnKind: &Spawn{Task: task, Title: "a title", Runtime: RuntimeExec, Argv: []string{"sh", "-c", "echo $HOME"}, Env: []EnvVar{{"CI", EnvPlain}, {"TOKEN", EnvFile}},
			Sealed: &Sealed{Key: signing.SealingKeyIDOf(pub), Mark: make([]byte, 32), Box: make([]byte, 60)},
			Inputs: []Input{{Kind: InputGit, Blob: Blob{"sha256-" + strings.Repeat("0a", 32), 1 << 20}, Tip: strings.Repeat("0b", 20)},
				{Kind: InputFile, Blob: Blob{Digest: "sha256-" + strings.Repeat("0c", 32)}, Path: "in/data.bin", Exec: true}},
			Capabilities: []string{"go", "gpu:2"}, Priority: -100, TimeoutMS: 1000, MaxRetries: 3},
		StatusKind:       &Status{Task: task},
		KillKind:         &Kill{Task: task, Reason: "why", GraceMS: 10_000},
		AcceptedKind:     &Accepted{Task: task, State: Queued, Known: true, Policy: "3f9a12bc44d1"},
		RefusedKind:      &RefusedBody{Task: task, Code: Policy, Why: "why", Hint: "a hint", Policy: "3f9a12bc44d1"},
		StartedKind:      &Started{Task: task, Attempt: 1, Pid: 7, At: 1, Policy: "3f9a12bc44d1"},
		EndedKind:        &Ended{Task: task, Attempt: 2, Outcome: AttemptFailed, State: Queued, Reason: ExecutorDied, Exit: exit, At: 1},
		KilledKind:       &Killed{Task: task, State: Cancelled, Reason: KillRequested, Reaped: reaped, Survivors: reaped, At: 1},
		PauseKind:        &Pause{Task: task, Number: 7, Paused: true, Reason: "why"},
		ReviewKind:       &Review{Task: task, Attempt: 2, Verdict: RequestChanges, Message: "name it better", By: "uid:1"},
		AnswerKind:       &Answer{Task: task, Question: task, Answer: "allow", By: "uid:1", Reason: "why"},
		AskedKind:        &Question{Task: task, Attempt: 1, Question: task, Text: "may I?", Options: []string{"allow", "deny"}, Default: "deny", Data: "more", At: 1, Deadline: 2},
		AnsweredKind:     &Answered{Task: task, State: Running, Question: task, Outcome: QuestionAnswered, Answer: "allow", By: "uid:1", Reason: "why", At: 1},
		StateKind:        &TaskState{Task: task, State: Running, Reason: NoReason, Attempt: 1, At: 1},
		ResultKind:       &Result{Task: task, State: Failed, Reason: RetriesExhausted, Attempt: 3, Outcome: AttemptFailed, Exit: exit, Summary: "exit code 3", Stdout: Output{Bytes: 3, Tail: "hi\n", SHA256: strings.Repeat("0", 64)}, Reaped: reaped, StartedAt: 1, EndedAt: 2},
		LogKind:          &Log{Task: task, Attempt: 1, Stream: "stderr", Offset: 4096, End: &LogEnd{Gaps: []Gap{{From: 1, To: 9, At: 1}}, Cut: true}, Data: []byte("hi\n\x00\xff")},
		OutputStoredKind: &OutputStored{[]StoredStream{{Task: task, Attempt: 1, Stream: "stderr", Through: 4099, Ended: true, Code: Offset}}},
		ReceivedKind:     &Received{Numbers{Through: 9, Gaps: []Range{{From: 2, To: 3}, {From: 5, To: 5}}}, []RefusedReport{{4, ResultClash}}, true},
		RevokedKind:      &Revoked{Reason: "holiday"},
		HeartbeatKind:    &Heartbeat{IntervalMS: 1000, Connection: ConnectionView{State: "suspended", Reason: "holiday", By: "uid:1", Heeds: 7, Blobs: "0a-.9", Numbers: &Numbering{Sent: 7, Stored: Numbers{Through: 3}}}, Slots: 4, Queued: 1, Capabilities: []string{"go"}, KillLevel: "cgroup", Isolation: IsolationUser, Declines: []Decline{{Code: DeclinesKind, What: "agent.kill", Since: 1}}, Version: "v1", Agents: []AgentBeat{{Task: task, Attempt: 1, State: Running, RSS: 1, CPUMS: 2}}},
		KeySetKind:       &KeySet{Version: 2, Keys: []SetKey{{Pub: pub}, {Pub: old, ForMS: 1000}}, Revoked: []signing.KeyID{signing.KeyIDOf(make([]byte, 32))}, Reason: "copied"},
	}
}

func pubOf(seed byte) ed25519.PublicKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)).Public().(ed25519.PublicKey)
}

func TestEveryKindHasAnExampleThatIsAccepted(t *testing.T) {
	got := examples()
	for kind := range kinds {
		c, err := Parse(open2(t, kind.Type(), kind, got[kind]))

		require.NoError(t, err, kind)
		require.Equal(t, got[kind], c.Body, kind)
	}
	require.Len(t, got, len(kinds))
}

// sealer seals raw bodies of any kind and opens them again.
type sealer struct {
	key      *signing.Signer
	verifier signing.Verifier
}

func newSealer(t testing.TB) sealer {
	key, err := signing.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	self := signing.InstanceIDOf(key.Public())
	return sealer{key, signing.Verifier{Self: self, Conn: task, Epoch: 1, Keys: map[signing.KeyID]signing.PeerKey{
		key.KeyID(): {ID: key.KeyID(), Owner: self, Public: key.Public()}}}}
}

func (s sealer) open(kind Kind, body []byte) (signing.Opened, error) {
	typ, self := kind.Type(), s.verifier.Self
	h := signing.Header{ID: task, Kind: string(kind), Iss: self, Aud: self, Conn: task, Epoch: 1, Seq: 1, Iat: 1, Exp: 2, Wsp: "main"}
	if typ == signing.Receipt || typ == signing.Result || typ == signing.Event {
		h.Re = &signing.Ref{ID: task, SHA256: strings.Repeat("0", 64)}
	}
	sealed, err := s.key.Seal(typ, h, body)
	if err != nil {
		return signing.Opened{}, err
	}
	v := s.verifier
	if typ == signing.KeySet {
		v.Identity = s.key.KeyID()
	}
	return v.Open(sealed.Envelope, time.UnixMilli(1))
}

// Whatever a peer with a good key may send as a body, of any kind: it is refused
// with a code, or it is a body of that kind that keeps the rules and says the
// same when it is written again.
func FuzzParse(f *testing.F) {
	all := slices.Sorted(maps.Keys(kinds))
	s := newSealer(f)
	for kind, body := range examples() {
		raw, err := EncodeBody(body)
		require.NoError(f, err)
		n, _ := slices.BinarySearch(all, kind)
		f.Add(uint8(n), raw)
	}
	logs, _ := slices.BinarySearch(all, LogKind)
	for _, p := range pieces {
		f.Add(uint8(logs), []byte(p.raw))
	}
	for _, raw := range []string{"", "{}", "null", `{"task":null}`, `{"Task":"x"}`, `{"task":1,"task":2}`, strings.Repeat("[", 100)} {
		f.Add(uint8(0), []byte(raw))
	}
	f.Fuzz(func(t *testing.T, n uint8, raw []byte) {
		kind := all[int(n)%len(all)]
		o, err := s.open(kind, raw)
		if err != nil {
			return // no envelope holds it
		}

		c, err := Parse(o)

		if err != nil {
			_, refused := errors.AsType[*Refused](err)
			_, rejected := errors.AsType[*signing.Rejected](err)
			require.True(t, refused || rejected, "%T: %v", err, err)
			require.NotEmpty(t, CodeOf(err))
			return
		}
		require.Equal(t, kind, c.Body.Kind())
		require.NoError(t, c.Body.Validate())
		once, err := EncodeBody(c.Body)
		require.NoError(t, err)
		again := kinds[kind].body()
		require.NoError(t, decodeBody(once, again), "%s", once)
		twice, err := EncodeBody(again)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
	})
}
