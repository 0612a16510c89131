package backlog

import (
	"embed"
	"strings"
	"sync"
)

// Statements of more than a line or two stand in sql/*.sql, by theme. A line
// "-- name: x" begins the one called x; a line "-- include: y" stands for the
// text of y, which may be a part of a statement only.
//
//go:embed sql/*.sql
var files embed.FS

// statements reads the files when the first statement is asked for: most runs of
// this binary are shims, which have no database.
var statements = sync.OnceValue(func() map[string]string {
	raw := map[string]string{}
	list, err := files.ReadDir("sql")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, f := range list {
		text, err := files.ReadFile("sql/" + f.Name())
		if err != nil {
			panic(err)
		}
		for name, body := range split(string(text)) {
			if _, twice := raw[name]; twice {
				panic("two statements are called " + name)
			}
			raw[name] = body
		}
	}
	whole := make(map[string]string, len(raw))
	for name := range raw {
		include(raw, whole, name)
	}
	return whole
})

// statement returns a statement, or a part of one, by its name.
func statement(name string) string {
	text, found := statements()[name]
	if !found {
		panic("no statement is called " + name)
	}
	return text
}

// split returns the statements of a file by their names, without other comments.
func split(file string) map[string]string {
	list := map[string]string{}
	var name string
	var body strings.Builder
	end := func() {
		if name != "" {
			list[name] = body.String()
		}
		body.Reset()
	}
	for line := range strings.Lines(file) {
		plain := strings.TrimSpace(line)
		if called, begins := strings.CutPrefix(plain, "-- name: "); begins {
			end()
			name = called
			continue
		}
		if name != "" && (!strings.HasPrefix(plain, "--") || strings.HasPrefix(plain, "-- include: ")) && plain != "" {
			body.WriteString(line)
		}
	}
	end()
	return list
}

// include returns the text of a statement with what it includes, and keeps it.
func include(raw, whole map[string]string, name string) string {
	if text, known := whole[name]; known {
		return text
	}
	body, found := raw[name]
	if !found {
		panic("no statement is called " + name)
	}
	var b strings.Builder
	for line := range strings.Lines(body) {
		if part, is := strings.CutPrefix(strings.TrimSpace(line), "-- include: "); is {
			b.WriteString(include(raw, whole, part))
		} else {
			b.WriteString(line)
		}
	}
	whole[name] = b.String()
	return whole[name]
}
