package federation

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Settlement says what came of comparing the histories of a connection, as this
// side sees it. What the peer did with its own messages, it knows.
type Settlement struct {
	Name    string `json:"name"`    // of the connection
	Ours    int64  `json:"ours"`    // the last message of ours that the peer has stored
	Theirs  int64  `json:"theirs"`  // the last message of the peer that is stored here
	Learnt  int    `json:"learnt"`  // tasks and orders that the peer has told of, because this side was restored
	Resumed bool   `json:"resumed"` // the connection was suspended because of used numbers
	store.Settled
}

// How long [Board.Resync] waits for a link, and then for the histories to agree.
const (
	redialTime = 10 * time.Second
	settleTime = time.Minute
)

// notCompared refuses to compare the histories of a connection in its state.
func notCompared(c store.Connection) error {
	return commands.Refuse(commands.Conflict, "comparing histories: the connection with %s is %s: %s", c.Name, c.State, c.Reason).
		Hinting("what has ended has nothing to settle; what is suspended compares when it is resumed").Running("connections", "resume", c.Name)
}

// Resync compares the histories of the connection that a person means, among those
// of these authorities, on a new link, as every new link does, and returns when they agree. Used numbers that
// came before are forgotten, and a connection that they suspended is resumed. The
// error is [commands.Unreachable] where there is no link: the next one compares.
func (b *Board) Resync(ctx context.Context, text, actor string, of ...store.Authority) (Settlement, error) {
	s, err := b.Find(text, of...)
	if err != nil {
		return Settlement{}, err
	}
	out := Settlement{Name: s.Name, Resumed: s.State == store.Suspended && s.By == byNumbers}
	if s.State != store.Active && !out.Resumed {
		return out, notCompared(s.Connection)
	}
	if x := b.Exchange(s.ID); x != nil && s.Linked && !out.Resumed {
		if err := x.unheardFor(s.Name); err != nil {
			return out, err // another link changes nothing
		}
	}
	row := store.AuditRow{Actor: actor, Action: "connection.compare", Object: s.Name, Code: string(commands.Resync), Why: "histories are to be compared on the next link", Conn: s.ID}
	if err := b.DB.Audit(ctx, row); err != nil {
		return out, err
	}
	if out.Resumed {
		c, err := b.DB.ResumeConnection(ctx, s.ID, byNumbers, "used numbers are to be settled", actor)
		if err != nil {
			return out, err
		}
		if c.State != store.Active { // meanwhile
			return out, notCompared(c)
		}
	}
	if x := b.Exchange(s.ID); x != nil {
		x.anew.Store(true)
	}
	if err := b.Await(ctx, s.ID); err != nil {
		return out, err
	}
	if !s.Linked && !out.Resumed {
		return out, unlinked(s.Name)
	}
	return out, b.awaitAccord(ctx, &out, s.ID)
}

// awaitAccord waits for the next link, and for both sides to agree on it.
func (b *Board) awaitAccord(ctx context.Context, out *Settlement, conn string) error {
	linking, settling := time.Now().Add(redialTime), time.Now().Add(settleTime)
	for wait.For(ctx, 20*time.Millisecond) == nil {
		x, link := b.Exchange(conn), int64(0)
		if x != nil {
			link = x.way.link()
		}
		if link == 0 {
			if time.Now().After(linking) {
				return unlinked(out.Name)
			}
			continue
		}
		if !x.mustCompare(link) {
			x.sum(out)
			return nil
		}
		if err := x.unheardFor(out.Name); err != nil {
			x.sum(out)
			return err
		}
		if time.Now().After(settling) {
			x.sum(out)
			return commands.Refuse(commands.Resync, "the histories of this side and %s do not agree after %s: %s", out.Name, commands.Lasting(settleTime), cmp.Or(x.differs(), "the peer has not answered yet")).
				Hinting("it is asked for again and again; to look at it later").Running("connections", "show", out.Name)
		}
	}
	return fmt.Errorf("comparing histories with %s: %w", out.Name, context.Cause(ctx))
}

func unlinked(name string) error {
	return commands.Refuse(commands.Unreachable, "%s is not linked, so nothing was compared; it is recorded, and the next link begins with it", name).
		Hinting("for the link see").Running("connections", "list")
}

// sum tells what was compared on the present link.
func (x *Exchange) sum(out *Settlement) {
	x.mu.Lock()
	defer x.mu.Unlock()
	out.Settled, out.Learnt, out.Theirs = x.history.settled, x.history.learnt, x.history.told
	if x.beat != nil && x.beat.Body.Connection.Numbers != nil {
		out.Ours = x.beat.Body.Connection.Numbers.Stored.Through
	}
}
