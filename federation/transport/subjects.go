package transport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// streamCommands is the stream of a hub besides those of its peers.
const streamCommands = "COMMANDS"

// The accounts of a hub's server that are not a peer's.
const (
	accountHub    = "HUB"
	accountSystem = "SYS"
	accountJoin   = "JOIN"
	accountBlob   = "BLOB"
)

// hubAPI is the name under which a peer reaches the part of the JetStream
// interface it may use. The native prefix is not usable for that: an account
// that imports all of it under that name would shadow ours.
const hubAPI = "HUB.API"

// probeToken stands where a peer's id stands, and is no valid id.
const probeToken = "_probe"

var (
	commandQueues = []string{commands.QueueRun, commands.QueueControl}
	reportQueues  = []string{commands.QueueEvents, commands.QueueLogs, commands.QueueResults}
	steps         = []string{"hello", "proof"}
)

// A group is what one queue of a peer's reports holds.
type group struct {
	name   string // for people
	mark   string // in front of the peer's id in the name of the stream
	queues []string
}

var (
	groupReports = group{"reports", "R_", []string{commands.QueueEvents, commands.QueueResults}}
	groupLogs    = group{"logs", "L_", []string{commands.QueueLogs}}
	groups       = []group{groupReports, groupLogs}
)

func (g group) stream(conn string) string { return g.mark + conn }

// parseStream is the reverse of group.stream for valid peers.
func parseStream(name string) (conn string, g group, ok bool) {
	for _, g := range groups {
		if conn, ok := strings.CutPrefix(name, g.mark); ok && validID(conn) {
			return conn, g, true
		}
	}
	return "", group{}, false
}

func commandSubject(conn, queue, verb string) string {
	return "mesh.cmd." + conn + "." + queue + "." + verb
}
func queueSubject(conn, queue string) string  { return commandSubject(conn, queue, "*") }
func reportSubject(conn, queue string) string { return "mesh.rpt." + conn + "." + queue }
func beatSubject(conn string) string          { return "mesh.hb." + conn }
func askSubject(conn string) string           { return "mesh.ask." + conn }
func joinSubject(joinID, step string) string  { return "mesh.join." + joinID + "." + step }

// parseCommand is the reverse of commandSubject for subjects with valid parts.
func parseCommand(subject string) (conn, queue, verb string, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 5 || t[0] != "mesh" || t[1] != "cmd" {
		return "", "", "", false
	}
	conn, queue, verb = t[2], t[3], t[4]
	return conn, queue, verb, validID(conn) && slices.Contains(commandQueues, queue) && validID(verb)
}

// parseReport is the reverse of reportSubject for subjects with valid parts.
func parseReport(subject string) (conn, queue string, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != "mesh" || t[1] != "rpt" {
		return "", "", false
	}
	return t[2], t[3], validID(t[2]) && slices.Contains(reportQueues, t[3])
}

// parseBeat is the reverse of beatSubject for subjects with valid parts.
func parseBeat(subject string) (conn string, ok bool) {
	conn, ok = strings.CutPrefix(subject, "mesh.hb.")
	return conn, ok && validID(conn)
}

// parseAsk is the reverse of askSubject for subjects with valid parts.
func parseAsk(subject string) (conn string, ok bool) {
	conn, ok = strings.CutPrefix(subject, "mesh.ask.")
	return conn, ok && validID(conn)
}

// parseJoin is the reverse of joinSubject for subjects with valid parts.
func parseJoin(subject string) (joinID, step string, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != "mesh" || t[1] != "join" {
		return "", "", false
	}
	return t[2], t[3], validJoinID(t[2]) && slices.Contains(steps, t[3])
}

// consumerName names the durable consumer of one command queue of one peer. A peer's
// id has no underscore, so the name tells both apart.
func consumerName(conn, queue string) string { return conn + "_" + queue }

// resetSubject asks the server to hand on again what a consumer holds.
func resetSubject(conn, queue string) string {
	return "$JS.API.CONSUMER.RESET." + streamCommands + "." + consumerName(conn, queue)
}

// accountName names the account that only this peer is in.
func accountName(conn string) string { return "S_" + conn }

// joinUser is the user name under which somebody joins, and parseJoinUser its
// reverse for names with valid parts.
func joinUser(joinID string) string { return "join_" + joinID }

func parseJoinUser(user string) (joinID string, ok bool) {
	joinID, ok = strings.CutPrefix(user, "join_")
	return joinID, ok && validJoinID(joinID)
}

// askUser is the user name under which a peer asks.
func askUser(conn string) string { return "ask_" + conn }

// blobUser is the user name under which a peer gets and puts blobs.
func blobUser(conn string) string { return "blob_" + conn }

// blobSubjects are those of all requests about blobs.
const blobSubjects = "mesh.blob.*.*"

func blobSubject(conn string, put bool) string {
	if put {
		return "mesh.blob." + conn + ".put"
	}
	return "mesh.blob." + conn + ".get"
}

// parseBlobSubject is the reverse of blobSubject for subjects with valid parts.
func parseBlobSubject(subject string) (conn string, put, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != "mesh" || t[1] != "blob" || t[3] != "get" && t[3] != "put" {
		return "", false, false
	}
	return t[2], t[3] == "put", validID(t[2])
}

// inbox is the prefix, without a final dot, of the subjects on which user
// gets answers and pulled messages.
func inbox(user string) string { return "_INBOX_" + user }

// A export is one subject of the hub's account as a peer's account sees it.
type export struct{ inside, outside string }

// exports lists everything a peer may send to, and nothing else.
func exports(conn string) []export {
	var ds []export
	for _, queue := range commandQueues {
		name := streamCommands + "." + consumerName(conn, queue)
		for _, call := range []string{"CONSUMER.MSG.NEXT.", "CONSUMER.INFO."} {
			ds = append(ds, export{inside: "$JS.API." + call + name, outside: hubAPI + "." + call + name})
		}
		// The server puts the native name of the acknowledgement into the
		// message, so this one keeps it.
		ds = append(ds, export{inside: "$JS.ACK." + name + ".>", outside: "$JS.ACK." + name + ".>"})
	}
	for _, queue := range reportQueues {
		ds = append(ds, export{inside: reportSubject(conn, queue), outside: reportSubject(conn, queue)})
	}
	return append(ds, export{inside: beatSubject(conn), outside: beatSubject(conn)})
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
	for _, queue := range reportQueues {
		services = append(services, fmt.Sprintf(`{service: %q}`, reportSubject("*", queue)))
	}
	return fmt.Sprintf(`
system_account: %s
accounts {
  %s {}
  %s {}
  %s {}
  %s { jetstream: enabled, exports: [ %s ] }
}`, accountSystem, accountSystem, accountJoin, accountBlob, accountHub, strings.Join(services, ", "))
}
