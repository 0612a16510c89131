package commands

import "github.com/spawnmesh/spawnmesh/signing"

// A Kind says what a message says.
type Kind string

// The kinds of this version.
const (
	SpawnKind  Kind = "agent.spawn"
	StatusKind Kind = "agent.status"
	KillKind   Kind = "agent.kill"
	AnswerKind Kind = "agent.answer"
	PauseKind  Kind = "agent.pause"
	ReviewKind Kind = "agent.review"

	AcceptedKind Kind = "agent.accepted"
	RefusedKind  Kind = "agent.refused"
	StartedKind  Kind = "agent.started"
	EndedKind    Kind = "agent.ended"
	KilledKind   Kind = "agent.killed"
	StateKind    Kind = "agent.state"
	AskedKind    Kind = "agent.asked"
	AnsweredKind Kind = "agent.answered"

	ResultKind Kind = "agent.result"
	LogKind    Kind = "agent.log"

	OutputStoredKind Kind = "agent.output_stored"

	ReceivedKind  Kind = "peer.received"
	HeartbeatKind Kind = "peer.heartbeat"
	RevokedKind   Kind = "peer.revoked"

	KeySetKind Kind = "peer.keyset"
)

// kinds says what is fixed for each kind. Kinds that either side sends have no
// queue of their own: they travel to a spoke as controls, to a hub as events.
var kinds = map[Kind]struct {
	typ   signing.Type
	queue string
	body  func() Body
}{
	SpawnKind:  {signing.Command, QueueRun, func() Body { return &Spawn{} }},
	StatusKind: {signing.Command, QueueControl, func() Body { return &Status{} }},
	KillKind:   {signing.Command, QueueControl, func() Body { return &Kill{} }},
	AnswerKind: {signing.Command, QueueControl, func() Body { return &Answer{} }},
	PauseKind:  {signing.Command, QueueControl, func() Body { return &Pause{} }},
	ReviewKind: {signing.Command, QueueControl, func() Body { return &Review{} }},

	AcceptedKind: {signing.Receipt, QueueEvents, func() Body { return &Accepted{} }},
	RefusedKind:  {signing.Receipt, QueueEvents, func() Body { return &RefusedBody{} }},
	StartedKind:  {signing.Receipt, QueueEvents, func() Body { return &Started{} }},
	EndedKind:    {signing.Receipt, QueueEvents, func() Body { return &Ended{} }},
	KilledKind:   {signing.Receipt, QueueEvents, func() Body { return &Killed{} }},
	StateKind:    {signing.Receipt, QueueEvents, func() Body { return &TaskState{} }},
	AskedKind:    {signing.Receipt, QueueEvents, func() Body { return &Question{} }},
	AnsweredKind: {signing.Receipt, QueueEvents, func() Body { return &Answered{} }},

	ResultKind: {signing.Result, QueueResults, func() Body { return &Result{} }},
	LogKind:    {signing.Event, QueueLogs, func() Body { return &Log{} }},

	OutputStoredKind: {signing.Peer, QueueControl, func() Body { return &OutputStored{} }},

	ReceivedKind:  {signing.Peer, "", func() Body { return &Received{} }},
	HeartbeatKind: {signing.Peer, "", func() Body { return &Heartbeat{} }},
	RevokedKind:   {signing.Peer, "", func() Body { return &Revoked{} }},

	KeySetKind: {signing.KeySet, "", func() Body { return &KeySet{} }},
}

// Type returns the message type that the kind travels under, "" for an unknown one.
func (k Kind) Type() signing.Type { return kinds[k].typ }

// Queue returns the queue that the kind travels in, "" where the direction decides.
func (k Kind) Queue() string { return kinds[k].queue }

// Held reports whether messages of the kind wait while their connection is suspended.
func (k Kind) Held() bool { return HeldWhileSuspended(kinds[k].queue) }

// A Body is what a message of one kind says.
type Body interface {
	Kind() Kind
	Validate() error
	TaskID() string // of the task that it is about, "" for none
}

// TaskID returns the task to be run.
func (b *Spawn) TaskID() string { return b.Task }

// TaskID returns the task that is asked about.
func (b *Status) TaskID() string { return b.Task }

// TaskID returns the task to be ended.
func (b *Kill) TaskID() string { return b.Task }

// TaskID returns the task that was accepted.
func (b *Accepted) TaskID() string { return b.Task }

// TaskID returns the task of the command that was refused, "" where it could not be read.
func (b *RefusedBody) TaskID() string { return b.Task }

// TaskID returns the task of the attempt.
func (b *Started) TaskID() string { return b.Task }

// TaskID returns the task of the attempt.
func (b *Ended) TaskID() string { return b.Task }

// TaskID returns the task that was ended.
func (b *Killed) TaskID() string { return b.Task }

// TaskID returns the task that was asked about.
func (b *TaskState) TaskID() string { return b.Task }

// TaskID returns the task that has ended.
func (b *Result) TaskID() string { return b.Task }

// TaskID returns the task whose output it is.
func (b *Log) TaskID() string { return b.Task }

// TaskID returns "": it is about the output of several tasks.
func (*OutputStored) TaskID() string { return "" }

// TaskID returns "".
func (*Received) TaskID() string { return "" }

// TaskID returns "".
func (*Heartbeat) TaskID() string { return "" }

// TaskID returns "".
func (*Revoked) TaskID() string { return "" }

// TaskID returns "".
func (*KeySet) TaskID() string { return "" }
