// Package audittree is the tree over the rows of an audit (RFC 6962), and its signed checkpoints: what
// shows whether a row was changed, removed or put in.
package audittree

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// A Hash is one of the tree.
type Hash = tlog.Hash

// A Row is one of the audit, as whoever verifies it needs it.
type Row struct {
	Seq       int64     `json:"seq"`
	At        time.Time `json:"at"`
	Workspace string    `json:"workspace,omitempty"`
	Actor     string    `json:"actor"`
	Action    string    `json:"action"`
	Object    string    `json:"object,omitempty"`
	Tasks     []string  `json:"tasks,omitempty"`
	Code      string    `json:"code,omitempty"`
	Why       string    `json:"why,omitempty"`
	Conn      string    `json:"conn,omitempty"`
	Message   string    `json:"message,omitempty"`
}

// recordVersion begins each record: another order of fields would have another one.
const recordVersion = "spawnmesh-audit-v1"

// Record is what the leaf of r is the hash of: each field with its length in bytes, so that no two rows
// have the same one.
func Record(r Row) []byte {
	fields := []string{recordVersion, strconv.FormatInt(r.Seq, 10), strconv.FormatInt(r.At.UnixMicro(), 10), r.Workspace, r.Actor, r.Action,
		r.Object, strings.Join(r.Tasks, ","), r.Code, r.Why, r.Conn, r.Message}
	var b []byte
	for _, f := range fields {
		b = strconv.AppendInt(b, int64(len(f)), 10)
		b = append(b, ':')
		b = append(b, f...)
		b = append(b, ',')
	}
	return b
}

// Leaf is the hash of the leaf of r.
func Leaf(r Row) Hash { return tlog.RecordHash(Record(r)) }
