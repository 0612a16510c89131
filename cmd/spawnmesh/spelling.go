package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostEdits is how many characters may be wrong in a word, and never more than half of it.
const mostEdits = 2

// nearest are the names that a word was most likely meant to be: those that it begins, else those
// that are spelt most like it.
func nearest(word string, names []string) (found []string) {
	least := min(mostEdits, len(word)/2)
	for _, name := range names {
		n := edits(word, name)
		if word != "" && strings.HasPrefix(name, word) {
			n = 0
		}
		if n < least {
			least, found = n, nil
		}
		if n == least && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

// edits counts the characters that have to be put in, left out or changed to make one word of another.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			n := diagonal
			if a[i] != b[j] {
				n = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], n
		}
	}
	return row[len(b)]
}

// commandsLike are the commands below c that a word may mean, also by an alias or another word for one.
func commandsLike(c *cobra.Command, word string) (found []string) {
	var names []string
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if slices.Contains(sub.SuggestFor, word) {
			found = append(found, sub.Name())
		}
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	if found != nil {
		return found
	}
	return nearest(word, names)
}

// flagsLike are the flags of c that a word may mean, as they are typed.
func flagsLike(c *cobra.Command, word string) (found []string) {
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	for _, name := range nearest(strings.TrimLeft(word, "-"), names) {
		found = append(found, "--"+name)
	}
	return found
}
