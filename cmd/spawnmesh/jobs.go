package main

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/commands"
)

// spawnJobs orders the jobs of a file: all of them are checked before the first is ordered.
func (a *app) spawnJobs(c *cobra.Command, f spawnFlags, args []string) error {
	switch {
	case len(args) > 0:
		return misuse("a command is given beside --jobs, whose jobs have theirs").Hinting("leave out the command, or --jobs; in the file it is argv")
	case f.req.ID != "":
		return misuse("--id is for one agent, and --jobs chooses the ids itself").Hinting("leave out --id; with --idempotency-key the same line orders nothing twice")
	case len(f.with) > 0 || f.dirty:
		return misuse("--with and --dirty are for one agent, and --jobs orders several").Hinting("order each with a spawn of its own")
	case f.stdin && f.jobs == "-":
		return misuse("--jobs - and --stdin both read standard input").Hinting("put the jobs into a file, or name files with stdin_file in them")
	}
	file, err := until(c.Context(), func() (*jobFile, error) { return a.readJobs(f.jobs) })
	if err != nil {
		return err
	}
	if f.follow && len(file.jobs) > 1 {
		return misuse("%s has %d jobs, and one agent at a time can be followed", file.name, len(file.jobs)).Hinting("use spawn --wait, and follow each with: %s logs -f ID", a.self())
	}
	if f.input, err = until(c.Context(), func() (string, error) { return a.inputOf(f) }); err != nil {
		return err
	}
	file, err = until(c.Context(), func() (*jobFile, error) { file.complete(c.Flags(), f); return file, nil })
	if err != nil {
		return err
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	if err := file.checkSpokes(c.Context(), client); err != nil {
		return err
	}
	if len(file.wrong) > 0 {
		return a.notOrdered(file)
	}
	for _, j := range file.jobs {
		for _, n := range j.notes {
			fmt.Fprintln(a.err, "note:", j.at+":", n)
		}
	}
	if len(file.jobs) == 1 {
		one := file.jobs[0]
		one.wait, one.follow, one.most = f.wait, f.follow, f.most
		return a.order(c.Context(), client, one)
	}
	return a.orderJobs(c.Context(), client, file, f)
}

// notOrdered says all that is wrong with a file. The exit code is that of the first.
func (a *app) notOrdered(file *jobFile) *commands.Refused {
	for _, err := range file.wrong {
		a.printError(err)
	}
	r := commands.Refuse(commands.CodeOf(file.wrong[0]), "nothing of %s was ordered", file.name)
	if r.Code == commands.Validation {
		return r.Hinting("the fields of a job are in: %s spawn --schema", a.self())
	}
	return r
}

// complete puts the flags of the command line over each job, makes its request and checks it.
func (f *jobFile) complete(flags *pflag.FlagSet, line spawnFlags) {
	if len(f.jobs) > maxJobs {
		f.wrong = append(f.wrong, misuse("%s: %d jobs, limit %d", f.name, len(f.jobs), maxJobs))
		return
	}
	first := map[string]string{} // where each key is
	kept := brought{texts: map[string]string{}, most: maxBrought}
	for i, j := range f.jobs {
		err := j.override(flags)
		if key := line.req.IdempotencyKey; key != "" {
			j.req.IdempotencyKey = key + "/" + strconv.Itoa(i+1)
		}
		j.stdin, j.input = line.stdin, line.input
		if s := j.req.Spawn; err == nil && len(s.Argv) == 0 && j.profile == "" && s.Runtime == commands.RuntimeExec {
			err = misuse("argv: no command given").Hinting("write it as a list, as in argv: [echo, hi]")
		}
		if err == nil && len(f.wrong) == 0 { // else a file is read for nothing
			j.notes, err = j.spawnFlags.complete()
		}
		if err == nil {
			err = kept.share(j.req.Values)
		}
		if j.req.Spawn.Task = j.req.ID; err == nil && len(f.wrong) == 0 {
			err = j.req.Check()
		}
		if other := first[j.req.IdempotencyKey]; other != "" && err == nil {
			err = misuse("the job at %s has the same idempotency_key", other)
		}
		if j.req.IdempotencyKey != "" {
			first[j.req.IdempotencyKey] = j.at
		}
		if err != nil {
			r := refusal(err)
			f.wrong = append(f.wrong, misuse("%s: %s", j.at, j.inFields(r.Why)).Hinting("%s", j.inFields(r.Hint)))
		}
	}
}

var flagName = regexp.MustCompile(`--[a-z][a-z-]*`)

// inFields names fields in place of their flags.
func (j *job) inFields(text string) string {
	return flagName.ReplaceAllStringFunc(text, func(name string) string {
		for _, field := range j.fields {
			if "--"+field.flag.Name == name {
				return field.name
			}
		}
		return name
	})
}

// brought is what the jobs of a file bring. The same content is in memory once, however many bring it.
type brought struct {
	texts      map[string]string
	size, most int
}

// share keeps values, and refuses what is too much for this host.
func (b *brought) share(values commands.Values) error {
	for i, v := range values {
		text, known := b.texts[v.Reveal()]
		if !known {
			text = v.Reveal()
			b.texts[text] = text
			b.size += len(text)
		}
		values[i] = commands.NewSecret(text)
	}
	if b.size > b.most {
		return misuse("files and values of the jobs to here have more than %d bytes", b.most).Hinting("order the jobs from several files")
	}
	return nil
}

// override puts the flags that were given over what the file says. One that says where the agent is to run ends the
// other.
func (j *job) override(flags *pflag.FlagSet) (err error) {
	for _, field := range j.fields {
		flag := flags.Lookup(field.flag.Name)
		if flag == nil || !flag.Changed || err != nil {
			continue
		}
		switch flag.Name {
		case "spoke":
			j.req.Any = false
		case "any":
			j.req.Spoke = ""
		}
		err = field.override(flag)
	}
	return err
}
