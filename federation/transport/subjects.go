package transport

import (
	"fmt"
	"slices"
	"strings"
)

// streamCommands is the stream of a hub besides those of its peers.
const streamCommands = "COMMANDS"

// The accounts of a hub's server that are not a peer's.
const (
	accountHub    = "HUB"
	accountSystem = "SYS"
	accountJoin   = "JOIN"
)

// hubAPI is the name under which a peer reaches the part of the JetStream
// interface it may use. The native prefix is not usable for that: an account
// that imports all of it under that name would shadow ours.
const hubAPI = "HUB.API"

// probeToken stands where a peer's id stands, and is no valid id.
const probeToken = "_probe"

var (
	lanes = []string{LaneRun, LaneControl}
	kinds = []string{KindEvent, KindLog, KindResult}
	steps = []string{"hello", "proof"}
)

// A group is what one queue of a peer's reports holds.
type group struct {
	name  string // for people
	mark  string // in front of the peer's id in the name of the stream
	kinds []string
}

var (
	groupReports = group{"reports", "R_", []string{KindEvent, KindResult}}
	groupLogs    = group{"logs", "L_", []string{KindLog}}
	groups       = []group{groupReports, groupLogs}
)

func (g group) stream(peer string) string { return g.mark + peer }

// parseStream is the reverse of group.stream for valid peers.
func parseStream(name string) (peer string, g group, ok bool) {
	for _, g := range groups {
		if peer, ok := strings.CutPrefix(name, g.mark); ok && validID(peer) {
			return peer, g, true
		}
	}
	return "", group{}, false
}

func commandSubject(peer, lane, verb string) string {
	return "mesh.cmd." + peer + "." + lane + "." + verb
}
func laneSubject(peer, lane string) string    { return commandSubject(peer, lane, "*") }
func reportSubject(peer, kind string) string  { return "mesh.rpt." + peer + "." + kind }
func beatSubject(peer string) string          { return "mesh.hb." + peer }
func askSubject(peer string) string           { return "mesh.ask." + peer }
func joinSubject(session, step string) string { return "mesh.join." + session + "." + step }

// parseCommand is the reverse of commandSubject for subjects with valid parts.
func parseCommand(subject string) (peer, lane, verb string, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 5 || t[0] != "mesh" || t[1] != "cmd" {
		return "", "", "", false
	}
	peer, lane, verb = t[2], t[3], t[4]
	return peer, lane, verb, validID(peer) && slices.Contains(lanes, lane) && validID(verb)
}

// parseReport is the reverse of reportSubject for subjects with valid parts.
func parseReport(subject string) (peer, kind string, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != "mesh" || t[1] != "rpt" {
		return "", "", false
	}
	return t[2], t[3], validID(t[2]) && slices.Contains(kinds, t[3])
}

// parseBeat is the reverse of beatSubject for subjects with valid parts.
func parseBeat(subject string) (peer string, ok bool) {
	peer, ok = strings.CutPrefix(subject, "mesh.hb.")
	return peer, ok && validID(peer)
}

// parseAsk is the reverse of askSubject for subjects with valid parts.
func parseAsk(subject string) (peer string, ok bool) {
	peer, ok = strings.CutPrefix(subject, "mesh.ask.")
	return peer, ok && validID(peer)
}

// parseJoin is the reverse of joinSubject for subjects with valid parts.
func parseJoin(subject string) (session, step string, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != "mesh" || t[1] != "join" {
		return "", "", false
	}
	return t[2], t[3], validSession(t[2]) && slices.Contains(steps, t[3])
}

// consumerName names the durable consumer of one lane of one peer. A peer's
// id has no underscore, so the name tells both apart.
func consumerName(peer, lane string) string { return peer + "_" + lane }

// resetSubject asks the server to hand on again what a consumer holds.
func resetSubject(peer, lane string) string {
	return "$JS.API.CONSUMER.RESET." + streamCommands + "." + consumerName(peer, lane)
}

// accountName names the account that only this peer is in.
func accountName(peer string) string { return "S_" + peer }

// joinUser is the user name under which a session joins, and joinSession its
// reverse for names with valid parts.
func joinUser(session string) string { return "join_" + session }

func joinSession(user string) (session string, ok bool) {
	session, ok = strings.CutPrefix(user, "join_")
	return session, ok && validSession(session)
}

// askUser is the user name under which a peer asks.
func askUser(peer string) string { return "ask_" + peer }

// inbox is the prefix, without a final dot, of the subjects on which user
// gets answers and pulled messages.
func inbox(user string) string { return "_INBOX_" + user }

// A door is one subject of the hub's account as a peer's account sees it.
type door struct{ inside, outside string }

// doors lists everything a peer may send to, and nothing else.
func doors(peer string) []door {
	var ds []door
	for _, lane := range lanes {
		name := streamCommands + "." + consumerName(peer, lane)
		for _, call := range []string{"CONSUMER.MSG.NEXT.", "CONSUMER.INFO."} {
			ds = append(ds, door{inside: "$JS.API." + call + name, outside: hubAPI + "." + call + name})
		}
		// The server puts the native name of the acknowledgement into the
		// message, so this one keeps it.
		ds = append(ds, door{inside: "$JS.ACK." + name + ".>", outside: "$JS.ACK." + name + ".>"})
	}
	for _, kind := range kinds {
		ds = append(ds, door{inside: reportSubject(peer, kind), outside: reportSubject(peer, kind)})
	}
	return append(ds, door{inside: beatSubject(peer), outside: beatSubject(peer)})
}

// accounts is the part of the server's configuration that says which
// accounts exist from the start and what the hub's offers to the peers'.
func accounts() string {
	stream := streamCommands
	services := []string{
		fmt.Sprintf(`{service: "$JS.API.CONSUMER.MSG.NEXT.%s.*", response_type: stream}`, stream),
		fmt.Sprintf(`{service: "$JS.API.CONSUMER.INFO.%s.*"}`, stream),
		fmt.Sprintf(`{service: "$JS.ACK.%s.*.>"}`, stream),
		fmt.Sprintf(`{service: %q}`, beatSubject("*")),
	}
	for _, kind := range kinds {
		services = append(services, fmt.Sprintf(`{service: %q}`, reportSubject("*", kind)))
	}
	return fmt.Sprintf(`
system_account: %s
accounts {
  %s {}
  %s {}
  %s { jetstream: enabled, exports: [ %s ] }
}`, accountSystem, accountSystem, accountJoin, accountHub, strings.Join(services, ", "))
}
