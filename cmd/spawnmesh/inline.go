package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spawnmesh/spawnmesh/commands"
)

// tooLarge says what is done with what is too large to come with an order.
const tooLarge = "put what is larger where the spoke's host can read it, or let the agent fetch it"

// bring reads the files and the standard input that come with an order.
func (f *spawnFlags) bring() error {
	r := &f.req
	for _, pair := range f.files {
		file, content, err := inlineFile(pair)
		if err != nil {
			return err
		}
		r.Spawn.Files, r.Values = append(r.Spawn.Files, file), append(r.Values, commands.NewSecret(content))
	}
	input := f.input
	if f.stdinFile != "" && !f.stdin {
		var err error
		if input, err = inOrder("--stdin-file", f.stdinFile).read(nil); err != nil {
			return err
		}
	}
	if input != "" { // without it that of an agent is empty
		r.Spawn.Stdin, r.Values = true, append(r.Values, commands.NewSecret(input))
	}
	return nil
}

// inputOf is what --stdin brings, if it is given.
func (a *app) inputOf(f spawnFlags) (string, error) {
	if !f.stdin {
		return "", nil
	}
	return a.standardInput()
}

// standardInput reads what --stdin brings.
func (a *app) standardInput() (string, error) {
	if terminal(a.in) {
		fmt.Fprintln(a.err, "type what the agent reads, and end it with Ctrl-D")
	}
	s := inOrder("--stdin", "")
	s.input = true
	return s.read(a.in)
}

// inlineFile reads SRC:DST. The last colon parts them: a path here may have others.
func inlineFile(pair string) (file commands.File, content string, err error) {
	at := strings.LastIndexByte(pair, ':')
	if at < 1 {
		return file, "", misuse("--file %s is not SRC:DST", commands.Clip(pair)).Hinting("write --file FILE:PATH, with the path that the agent finds it by, from its directory")
	}
	src := pair[:at]
	file.Path = pair[at+1:]
	if err := commands.CheckFilePath(file.Path); err != nil {
		return file, "", misuse("--file %s: %v", commands.Clip(pair), err).Hinting("write a path from the agent's directory, as in --file %s:input/data", commands.Clip(src))
	}
	if info, err := os.Stat(src); err == nil {
		if info.IsDir() {
			return file, "", misuse("--file %s: %s is a directory", commands.Clip(pair), src).Hinting("give each file of it, or one archive, which the agent unpacks")
		}
		file.Exec = info.Mode()&0o111 != 0
	}
	content, err = inOrder("--file "+commands.Clip(pair), src).read(nil)
	return file, content, err
}

// inOrder is what comes with an order; the limit is that of all together.
func inOrder(flag, path string) source {
	return source{what: flag, path: path, most: commands.MaxValueBytes, larger: tooLarge}
}
