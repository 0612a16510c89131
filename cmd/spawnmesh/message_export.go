package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

func (a *app) messageExportCommand() *cobra.Command {
	resolve := false
	c := &cobra.Command{
		Use: "export FILE|-", Short: "Append new messages to a file, a line of JSON each", Args: cobra.ExactArgs(1),
		Long: `Append to FILE the messages that it does not have yet, a line of JSON each, in the
order of their numbers. The last whole line of FILE says how far it is: an export
that was interrupted goes on there, without a gap or a line twice. Each line names
its instance and workspace (log): a file of another one is refused. What retention
has removed before it was exported is missing, which is said.`,
		Example: "  spawnmesh message export messages.jsonl\n  spawnmesh message export - --resolve-blobs | gzip >messages.jsonl.gz",
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				if args[0] == "-" {
					log, err := a.goesOn(ctx, c, lastLine{})
					if err == nil {
						_, err = a.exportMessages(ctx, c, a.out, 0, log, resolve, func() error { return nil })
					}
					return err
				}
				return a.appendMessages(ctx, c, args[0], resolve)
			})
		},
	}
	c.Flags().BoolVar(&resolve, "resolve-blobs", false, "with what blobs have, of up to 256 KiB each")
	return c
}

// An exported message is a line of an export.
type exported struct {
	api.Message
	Log string `json:"log"` // the instance and the workspace that it is of
}

// firstOfLine is what each line of an export begins with.
const firstOfLine = `{"at":"`

// A lastLine is that of an export.
type lastLine struct {
	Seq int64  `json:"seq"`
	ID  string `json:"id"`
	Log string `json:"log"`
	end int64  // where it ends in the file
}

func (a *app) appendMessages(ctx context.Context, c *control.Client, name string, resolve bool) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return misuse("writing the messages: %v", err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return commands.Refuse(commands.Conflict, "another export writes to %s", name).Hinting("wait until it is done")
	}
	last, err := findLast(f)
	if err != nil {
		return fmt.Errorf("looking how far %s is: %w", name, err)
	}
	log, err := a.goesOn(ctx, c, last)
	if err != nil {
		return err
	}
	if err := cutBehind(f, last.end); err != nil {
		return fmt.Errorf("cutting off what an interrupted export has left in %s: %w", name, err)
	}
	n, err := a.exportMessages(ctx, c, f, last.Seq, log, resolve, f.Sync)
	if err == nil {
		err = fsync.Dir(filepath.Dir(name))
	}
	if err != nil {
		return err
	}
	a.did("%s has %d messages more", name, n)
	if a.forPeople() {
		_, err = fmt.Fprintf(a.out, "%s has %d messages more\n", name, n)
	}
	return err
}

// mostOfLine is longer than any line of an export.
const mostOfLine = 2 << 20

// findLast finds the last line of an export. Behind it there is nothing, or part of a line, which an interrupted one has left. It changes nothing.
func findLast(f *os.File) (last lastLine, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return last, err
	}
	tail := make([]byte, min(size, mostOfLine))
	start := size - int64(len(tail))
	if _, err := f.ReadAt(tail, start); err != nil {
		return last, err
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	if end > 0 {
		line := tail[bytes.LastIndexByte(tail[:end-1], '\n')+1 : end]
		if json.Unmarshal(line, &last) == nil && last.Seq > 0 && last.ID != "" {
			last.end = start + int64(end)
			return last, nil
		}
	} else if first := tail[:min(len(tail), len(firstOfLine))]; start == 0 && bytes.HasPrefix([]byte(firstOfLine), first) {
		return last, nil
	}
	return lastLine{}, misuse("it is no export of messages, or something else was written to its end").
		Hinting("name a file that is not there yet, or one that message export has written")
}

// cutBehind cuts a file off, and goes on there.
func cutBehind(f *os.File, end int64) error {
	if err := f.Truncate(end); err != nil {
		return err
	}
	_, err := f.Seek(end, io.SeekStart)
	return err
}

// A messageLog is the one of an instance and a workspace.
type messageLog struct {
	name      string
	removedTo int64 // retention has removed messages up to this number
}

// exportMessages writes what comes after a number, and returns how many that were. What it has written is kept before it goes on.
func (a *app) exportMessages(ctx context.Context, c *control.Client, out io.Writer, after int64, log messageLog, resolve bool, keep func() error) (n int, err error) {
	most := 200
	p := api.ListMessagesParams{After: &after, Limit: &most, Resolve: resolve}
	if log.removedTo > after {
		fmt.Fprintf(a.err, "messages up to %d were removed by retention; those after %d that are missing were not exported before\n", log.removedTo, after)
	}
	for {
		page, err := control.Answer(c.API().ListMessagesWithResponse(ctx, a.workspace, &p))
		if err != nil || len(page.Items) == 0 {
			return n, err
		}
		var lines bytes.Buffer
		for _, m := range page.Items {
			if err := encode(&lines, exported{m, log.name}, ""); err != nil {
				return n, err
			}
		}
		if _, err := out.Write(lines.Bytes()); err != nil {
			return n, err
		}
		if err := keep(); err != nil {
			return n, err
		}
		n, after = n+len(page.Items), page.Items[len(page.Items)-1].Seq
	}
}

// goesOn reports of which log the messages are, once it has seen that a line is one of it. One that retention has removed since is known by the name of its log.
func (a *app) goesOn(ctx context.Context, c *control.Client, last lastLine) (log messageLog, err error) {
	instance, err := control.Answer(c.API().GetInstanceWithResponse(ctx))
	if err != nil {
		return log, err
	}
	before, one := max(last.Seq-1, 0), 1
	page, err := control.Answer(c.API().ListMessagesWithResponse(ctx, a.workspace, &api.ListMessagesParams{After: &before, Limit: &one}))
	log = messageLog{instance.ID + "/" + a.workspace, page.RemovedTo}
	if err != nil || last.Seq == 0 {
		return log, err
	}
	if last.isOf(log, page.Items) {
		return log, nil
	}
	return log, commands.Refuse(commands.Conflict, "the last line of the file, number %d, is not of this log", last.Seq).
		Hinting("it is of another instance or workspace, or the instance was restored from a backup since: export to a new file")
}

// isOf reports whether a line is of a log that has these messages from its number on.
func (l lastLine) isOf(log messageLog, list []api.Message) bool {
	if len(list) > 0 && list[0].Seq == l.Seq {
		return list[0].ID == l.ID
	}
	return l.Seq <= log.removedTo && l.Log == log.name
}
