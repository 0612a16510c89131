package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// cronForm is what --cron takes.
const cronForm = "due at `TEXT`: minute, hour, day of the month, month and day of the week, or @hourly, @daily, @weekly, @monthly, @yearly"

func (a *app) scheduleCreateCommand() *cobra.Command {
	var f spawnFlags
	var v api.NewSchedule
	var overlap string
	c := &cobra.Command{
		Use: "create NAME --cron TEXT [flags] -- CMD [ARG...]", Short: "Spawn an agent again and again",
		Long: `Spawn an agent again and again: whenever the schedule is due, the hub orders one as
"spawnmesh spawn" does, with the same flags. Values and files are read now, and kept
encrypted by the hub.

--cron has five fields, as cron has them: a value, a list (1,3), a range (1-5), steps
(*/10) or *, and names of months and days (jan, mon). Where day of the month and day
of the week are both given, either is due.

Each time of a day is due once when the clock of the zone is put forward or back; a
schedule whose hour is * is due in every hour that passes. What a hub misses while it
is down is ordered once when it is back.`,
		Example: `  spawnmesh schedule create nightly --cron '30 2 * * *' --spoke attic -- ./backup.sh
  spawnmesh schedule create probe --cron '*/10 * * * mon-fri' --any -- ./probe
  spawnmesh schedule create report --cron @weekly --zone Europe/Berlin -f report.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			v.Overlap = api.Overlap(overlap)
			return a.createSchedule(c, v, f, args)
		},
	}
	fl := c.Flags()
	f.fields(fl)
	_ = fl.MarkHidden("idempotency-key") // each of its orders has its own
	fl.StringVar(&v.Cron, "cron", "", cronForm+" (required)")
	fl.StringVar(&v.Zone, "zone", "", "by the clock of `ZONE`, such as Europe/Berlin (default: that of the hub's host)")
	fl.StringVar(&overlap, "overlap", string(api.Skip), "`WHAT` becomes of it while its last agent has not ended: skip, queue or replace")
	fl.StringVarP(&f.jobs, "jobs", "f", "", "the agent is the one job in `FILE` (YAML, as in spawn); - is standard input")
	return c
}

func (a *app) createSchedule(c *cobra.Command, v api.NewSchedule, f spawnFlags, args []string) error {
	before := c.ArgsLenAtDash()
	if before < 0 {
		before = len(args)
	}
	switch {
	case before > 1:
		return misuse("a schedule has one name, and %d words are given before --", before).Hinting("write the command behind --, as in: %s schedule create NAME --cron '30 2 * * *' -- CMD", a.self())
	case before == 0:
		return misuse("a schedule needs a name").Hinting("write it first, as in: %s schedule create NAME --cron '30 2 * * *' -- CMD", a.self())
	case v.Cron == "":
		return misuse("a schedule needs --cron, which says when it is due").Hinting("as in: --cron '30 2 * * mon-fri'")
	}
	if len(args) == 1 && f.jobs == "" && f.req.Spawn.Runtime != commands.RuntimeNoop {
		return misuse("no command given").Hinting("put it after --, as in").Running("schedule", "create", args[0], "--cron", v.Cron, "--", "CMD")
	}
	v.Name = args[0]
	task, err := a.templateOf(c, f, args[1:])
	if err != nil {
		return err
	}
	v.Task = task
	client, err := a.client()
	if err != nil {
		return err
	}
	made, err := control.Answer(client.API().CreateScheduleWithResponse(c.Context(), v))
	if err != nil {
		return err
	}
	if made.Note != "" {
		fmt.Fprintf(a.err, "note: what it orders would not run now: %s\n", commands.OneLine(made.Note))
	}
	a.did("the schedule %s was created; see: %s", made.Name, a.line("schedule", "show", made.Name))
	return a.sayDue(made, "was created, in the zone "+made.Zone)
}

// templateOf is the order of a schedule, by flags or by a file with one job.
func (a *app) templateOf(c *cobra.Command, f spawnFlags, argv []string) (task api.NewTask, err error) {
	notes := []string(nil)
	if f.jobs == "" {
		f.req.Spawn.Argv = argv
		notes, err = until(c.Context(), f.complete)
	} else {
		var j *job
		if j, err = a.theJob(c, f, argv); err == nil {
			f, notes = j.spawnFlags, j.notes
		}
	}
	for _, n := range notes {
		fmt.Fprintln(a.err, "note:", n)
	}
	f.req.ID = "" // each agent has its own
	return f.req.Revealed(), err
}

// theJob is the one job of a file.
func (a *app) theJob(c *cobra.Command, f spawnFlags, argv []string) (*job, error) {
	if len(argv) > 0 {
		return nil, misuse("a command is given beside --jobs, whose job has its own").Hinting("leave out the command, or --jobs; in the file it is argv")
	}
	file, err := until(c.Context(), func() (*jobFile, error) {
		file, err := a.readJobs(f.jobs)
		if err == nil {
			file.complete(c.Flags(), f)
		}
		return file, err
	})
	if err != nil {
		return nil, err
	}
	for _, err := range file.wrong {
		a.printError(err)
	}
	if len(file.wrong) > 0 {
		return nil, misuse("no schedule was created of %s", file.name).Hinting("the fields of a job are in: %s spawn --schema", a.self())
	}
	if len(file.jobs) != 1 {
		return nil, misuse("%s has %d jobs, and a schedule orders one", file.name, len(file.jobs)).Hinting("create a schedule for each, from files of their own")
	}
	return file.jobs[0], nil
}
