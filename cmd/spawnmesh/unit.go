package main

import (
	"strings"
	"text/template"
	"time"
)

// A unit is what a unit file of systemd says.
type unit struct {
	Role    string // hub or spoke
	Program string
	Dir     string
	Run     []string // words behind the program
	Reload  []string
	User    string // of a system unit; "" in a unit of a user
	Agents  bool   // agents are started here
	Drain   time.Duration
}

// afterDrain is how long a stop may take behind the agents: the last messages, the database, the
// server of it.
const afterDrain = 90 * time.Second

// StopSeconds is when systemd gives up a stop.
func (u unit) StopSeconds() int { return int((u.Drain + afterDrain).Seconds()) }

// Root reports whether what runs is root, who starts a private Postgres as another user.
func (u unit) Root() bool { return u.User == "root" }

// Line is a command line as ExecStart has it.
func (u unit) Line(words []string) string {
	quoted := make([]string, 0, len(words)+1)
	for _, w := range append([]string{u.Program}, words...) {
		quoted = append(quoted, quoteUnit(strings.ReplaceAll(w, "$", "$$")))
	}
	return strings.Join(quoted, " ")
}

// Environment is a file as EnvironmentFile has it: whatever is behind the sign is the path.
func (u unit) Environment() string { return strings.ReplaceAll(u.Dir, "%", "%%") + "/environment" }

// Directory is the data directory as a word of a list.
func (u unit) Directory() string { return quoteUnit(u.Dir) }

// quoteUnit quotes a word as systemd reads it: a percent sign begins a specifier.
func quoteUnit(word string) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if word != "" && !strings.ContainsAny(word, " \"'\\;") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// String writes the unit.
func (u unit) String() string {
	var b strings.Builder
	if err := unitText.Execute(&b, u); err != nil {
		panic(err) // the template is ours
	}
	return b.String()
}

// What hides files, devices or address families from the unit hides them from agents, and takes away what a level of
// isolation needs: where agents are started nothing is hidden.
var unitText = template.Must(template.New("unit").Parse(`# Written by: spawnmesh {{.Role}} install
[Unit]
Description=spawnmesh {{.Role}}
{{- if .User}}
After=network-online.target
Wants=network-online.target
{{- end}}

[Service]
Type=notify
ExecStart={{.Line .Run}}
{{- if .Agents}}
# Says what is wrong with a policy; SIGHUP does the same, silently.
ExecReload={{.Line .Reload}}
{{- end}}
{{- if .User}}
User={{.User}}
{{- end}}
# Variables that no other should read: DATABASE_URL=..., mode 0600. It need not be there.
EnvironmentFile=-{{.Environment}}
# Interrupted while it was starting.
SuccessExitStatus=130
Restart=on-failure
RestartSec=2
# What is wrong with settings stays wrong.
RestartPreventExitStatus=2
# The first start makes a database, and the one after an update may change it.
TimeoutStartSec=600
# Longer than --drain.
TimeoutStopSec={{.StopSeconds}}
{{- if .Agents}}
# Only the spoke is told to stop: shims and agents go on, and the next start adopts them.
KillMode=process
# Limits of agents are cgroups below the unit's own. DelegateSubgroup needs systemd 254; an older one ignores it.
Delegate=yes
DelegateSubgroup=spoke
# An agent that runs out of memory does not stop the unit.
OOMPolicy=continue
# Remove this where agents need sudo.
NoNewPrivileges=yes
{{- else}}
# The hub stops its private Postgres itself.
KillMode=mixed
NoNewPrivileges=yes
{{- if .User}}
CapabilityBoundingSet={{if .Root}}CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID{{end}}
ProtectSystem=strict
# Names of sockets whose path is too long are in /tmp.
ReadWritePaths={{.Directory}} /tmp
ProtectHome=read-only
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
{{- end}}
{{- end}}

[Install]
WantedBy={{if .User}}multi-user.target{{else}}default.target{{end}}
`))
