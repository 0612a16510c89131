package runtime

import "strings"

// Check looks at the variables as [Exec.Spec] will, so that a task can be
// refused before it is accepted. The error is a *Refusal.
func (e Exec) Check() error {
	_, err := e.environment()
	return err
}

// SetHost lets the host set a variable, in place of every other spelling of its
// name that it set before.
func (e *Exec) SetHost(name, value string) {
	for other := range e.Host {
		if strings.EqualFold(other, name) {
			delete(e.Host, other)
		}
	}
	e.Host[name] = value
}
