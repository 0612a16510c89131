package main

import (
	"fmt"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A jobRefused is what became of a job that was not ordered, as a program reads it.
type jobRefused struct {
	Job   string    `json:"job"`
	Error errorView `json:"error"`
}

// say says what came of a job. The caller holds mu.
func (o *jobOrders) say(i int) {
	a, end, j := o.a, o.ends[i], o.file.jobs[i]
	if end.err != nil {
		o.code = max(o.code, a.printError(j.placed(end.err)))
		if a.output != "name" && !a.forPeople() {
			o.tell(i)
		}
		return
	}
	o.given++
	a.did("%d agents were ordered; see: %s", o.given, a.line("agents"))
	switch {
	case o.wait && a.forPeople():
		ordered := "was ordered"
		if end.answer.Existing {
			ordered = "was ordered before"
		}
		fmt.Fprintln(a.err, printable(fmt.Sprintf("agent %s %s on %s: %s", end.answer.ShortID, ordered, end.answer.Spoke, j.what())))
	case o.wait:
	case a.forPeople():
		before := ""
		if end.answer.Existing {
			before = "  (ordered before)"
		}
		fmt.Fprintln(a.out, printable(end.answer.ShortID+"  "+end.answer.Spoke+"  "+j.what()+before))
	default:
		o.tell(i)
	}
	if o.wait || a.forPeople() { // else the answer has it
		a.sayNotNow(j.at+": ", end.answer)
	}
}

// tell tells a program what became of a job; JSON as a whole comes when all are.
func (o *jobOrders) tell(i int) {
	switch a := o.a; a.output {
	case "ndjson":
		_ = a.printLine(o.view(i)) // heard by who prints the answer
	case "name":
		fmt.Fprintln(a.out, o.ends[i].answer.ID)
	}
}

// view is what became of a job, as a program reads it.
func (o *jobOrders) view(i int) any {
	end, j := o.ends[i], o.file.jobs[i]
	switch {
	case end.err != nil:
		return jobRefused{j.at, o.a.errorView(end.err)}
	case end.seen != nil:
		return jobAgent{*end.seen, j.at, end.answer.Existing}
	}
	return jobAnswer{end.answer, j.at}
}

// what names a job for people.
func (j *job) what() string {
	switch {
	case j.req.Spawn.Title != "":
		return j.req.Spawn.Title
	case len(j.req.Spawn.Argv) > 0:
		return strings.ReplaceAll(commands.ShellLine(j.req.Spawn.Argv), "\n", " ")
	}
	return j.req.Spawn.Runtime
}

// print prints at once what became of all jobs, where a program wants it so.
func (o *jobOrders) print() error {
	if o.a.output != "json" {
		return nil
	}
	list := []any{}
	for i, end := range o.ends {
		if end.over {
			list = append(list, o.view(i))
		}
	}
	return o.a.printJSON(list)
}
