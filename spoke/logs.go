package spoke

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/federation/transport"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// Output is read in pieces of this size, this often.
const (
	logPiece  = 32 << 10
	logPeriod = 200 * time.Millisecond
)

// pumpLogs carries what agents write into the local message server, from which
// it goes to the hub when the link is up. The file is the record: a piece that
// is carried twice has the same offset and changes nothing.
func (s *Spoke) pumpLogs(ctx context.Context) error {
	tick := time.NewTicker(logPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, a := range s.live.list() {
			a.pump(ctx, s)
		}
	}
}

// pump hands on what an agent has written since the last time.
func (a *attempt) pump(ctx context.Context, s *Spoke) {
	if a.asked.Command == "" {
		return // nobody elsewhere asked for it
	}
	a.pumping.Lock()
	defer a.pumping.Unlock()
	if a.conn == "" {
		var err error
		if a.conn, err = s.backlog.Asker(ctx, a.fence.Task); err != nil {
			return // the next time
		}
	}
	if _, err := s.listener(a.conn); err != nil {
		return // the next time
	}
	out, errAt := a.logOut, a.logErr
	if !s.pumpStream(ctx, a, "stdout", &a.logOut) || !s.pumpStream(ctx, a, "stderr", &a.logErr) {
		return
	}
	if a.logOut != out || a.logErr != errAt {
		if err := s.backlog.LogsForwarded(ctx, a.fence, a.logOut, a.logErr); err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "remembering forwarded logs", "id", a.fence.Task, "err", err)
		}
	}
}

// pumpStream hands on one stream from *at to its present end.
func (s *Spoke) pumpStream(ctx context.Context, a *attempt, stream string, at *int64) bool {
	f, err := os.Open(filepath.Join(a.dir, stream))
	if err != nil {
		return true // not written yet
	}
	defer f.Close()
	for {
		buf := make([]byte, logPiece)
		n, err := f.ReadAt(buf, *at)
		if n == 0 || err != nil && err != io.EOF {
			return true
		}
		if err := s.putLog(ctx, a, stream, *at, buf[:n]); err != nil {
			if ctx.Err() == nil {
				s.Log.WarnContext(ctx, "storing a piece of log", "id", a.fence.Task, "err", err)
			}
			return false
		}
		*at += int64(n)
		if n < logPiece {
			return true
		}
	}
}

func (s *Spoke) putLog(ctx context.Context, a *attempt, stream string, at int64, data []byte) error {
	x, err := s.listener(a.conn)
	if x == nil {
		return err
	}
	wire, id, err := x.Seal(&commands.Log{Task: a.fence.Task, Attempt: a.fence.Attempt, Stream: stream, Offset: at, Data: data},
		&signing.Ref{ID: a.asked.Command, SHA256: a.asked.Digest, Attempt: a.fence.Attempt, Fence: a.fence.Epoch})
	if err != nil {
		return err
	}
	return s.node.Put(ctx, []transport.Report{{Kind: transport.KindLog, ID: a.conn + ":" + id, Body: wire}})
}

// listener returns the exchange of a connection; nil when the connection has
// ended and nobody wants output for it. One that lives and is not served at this
// moment, as at a start and at a stop, is an error: what is for it waits.
func (s *Spoke) listener(conn string) (*federation.Exchange, error) {
	if x := s.board.Exchange(conn); x != nil {
		return x, nil
	}
	if c, known := s.board.Status(conn); !known || c.State.Ended() {
		return nil, nil
	}
	return nil, fmt.Errorf("connection %s is not served now: %w", conn, transport.ErrUnavailable)
}

// forwardLogs sends pieces of log over the links of their connections; an error
// keeps them here. Pieces for a connection that has ended are dropped.
func (s *Spoke) forwardLogs(ctx context.Context, list []transport.Report) error {
	for _, r := range list {
		conn, id, _ := strings.Cut(r.ID, ":")
		x, err := s.listener(conn)
		if err != nil {
			return err
		}
		if x == nil {
			continue
		}
		if err := x.Carry(ctx, store.Outgoing{ID: id, Conn: conn, Lane: transport.KindLog, Kind: string(commands.LogKind), Wire: r.Body}); err != nil {
			return err
		}
	}
	return nil
}
