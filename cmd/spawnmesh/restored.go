package main

import "fmt"

// A held says which things a restore keeps from going on, and how that is said.
type held[T any] struct {
	is   func(T) bool
	goOn func(T) (T, error) // lets one go on
	list string             // the command that has them, as in "schedule"
	did  string             // what is true of those that go on, as in "schedules go on"
	none string             // said where there are none
	show func([]T) error
}

// letGoOn lets those of list go on that a restore has held.
func letGoOn[T any](a *app, list []T, h held[T]) error {
	var done []T
	for _, v := range list {
		if !h.is(v) {
			continue
		}
		v, err := h.goOn(v)
		if err != nil {
			return fmt.Errorf("%d %s, and then: %w", len(done), h.did, err)
		}
		done = append(done, v)
		a.did("of those that a restore has held, %d %s; see: %s", len(done), h.did, a.line(h.list, "list"))
	}
	if len(done) == 0 && a.forPeople() {
		_, err := fmt.Fprintln(a.out, h.none)
		return err
	}
	return h.show(done)
}
