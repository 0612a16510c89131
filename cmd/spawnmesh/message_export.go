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
that was interrupted goes on there, without a gap or a line twice. What retention has
removed before it was exported is missing, which is said.`,
		Example: "  spawnmesh message export messages.jsonl\n  spawnmesh message export - --resolve-blobs | gzip >messages.jsonl.gz",
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				if args[0] == "-" {
					_, err := a.exportMessages(ctx, c, a.out, lastLine{}, resolve, func() error { return nil })
					return err
				}
				return a.appendMessages(ctx, c, args[0], resolve)
			})
		},
	}
	c.Flags().BoolVar(&resolve, "resolve-blobs", false, "with what blobs have, of up to 256 KiB each")
	return c
}

// A lastLine is that of an export.
type lastLine struct {
	Seq int64  `json:"seq"`
	ID  string `json:"id"`
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
	last, err := cutBack(f)
	if err != nil {
		return fmt.Errorf("looking how far %s is: %w", name, err)
	}
	n, err := a.exportMessages(ctx, c, f, last, resolve, f.Sync)
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

// cutBack finds the last whole line of an export and cuts off what is behind it, which an interrupted one has left.
func cutBack(f *os.File) (last lastLine, err error) {
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
	for ; end > 0; end = bytes.LastIndexByte(tail[:end-1], '\n') + 1 {
		line := tail[bytes.LastIndexByte(tail[:end-1], '\n')+1 : end]
		last = lastLine{end: start + int64(end)}
		if json.Unmarshal(line, &last) == nil && last.Seq > 0 && last.ID != "" {
			break
		}
	}
	if end == 0 {
		if last = (lastLine{}); start > 0 || !bytes.HasPrefix(tail, []byte(`{"`)) || bytes.IndexByte(tail, '\n') >= 0 {
			return last, misuse("it is no export of messages").Hinting("name a file that is not there yet, or one that message export has written")
		}
	}
	if err := f.Truncate(last.end); err != nil {
		return last, err
	}
	_, err = f.Seek(last.end, io.SeekStart)
	return last, err
}

// exportMessages writes what comes after a line, and returns how many that were. What it has written is kept before it goes on.
func (a *app) exportMessages(ctx context.Context, c *control.Client, out io.Writer, last lastLine, resolve bool, keep func() error) (n int, err error) {
	most, after := 200, last.Seq
	if resolve {
		most = 16
	}
	p := api.ListMessagesParams{After: &after, Limit: &most, Resolve: resolve}
	removed, err := a.goesOn(ctx, c, last)
	if err != nil {
		return 0, err
	}
	if removed > after {
		fmt.Fprintf(a.err, "messages up to %d were removed by retention; those after %d that are missing were not exported before\n", removed, after)
	}
	for {
		page, err := control.Answer(c.API().ListMessagesWithResponse(ctx, a.workspace, &p))
		if err != nil || len(page.Items) == 0 {
			return n, err
		}
		var lines bytes.Buffer
		for _, m := range page.Items {
			if err := encode(&lines, m, ""); err != nil {
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

// goesOn reports up to which number messages were removed, once it has seen that a line is one of this log.
func (a *app) goesOn(ctx context.Context, c *control.Client, last lastLine) (removed int64, err error) {
	before, one := max(last.Seq-1, 0), 1
	page, err := control.Answer(c.API().ListMessagesWithResponse(ctx, a.workspace, &api.ListMessagesParams{After: &before, Limit: &one}))
	if err != nil || last.Seq == 0 {
		return page.RemovedTo, err
	}
	found := len(page.Items) > 0 && page.Items[0].Seq == last.Seq
	if found && page.Items[0].ID == last.ID || !found && page.RemovedTo >= last.Seq {
		return page.RemovedTo, nil
	}
	return 0, commands.Refuse(commands.Conflict, "the last line of the file, number %d, is not of this log", last.Seq).
		Hinting("it is of another instance or workspace, or the instance was restored from a backup since: export to a new file")
}
