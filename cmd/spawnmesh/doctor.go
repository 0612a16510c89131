package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/federation"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/signing"
	"github.com/spawnmesh/spawnmesh/spoke"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
	"github.com/spawnmesh/spawnmesh/spoke/supervisor"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at this host and the instance, and say what is wrong", Args: cobra.NoArgs,
		Long: `Look at this host and at the instance in the data directory, and say what is wrong
and what to do about it. The exit code is 1 when something is wrong.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context()) },
	}
}

// doctor looks at everything and reports all of it.
func (a *app) doctor(ctx context.Context) error {
	dir, err := a.dir()
	if err != nil {
		return err
	}
	role, running := a.checkInstance(ctx)
	checks := []control.Check{a.checkPostgres(ctx)}
	told := slices.ContainsFunc(running, func(c control.Check) bool { return c.Name == killLevel }) // a spoke may be in another cgroup than we are
	if !told && !hubAlone(role, dir) {
		checks = append(checks, checkSupervisor()...)
	}
	checks = append(checks, checkDisk(dir), checkPlace(dir), checkKeys(dir), checkPolicy(dir))
	checks = append(checks, checkEntries(dir)...)
	checks = append(checks, running...)
	if databaseAway(running) {
		checks = append(checks, note("database", notLookedAt))
	} else {
		checks = append(checks, a.checkDatabase(ctx, dir)...)
	}
	if err := ctx.Err(); err != nil { // what was cut off is not wrong
		return err
	}
	bad, more := 0, ""
	t := table{head: []string{"CHECK", "RESULT"}, whole: true}
	for i, c := range checks {
		if len(c.Run) > 0 {
			c.Problem += ": " + a.line(c.Run...)
			checks[i] = c
		}
		result := cmp.Or(c.Note, "ok")
		if !c.OK {
			bad++
			first, rest, _ := strings.Cut(c.Problem, "\n")
			result = "WRONG: " + first
			if rest != "" {
				more += fmt.Sprintf("\n%s: %s\n", c.Name, strings.TrimSpace(c.Problem))
			}
		}
		t.rows, t.names = append(t.rows, []string{c.Name, result}), append(t.names, c.Name)
	}
	if err := a.print(checks, anys(checks), t); err != nil {
		return err
	}
	if a.forPeople() {
		fmt.Fprint(a.out, printable(more), "\n", verdictOf(checks, bad), "\n")
	}
	if bad > 0 {
		return exitCode(exitUnexpected)
	}
	return nil
}

// aboutSpoke begins the names of the notes about spokes on which nothing runs now.
const aboutSpoke = "spoke "

// verdictOf sums up all checks in a line.
func verdictOf(checks []control.Check, bad int) string {
	idle := 0
	for _, c := range checks {
		if strings.HasPrefix(c.Name, aboutSpoke) {
			idle++
		}
	}
	text := "nothing is wrong on this host"
	if bad > 0 {
		text = fmt.Sprintf("%d of %d are wrong", bad, len(checks))
	}
	if idle > 0 {
		text += fmt.Sprintf("; spokes that take no work: %d", idle)
	}
	return text
}

// note is a check that is fine and has something to say.
func note(name, text string) control.Check { return control.Check{Name: name, OK: true, Note: text} }

func (a *app) checkPostgres(ctx context.Context) control.Check {
	if a.databaseURL() != "" {
		return note("postgres programs", "not needed: a database is named in the environment")
	}
	dir, err := postgres.Find(ctx, a.getenv("SPAWNMESH_PG_BIN"))
	if err != nil {
		return control.NewCheck("postgres programs", err)
	}
	return note("postgres programs", "in "+dir)
}

// killLevel is the check of how an agent is ended.
const killLevel = "kill level"

// hubAlone reports whether agents are none of this instance's: it is a hub, or was one when it ran,
// and not another hub's spoke, which has a policy.
func hubAlone(role, dir string) bool {
	if role != "" {
		return role == "hub"
	}
	_, noPolicy := os.Stat(policy.File(dir))
	return isHub(dir) && errors.Is(noPolicy, fs.ErrNotExist)
}

// checkSupervisor looks at what this host would do for agents of a spoke started from here.
func checkSupervisor() []control.Check {
	kernel, err := supervisor.Look()
	if err != nil {
		return []control.Check{control.NewCheck(killLevel, err)}
	}
	return []control.Check{note(killLevel, kernel.Kill()), note("limits held", kernel.Limits(os.Geteuid() == 0))}
}

func checkDisk(dir string) control.Check {
	rules, err := policy.Load(dir)
	if err != nil { // another check says so
		rules = &policy.Policy{}
	}
	for ; ; dir = filepath.Dir(dir) {
		free, err := spoke.Free(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue
		}
		if err != nil {
			return control.NewCheck("disk", err)
		}
		if lack := spoke.Reserve(rules).Lack(free); lack != "" {
			return control.Check{Name: "disk", Problem: fmt.Sprintf("that of %s %s; make room, or lower that limit in the policy", dir, lack)}
		}
		return note("disk", fmt.Sprintf("%d GiB free", free.Bytes>>30))
	}
}

// checkPlace looks at who else could change what is in the data directory.
func checkPlace(dir string) control.Check {
	return control.NewCheck("data directory", hostfile.Way(dir))
}

func checkKeys(dir string) control.Check {
	k, err := instance.LoadKeys(dir)
	if errors.Is(err, signing.ErrNoKeys) {
		return note("keys", "none yet in "+dir)
	}
	if err != nil {
		return control.NewCheck("keys", err)
	}
	return note("keys", string(k.InstanceID()))
}

func checkPolicy(dir string) control.Check {
	if _, err := os.Stat(policy.File(dir)); errors.Is(err, fs.ErrNotExist) {
		return note("policy", "no file: nothing may run here as a spoke")
	}
	p, err := policy.Load(dir)
	if err != nil {
		return control.NewCheck("policy", err)
	}
	switch {
	case len(p.Runtimes) == 0:
		return note("policy", "nothing may run here")
	case slices.ContainsFunc(p.Commands, policy.Command.Any):
		return note("policy", "any command may run here")
	}
	var list []string
	for _, c := range p.Commands {
		list = append(list, c.String())
	}
	return note("policy", "these commands may run here: "+strings.Join(list, ", "))
}

// checkInForce says that the spoke that runs here obeys another policy than the file has.
func (a *app) checkInForce(v running) []control.Check {
	p, err := a.policy()
	if err != nil { // what is wrong with the file is said of it
		return nil
	}
	if inForce := v.otherThan(p); inForce != "" {
		return []control.Check{{Name: "policy in force", Problem: strings.Join(a.ofTheFile(inForce), "")}}
	}
	return nil
}

// checkEntries names the entries of the policy that are as good as a shell. The host may
// mean that: each is a note.
func checkEntries(dir string) (list []control.Check) {
	p, err := policy.Load(dir)
	if err != nil {
		return nil // the policy's own check says so
	}
	for _, c := range p.Commands {
		if why := p.Shell(c); why != "" {
			list = append(list, note(fmt.Sprintf("policy, line %d", c.Line()), fmt.Sprintf("%s is as good as a shell: %s", c, why)))
		}
	}
	return list
}

// checkInstance asks the running instance about itself. role is what it is, "" where it does not say.
func (a *app) checkInstance(ctx context.Context) (role string, checks []control.Check) {
	if err := a.alive(ctx); err != nil {
		return "", []control.Check{control.NewCheck("instance", err)}
	}
	v, err := a.askInstance(ctx)
	if commands.CodeOf(err) == commands.Unreachable {
		return "", []control.Check{note("instance", "not running")}
	}
	if err != nil {
		return "", []control.Check{control.NewCheck("instance", err)}
	}
	checks = []control.Check{note("instance", fmt.Sprintf("%s, pid %d", v.Role, v.Pid))}
	if v.API != "" {
		checks = append(checks, note("api", "for other programs at "+v.API))
	}
	checks = append(checks, a.checkInForce(v)...)
	if databaseAway(v.Health) {
		return v.Role, append(append(checks, v.Health...), note("connections", notLookedAt))
	}
	checks = append(checks, a.checkWork(v)...)
	checks = append(checks, v.Health...)
	return v.Role, append(checks, a.checkSpokes(ctx)...)
}

// notLookedAt is said of what is in the database where that does not answer: each such look would wait for it anew.
const notLookedAt = "not looked at: the database does not answer"

// databaseAway reports whether the instance that runs has no answer of its database.
func databaseAway(checks []control.Check) bool {
	return slices.ContainsFunc(checks, func(c control.Check) bool { return c.Name == control.DatabaseCheck && !c.OK })
}

// aliveTime is how long an instance may take to say that it is alive before doctor calls it hung.
const aliveTime = 8 * time.Second

// alive refuses with why where what runs here does not answer at all.
func (a *app) alive(ctx context.Context) error {
	c, err := a.client()
	if err != nil {
		return nil // who asks next says so
	}
	l := a.lasting("waiting for the instance")
	defer l.done()
	return c.Alive(ctx, aliveTime)
}

// checkWork says whether the spoke that runs here starts agents, or what keeps it from that. Somebody may mean it: each is a note.
func (a *app) checkWork(v running) (list []control.Check) {
	for _, r := range v.Reasons {
		list = append(list, note("work", "this spoke "+a.withFix(r)))
	}
	if v.Slots > 0 && len(list) == 0 {
		list = append(list, note("work", fmt.Sprintf("is taken; %d of %d slots are in use", v.Running, v.Slots)))
	}
	return list
}

// checkSpokes says which spokes nothing runs on now. That is no fault of this
// instance, and nothing on this host mends it: each is a note.
func (a *app) checkSpokes(ctx context.Context) (list []control.Check) {
	c, err := a.client()
	var views []connectionView
	if err == nil {
		views, err = listed(ctx, c)
	}
	if err != nil {
		return []control.Check{control.NewCheck("connections", err)}
	}
	for _, v := range views {
		if v.Full && !v.State.Ended() {
			list = append(list, control.Check{Name: "inbox of " + v.Name, Problem: "no more of its messages are kept" + span(v.FullSince, nil) + "; they wait there, and what becomes of agents is not known; to make room, " + federation.InboxNext})
		}
		if !isSpoke(v) {
			list = append(list, a.checkHub(v)...)
			continue
		}
		// the first of them; connections show has the rest
		if i := slices.IndexFunc(v.Reasons, idles); i >= 0 && !v.State.Ended() {
			list = append(list, note(aboutSpoke+v.Name, a.briefly(v.Reasons[i])+"; see: "+a.line("connections", "show", v.Name)))
		}
	}
	return list
}

// idles reports whether a spoke takes no work for a reason. One whose clock is ahead does: it is heard no more, which a check
// of its own says. Only of one whose clock is behind it is known by how much.
func idles(r commands.WhyReason) bool {
	switch r.Code {
	case commands.CauseSlots, commands.CauseInbox:
		return false
	case commands.CauseClock:
		return r.Figure != nil
	}
	return true
}

// checkHub says why nothing is started here for a hub: somebody has frozen it, here or there.
func (a *app) checkHub(v connectionView) (list []control.Check) {
	for _, r := range v.Reasons {
		if r.Code == commands.CauseFreeze {
			list = append(list, note("hub "+v.Name, a.withFix(r)))
		}
	}
	return list
}
