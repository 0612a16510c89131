package main

import (
	"io"
	"strings"
)

// Colours of a terminal. What they say is in the words, too.
const (
	green, red, yellow = "\x1b[32m", "\x1b[31m", "\x1b[33m"
	plain              = "\x1b[0m"
)

// colours reports whether w is shown in colours: a terminal that has them, whose user wants them.
func (a *app) colours(w io.Writer) bool {
	term := a.variable("TERM")
	return !a.noColour && terminal(w) && a.variable("NO_COLOR") == "" && term != "" && term != "dumb"
}

// variable is one of the environment, where there is one.
func (a *app) variable(name string) string {
	if a.getenv == nil {
		return ""
	}
	return a.getenv(name)
}

// coloured are the columns, and the names of pairs, whose words have a colour.
var coloured = map[string]bool{"STATE": true, "VERDICT": true, "RESULT": true, "SEEN": true, "STATUS": true, "state": true, "verdict": true}

// colourWords are the first words that a state, a verdict or a result may begin with.
var colourWords = []struct{ colour, words string }{
	{green, "running|active|alive|ok|takes work|up"},
	{red, "failed|failing|refused|lost|could not start|unavailable|out of memory|timed out|revoked|rejected|is revoked|is rejected|dead|WRONG|blocked|" + ordersNothing},
	{yellow, "queued|claimed|awaiting_input|paused|pending|suspended|late|stale|never seen|is |has |starts |nothing |keeps |signs |refuses |takes less|sends more|no more"},
}

// colourOf returns the colour of words in such a column; "" for none.
func colourOf(words string) string {
	for _, c := range colourWords {
		for first := range strings.SplitSeq(c.words, "|") {
			if strings.HasPrefix(words, first) {
				return c.colour
			}
		}
	}
	return ""
}

// A stretch is a part of a line that has a colour: from one byte to before another.
type stretch struct {
	from, to int
	colour   string
}

// paint puts the colours of stretches into a line, which may have been cut.
func paint(line string, spans []stretch) string {
	var text strings.Builder
	at := 0
	for _, s := range spans {
		if s.from >= len(line) {
			break
		}
		to := min(s.to, len(line))
		text.WriteString(line[at:s.from] + s.colour + line[s.from:to] + plain)
		at = to
	}
	return text.String() + line[at:]
}
