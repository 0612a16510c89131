package hub

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation/join"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/store"
)

// How long an invite can be used.
const (
	DefaultInvite = 30 * time.Minute
	maxInvite     = join.MaxLife
)

// An Invitation is what an operator carries to the other host.
type Invitation struct {
	ID          string    `json:"id"`
	Token       string    `json:"token"`
	Name        string    `json:"name"`
	Address     string    `json:"address"` // where the token leads
	Expires     time.Time `json:"expires"`
	Fingerprint string    `json:"fingerprint"` // of this hub, to compare by voice
	Note        string    `json:"note,omitempty"`
}

// Invite makes a token that lets one instance join as name. It is refused where
// the token could not say how to reach this hub.
func (h *Hub) Invite(ctx context.Context, name string, ttl time.Duration, actor string) (Invitation, error) {
	if ttl == 0 {
		ttl = DefaultInvite
	}
	if ttl < time.Second || ttl > maxInvite {
		return Invitation{}, commands.Refuse(commands.Validation, "an invitation lives from 1s to %s, not %s", commands.Lasting(maxInvite), commands.Lasting(ttl))
	}
	address, note, err := h.reach()
	if err != nil {
		return Invitation{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Invitation{}, err
	}
	t := join.NewToken(join.Token{Address: address, Hub: h.Keys.InstanceID(), Pin: h.pin, ID: id.String(), Name: name})
	expires, err := h.DB.AddInvite(ctx, store.Invite{ID: t.ID, Name: name, ProofKey: t.ProofKey(), TTL: ttl, Uses: 1, Actor: actor})
	if err != nil {
		return Invitation{}, err
	}
	if err := h.join.keys.read(ctx, h.DB); err != nil {
		h.Log.WarnContext(ctx, "reading the invites; the newest can be used in a second", "err", err)
	}
	t.Expires = expires.UnixMilli()
	text, err := t.Text()
	return Invitation{t.ID, text, name, address, expires, signing.Fingerprint(h.Keys.Identity.Public()), note}, err
}

// reach returns the address that tokens name, and what a person must know of it.
func (h *Hub) reach() (address, note string, err error) {
	address = cmp.Or(h.Advertise, h.LinkAddress())
	if err := CheckAddress(address); err != nil {
		return "", "", err
	}
	if host, _, _ := net.SplitHostPort(address); loopback(host) {
		note = "works on this machine only: it leads to " + address
	}
	return address, note, nil
}

// CheckAddress refuses what no spoke on another machine could dial as the
// address of a hub: something else than host:port, and a host that stands for
// every address of its own machine, as 0.0.0.0 does.
func CheckAddress(address string) error {
	if host, _, err := net.SplitHostPort(address); err == nil && unspecified(host) {
		return commands.Refuse(commands.Validation, "spokes cannot dial %s: it stands for every address of this machine and names none", address).
			Hinting("start the hub with --advertise HOST:PORT, where HOST is how spokes reach it")
	}
	if !join.ValidAddress(address) {
		return commands.Refuse(commands.Validation, "%q is not an address of the form HOST:PORT", address).
			Hinting("start the hub with --advertise HOST:PORT, as in: --advertise hub.example.org:7422")
	}
	return nil
}

func unspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// RevokeInvite ends the invite that a person means by its id, a prefix of at
// least six characters of it, or the name it is for where one such is open.
func (h *Hub) RevokeInvite(ctx context.Context, text, reason, actor string) (store.InviteView, error) {
	list, err := h.DB.Invites(ctx)
	if err != nil {
		return store.InviteView{}, err
	}
	v, err := findInvite(list, text)
	if err != nil {
		return v, err
	}
	v, err = h.DB.RevokeInvite(ctx, v.ID, reason, actor)
	return v, err
}

func findInvite(list []store.InviteView, text string) (store.InviteView, error) {
	var open, ended []store.InviteView
	for _, v := range list {
		switch {
		case v.ID == text:
			return v, nil
		case v.Name != text && !commands.Means(text, v.ID):
		case v.State == store.InviteOpen:
			open = append(open, v)
		default:
			ended = append(ended, v)
		}
	}
	switch {
	case len(open) == 1:
		return open[0], nil
	case len(open) > 1:
		return store.InviteView{}, commands.Refuse(commands.Ambiguous, "%q fits %d open invites", text, len(open)).
			Hinting("give the whole id; see").Running("invite", "list")
	case len(ended) > 0:
		return ended[0], nil // the newest; what has become of it is said there
	}
	return store.InviteView{}, commands.Refuse(commands.NotFound, "no invite %q", text).Hinting("see").Running("invite", "list")
}
