package main

import (
	"fmt"
	"io"
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
		from, err := os.Open(f.stdinFile)
		if err != nil {
			return misuse("reading --stdin-file: %v", err).Hinting("name a file that is there and that you may read")
		}
		defer from.Close()
		if input, err = allOf(from, "--stdin-file", f.stdinFile); err != nil {
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
	return allOf(a.in, "--stdin", "standard input")
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
	f, err := os.Open(src)
	if err != nil {
		return file, "", misuse("reading --file %s: %v", commands.Clip(pair), err).Hinting("name a file that is there and that you may read")
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		return file, "", misuse("--file %s: %s is a directory", commands.Clip(pair), src).Hinting("give each file of it, or one archive, which the agent unpacks")
	}
	if err == nil {
		file.Exec = info.Mode()&0o111 != 0
		content, err = allOf(f, "--file", src)
	}
	return file, content, err
}

// allOf reads what flag names, to the limit of all together.
func allOf(r io.Reader, flag, name string) (string, error) {
	raw, err := io.ReadAll(io.LimitReader(r, commands.MaxValueBytes+1))
	switch {
	case err != nil:
		return "", misuse("reading %s, %s: %v", flag, name, err).Hinting("name what can be read to its end")
	case len(raw) > commands.MaxValueBytes:
		return "", misuse("%s: %s has more than %d bytes (96 KiB), the limit of all that comes with an order", flag, name, commands.MaxValueBytes).Hinting("%s", tooLarge)
	}
	return string(raw), nil
}
