package store

import (
	"context"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
)

// Ingested says what a batch of reports changed.
type Ingested struct {
	Codes []signing.Code // per message; "" = had its effect
	Tasks []string       // mirrors that changed
	Notes []Outgoing     // confirmations to send now; they may be lost
}

type ingest struct {
	tx     *Tx
	batch  []Incoming
	conns  map[string]*connRow
	codes  []signing.Code
	closed struct{ conns, ids, digests []string }
	stored map[string]*commands.Received
}

// Ingest stores a batch of receipts and results and moves the mirrors, in one
// transaction. What it stored, also what it could not use, is confirmed to its
// sender with one signed note per connection.
func (db *DB) Ingest(ctx context.Context, batch []Incoming) (Ingested, error) {
	return isolate(batch,
		func(part []Incoming) (Ingested, error) { return db.ingestOnce(ctx, part) },
		func(m Incoming, err error) (Ingested, error) {
			return Ingested{Codes: []signing.Code{commands.Internal}}, db.bury(ctx, m, err)
		},
		func(a, b Ingested) Ingested {
			return Ingested{append(a.Codes, b.Codes...), append(a.Tasks, b.Tasks...), append(a.Notes, b.Notes...)}
		})
}

func (db *DB) ingestOnce(ctx context.Context, batch []Incoming) (Ingested, error) {
	var out Ingested
	var done *Tx
	err := db.Tx(ctx, "taking in reports", func(ctx context.Context, tx *Tx) error {
		fates, conns, err := guard(ctx, tx, batch)
		if err != nil {
			return err
		}
		in := &ingest{tx: tx, batch: batch, conns: conns, codes: make([]signing.Code, len(batch)), stored: map[string]*commands.Received{}}
		if out.Tasks, err = in.act(ctx, fates); err != nil {
			return err
		}
		out.Codes = in.codes
		done = tx
		return in.finish(ctx, fates)
	})
	if err == nil {
		out.Notes = done.Notes()
	}
	return out, err
}

func (in *ingest) act(ctx context.Context, fates []fate) ([]string, error) {
	f := folds{byTask: map[string]*fold{}}
	for i, fate := range fates {
		m := in.batch[i]
		in.codes[i] = fate.code
		if fate.code == "" || fate.code == signing.ReplaySame {
			in.confirm(m)
		}
		if fate.code != "" {
			if fate.code != signing.ReplaySame {
				in.note(m, fate.code, fate.why)
			}
			continue
		}
		if m.Refusal != nil {
			in.codes[i] = m.Refusal.Code
			in.note(m, m.Refusal.Code, m.Refusal.Why)
			continue
		}
		if m.Header.Re == nil {
			in.reject(i, signing.HdrField, "a spoke does not send "+m.Header.Kind)
			continue
		}
		in.closeQuestion(m)
		f.add(i, m)
	}
	return in.moveMirrors(ctx, f)
}

func (in *ingest) confirm(m Incoming) {
	if in.stored[m.Conn] == nil {
		in.stored[m.Conn] = &commands.Received{}
	}
	in.stored[m.Conn].Messages = append(in.stored[m.Conn].Messages, commands.MessageRef{ID: m.Header.ID, SHA256: m.Digest.String()})
}

func (in *ingest) note(m Incoming, code signing.Code, why string) {
	row := AuditRow{Actor: string(m.Header.Iss), Action: "report.refused", Object: TaskOf(m.Body), Code: string(code), Why: why, Message: m.Header.ID}
	if in.conns[m.Conn] != nil {
		row.Conn = m.Conn
	}
	in.tx.Audit(row)
}

// closeQuestion closes the command that m answers: any answer proves that the
// other database has it.
func (in *ingest) closeQuestion(m Incoming) {
	re := m.Header.Re
	in.closed.conns, in.closed.ids = append(in.closed.conns, m.Conn), append(in.closed.ids, re.ID)
	in.closed.digests = append(in.closed.digests, re.SHA256)
}

func (in *ingest) finish(ctx context.Context, fates []fate) error {
	if err := quarantine(ctx, in.tx, in.batch, fates, "self"); err != nil {
		return err
	}
	if err := closeOut(ctx, in.tx, in.closed.conns, in.closed.ids, in.closed.digests); err != nil {
		return err
	}
	for conn, list := range in.stored {
		in.tx.Send(Draft{Conn: conn, Lane: LaneCtl, Body: list, Note: true})
	}
	return nil
}
