// Package wire has the messages of the Agent Client Protocol, version 1, that are spoken here.
//
// schema.json is what the protocol publishes, unchanged: version 1.21.0 of its schema, from
// https://github.com/agentclientprotocol/agent-client-protocol, schema/v1/schema.json, under the Apache License 2.0, which is
// beside it. The types are made of it. Fields that they lack are ignored, as the protocol wants it.
//
// Its tests are those of spoke/acp, which speaks it, and of scripts/acpgen.
package wire

import (
	"encoding/json"
	"errors"
)

//go:generate go run ../../../scripts/acpgen

// Version is that of the protocol.
const Version = 1

// Methods of the agent, and of us.
const (
	Initialize     = "initialize"
	SessionNew     = "session/new"
	SessionLoad    = "session/load"
	SessionResume  = "session/resume"
	SessionPrompt  = "session/prompt"
	SessionCancel  = "session/cancel"
	SessionUpdated = "session/update"
	Authenticate   = "authenticate"
	CancelRequest  = "$/cancel_request"

	RequestPermission = "session/request_permission"
	ReadTextFile      = "fs/read_text_file"
	WriteTextFile     = "fs/write_text_file"
	TerminalCreate    = "terminal/create"
	TerminalOutput    = "terminal/output"
	TerminalWait      = "terminal/wait_for_exit"
	TerminalKill      = "terminal/kill"
	TerminalRelease   = "terminal/release"
)

// Kinds of tools.
var Kinds = []ToolKind{ToolKindRead, ToolKindEdit, ToolKindDelete, ToolKindMove, ToolKindSearch, ToolKindExecute, ToolKindThink, ToolKindFetch, ToolKindSwitchMode, ToolKindOther}

// Codes of errors, beside those of JSON-RPC.
const (
	AuthRequired = -32000
	NotFound     = -32002
	Cancelled    = -32800
)

// Decode reads a message as the protocol wants it read: a field of another kind than expected is as if it was not there.
func Decode(raw []byte, out any) error {
	err := json.Unmarshal(raw, out)
	if _, odd := errors.AsType[*json.UnmarshalTypeError](err); odd {
		return nil
	}
	return err
}
