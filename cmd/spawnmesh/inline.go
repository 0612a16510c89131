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
	input := f.input
	if f.stdinFile != "" && !f.stdin {
		var err error
		if input, err = inOrder("--stdin-file", f.stdinFile).read(nil); err != nil {
			return err
		}
	}
	prompt, err := f.task()
	if err != nil {
		return err
	}
	room := commands.MaxValueBytes - len(input) - len(prompt)
	for _, v := range r.Values {
		room -= len(v.Reveal())
	}
	for _, pair := range f.files {
		n, err := f.bringFile(pair, room)
		if err != nil {
			return err
		}
		room -= n
	}
	if input != "" { // without it that of an agent is empty
		r.Spawn.Stdin, r.Values = true, append(r.Values, commands.NewSecret(input))
	}
	if prompt != "" {
		r.Spawn.Prompt, r.Values = true, append(r.Values, commands.NewSecret(prompt))
	}
	return nil
}

// task reads the prompt of an order.
func (f *spawnFlags) task() (text string, err error) {
	switch {
	case f.prompt != "" && f.promptFile != "":
		return "", misuse("--prompt and --prompt-file are both given").Hinting("give the one that is the task")
	case f.promptFile == "":
		return f.prompt, nil
	case f.promptFile == "-":
		text = f.said
	default:
		text, err = inOrder("--prompt-file", f.promptFile).read(nil)
	}
	if err == nil && text == "" {
		err = misuse("--prompt-file %s is empty", commands.Clip(f.promptFile)).Hinting("write the task into it")
	}
	return text, err
}

// bringFile reads a file into the order, and returns how much it has; one for which there is no room goes beside it, where that may be.
func (f *spawnFlags) bringFile(pair string, room int) (n int, err error) {
	src, file, size, err := namedFile(pair)
	if err != nil {
		return 0, err
	}
	if f.beside && size > int64(room) {
		f.large = append(f.large, largeFile{pair, src, file})
		return 0, nil
	}
	content, err := inOrder("--file "+commands.Clip(pair), src).read(nil)
	f.req.Spawn.Files, f.req.Values = append(f.req.Spawn.Files, file), append(f.req.Values, commands.NewSecret(content))
	return len(content), err
}

// inputOf is what --stdin or --prompt-file - brings, if it is given.
func (a *app) inputOf(f spawnFlags) (string, error) {
	switch {
	case f.stdin:
		return a.standardInput("--stdin")
	case f.promptFile == "-":
		return a.standardInput("--prompt-file -")
	}
	return "", nil
}

// standardInput reads what a flag brings from there.
func (a *app) standardInput(flag string) (string, error) {
	if terminal(a.in) {
		fmt.Fprintln(a.err, "type what the agent reads, and end it with Ctrl-D")
	}
	s := inOrder(flag, "")
	s.input = true
	return s.read(a.in)
}

// namedFile reads SRC:DST, and looks how large that file is. The last colon parts them: a path here may have others.
func namedFile(pair string) (src string, file commands.File, size int64, err error) {
	at := strings.LastIndexByte(pair, ':')
	if at < 1 {
		return "", file, 0, misuse("--file %s is not SRC:DST", commands.Clip(pair)).Hinting("write --file FILE:PATH, with the path that the agent finds it by, from its directory")
	}
	src = pair[:at]
	file.Path = pair[at+1:]
	if err := commands.CheckFilePath(file.Path); err != nil {
		return "", file, 0, misuse("--file %s: %v", commands.Clip(pair), err).Hinting("write a path from the agent's directory, as in --file %s:input/data", commands.Clip(src))
	}
	if info, err := os.Stat(src); err == nil {
		if info.IsDir() {
			return "", file, 0, misuse("--file %s: %s is a directory", commands.Clip(pair), src).Hinting("send it with --with %s", commands.Clip(src))
		}
		file.Exec = info.Mode()&0o111 != 0
		if info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	return src, file, size, nil
}

// inOrder is what comes with an order; the limit is that of all together.
func inOrder(flag, path string) source {
	return source{what: flag, path: path, most: commands.MaxValueBytes, larger: tooLarge}
}
