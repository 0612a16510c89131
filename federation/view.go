package federation

import (
	"slices"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// A Status is a connection as this process sees it now.
type Status struct {
	Standing
	Remote string      // host:port that the peer dials from
	Cause  error       // why a link that we dial is down, or who serves the connection in place of this process
	Beat   *store.Beat // the peer's last heartbeat; nil before the first
	Heeds  int64       // the number of our newest freeze that it has stored, as it said last; 0 = of none

	Unsealed   error // why no heartbeat can be made for the peer, again and again; nil = they are
	Unanswered error // why it has answered none of the last heartbeats; nil = it has, or is not linked
}

// KeyError says that the peer refuses the key that this instance signs with; nil
// when it does not say so.
func (s Status) KeyError() error {
	if s.Says.Refuses == nil || s.State.Ended() {
		return nil
	}
	return commands.Refuse(s.Says.Refuses.Code, "%s says that it refuses key %s, with which this instance signs", s.Name, s.Says.Refuses.Key).
		Hinting("after a restore from a backup older than the newest key").Running(MendKey(s.Says.Refuses.Key, s.KeyRevoked)...)
}

// MendKey is the command that tells a peer newer keys which has ended the key in use. One that
// is revoked already cannot be revoked again.
func MendKey(key signing.KeyID, revoked bool) []string {
	if revoked {
		return []string{"keys", "rotate"}
	}
	return []string{"keys", "revoke", string(key), "--reason", "restored"}
}

// KeySetError says that the peer has refused the newest key set of this instance; nil where
// it has not.
func (s Status) KeySetError() error {
	if s.RefusesKeys == "" || s.State.Ended() {
		return nil
	}
	return commands.Refuse(s.RefusesKeys, "%s has refused the newest keys of this instance (%s): %s", s.Name, s.RefusesKeys, keysRefused).
		Hinting("to tell it newer ones").Running("keys", "rotate")
}

// PeerKeyError says that the peer signs with a key that has ended here; nil where it
// does not.
func (s Status) PeerKeyError() error {
	if s.Refuses == nil || s.State.Ended() {
		return nil
	}
	return commands.Refuse(s.Refuses.Code, "%s signs with key %s, which has ended here: nothing that it orders or reports is taken", s.Name, s.Refuses.Key).
		Hinting("its operator has to tell a newer key: was it restored from a backup?")
}

// Statuses returns every connection of these authorities, ended ones too, oldest
// first: one look at what is in memory.
func (b *Board) Statuses(of ...store.Authority) []Status {
	b.mu.Lock()
	list := make([]Status, 0, len(b.known))
	for _, c := range b.known {
		if slices.Contains(of, c.Authority) {
			list = append(list, Status{Standing: Standing{Connection: c}, Cause: b.heldBy[c.ID]})
		}
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(x, y Status) int { return x.CreatedAt.Compare(y.CreatedAt) })
	for i := range list {
		if x := b.Exchange(list[i].ID); x != nil {
			x.describe(&list[i])
		}
	}
	return list
}

// Status returns one connection.
func (b *Board) Status(conn string) (Status, bool) {
	b.mu.Lock()
	c, ok := b.known[conn]
	s := Status{Standing: Standing{Connection: c}, Cause: b.heldBy[conn]}
	b.mu.Unlock()
	if x := b.Exchange(conn); x != nil {
		x.describe(&s)
	}
	return s, ok
}

// Name is what this instance calls the peer of a connection; "" where it has none.
func (b *Board) Name(conn string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[conn].Name
}

func (x *Exchange) describe(s *Status) {
	s.Differs = x.differs()
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.peer.Load()
	s.RefusesKeys, s.KeyRevoked, s.KeyLost, s.Refuses = p.refuses, p.revoked, x.staysLost(), x.refuses
	if s.Beat, s.Heeds = x.beat, x.heeded; s.Beat != nil {
		s.LastSeen, s.ClockOffset, s.Says = &s.Beat.At, offsetOf(s.Beat), s.Beat.Body.Connection
		if s.Says.Refuses = nil; x.lapsed != nil && x.lapsed.Key == p.signs {
			s.Says.Refuses = x.lapsed
		}
	}
	s.FullSince = x.full.Load()
	s.Limited, s.Full = x.isLimited(), s.FullSince != nil
	since := time.Time{}
	s.Linked, since, s.Remote, s.Cause = x.way.state()
	if !s.Linked {
		s.DownSince = x.downSince(since)
	}
	if s.Unsealed = x.unsealed.Err(); s.Linked {
		s.LinkedSince = &since
		s.Unanswered = x.unanswered.Err()
		if r := x.pace.ahead; r != nil {
			s.Ahead = &RefusedBeat{r.Code, r.Why}
		}
		if r := x.beatRefused; r != nil {
			s.BeatRefused = &RefusedBeat{r.Code, r.Why}
		}
	}
}

// downSince is when the link was found to be gone: at is what the side that dials knows of that. nil where there was none in
// this run.
func (x *Exchange) downSince(at time.Time) *time.Time {
	if !at.IsZero() {
		return &at
	}
	if x.linkedLogged.Load() { // it has gone since the last look
		at = time.Now()
		return &at
	}
	return x.linkLost.Load()
}

// offsetOf is how far the clock of the peer was from ours when a heartbeat came; "" within 2 s.
func offsetOf(b *store.Beat) string {
	if b.Offset.Abs() <= 2*time.Second {
		return ""
	}
	return b.Offset.Round(time.Second).String()
}

// Find returns the connection that a person means by its name, its id or a prefix
// of at least six characters of it, among those of these authorities. A living one
// wins over ended ones; no two living ones have one name. Of ended ones that had it, it is the newest.
func (b *Board) Find(text string, of ...store.Authority) (Status, error) {
	var found []Status
	var named *Status
	for _, s := range b.Statuses(of...) {
		if s.ID == text || s.Name == text && !s.State.Ended() {
			return s, nil
		}
		if s.Name == text {
			named = &s
		} else if commands.Means(text, s.ID) {
			found = append(found, s)
		}
	}
	switch {
	case named != nil:
		return *named, nil
	case len(found) == 0:
		return Status{}, commands.Refuse(commands.NotFound, "no connection %q", text).Hinting("see").Running("connections", "list")
	case len(found) == 1:
		return found[0], nil
	}
	return Status{}, commands.Refuse(commands.Ambiguous, "%q fits %d connections", text, len(found)).Hinting("use more of the id; see").Running("connections", "list", "--all")
}
