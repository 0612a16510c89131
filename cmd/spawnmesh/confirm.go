package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
)

// meant asks whether something is meant; where nobody says so the answer is no, and where ctx has ended its error.
func (a *app) meant(ctx context.Context, question string, no error) error {
	if a.asks(ctx, question) {
		return nil
	}
	return cmp.Or(ctx.Err(), no)
}

// asks asks a person, until ctx ends; where none sits at the terminal the answer is no. What was typed before
// is no answer: it may have been pasted along with a token.
func (a *app) asks(ctx context.Context, question string) bool {
	if !terminal(a.in) || !forgetTyped(a.in) {
		return false
	}
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answer, err := typedLine(ctx, a.in)
	if err != nil {
		fmt.Fprintln(a.err) // whoever typed no line has ended none
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}

// typedLine reads a line that a person types, until ctx ends.
func typedLine(ctx context.Context, in io.Reader) (string, error) {
	return until(ctx, func() (string, error) { return readLine(in) })
}

// until reads what may have to be waited for, as a pipe that nobody writes, until ctx ends. Then it leaves the reader
// behind: the program ends.
func until[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type end struct {
		got T
		err error
	}
	done := make(chan end, 1)
	go func() {
		got, err := read()
		done <- end{got, err}
	}()
	select {
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case e := <-done:
		return e.got, e.err
	}
}

// readLine takes nothing that is behind the line.
func readLine(in io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(in, b); err != nil {
			return string(line), err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}
