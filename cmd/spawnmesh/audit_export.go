package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
	"github.com/spawnmesh/spawnmesh/internal/fsync"
)

func (a *app) auditExportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "export FILE|-", Short: "Write the whole audit, as others can verify it", Args: cobra.ExactArgs(1),
		Long: `Write the audit as lines of JSON: the newest checkpoint with the public key of the
instance, each leaf of the tree with its row, and the end. Of rows that retention has
removed there is the hash. It needs no running hub or spoke. FILE must not be there
yet; it appears when it is whole.`,
		Example: "  spawnmesh audit export audit.jsonl\n  spawnmesh audit export - | gzip >audit.jsonl.gz",
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return a.exportAudit(ctx, c.API(), args[0]) })
		},
	}
}

func (a *app) exportAudit(ctx context.Context, c *api.ClientWithResponses, name string) error {
	if name == "-" {
		_, err := writeAudit(ctx, c, a.out)
		return err
	}
	rows := 0
	err := fsync.Create(name, func(out io.Writer) (err error) {
		rows, err = writeAudit(ctx, c, out)
		return err
	})
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return notExported(name, file)
	}
	if err != nil {
		return err
	}
	a.did("%s was written; see: %s", name, a.line("audit", "verify", name))
	if a.forPeople() {
		fmt.Fprintf(a.out, "%s with %d leaves; see: %s\n", name, rows, a.line("audit", "verify", name))
	}
	return nil
}

// notExported says why the file has no audit: what was named, or what the disk did.
func notExported(name string, err *fs.PathError) error {
	if err.Op == "write" || err.Op == "sync" || err.Op == "close" {
		return fmt.Errorf("writing the audit to %s, which was not made: %w", name, err.Err)
	}
	return misuse("writing the audit: %v", err)
}

// writeAudit writes the whole audit, and returns how many leaves it has.
func writeAudit(ctx context.Context, c *api.ClientWithResponses, out io.Writer) (rows int, err error) {
	w := bufio.NewWriter(out)
	err = readAudit(ctx, c, func(l auditLine) error {
		if l.Leaf != nil {
			rows++
		}
		return encode(w, l, "")
	})
	if err == nil {
		err = w.Flush()
	}
	return rows, err
}

func (a *app) auditCheckpointsCommand() *cobra.Command {
	var peer string
	c := &cobra.Command{
		Use: "checkpoints", Short: "List what is kept of the audits of peers", Args: cobra.NoArgs,
		Long: `List the newest checkpoint of each peer's audit. What does not go on from it is not
taken, and kept as evidence. A peer whose database was restored from a backup begins
a new era.`,
		Example: "  spawnmesh audit checkpoints\n  spawnmesh audit checkpoints --peer lab -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				got, err := control.Answer(c.API().ListAuditCheckpointsWithResponse(ctx))
				if err != nil {
					return err
				}
				return a.printCheckpoints(got.Items, peer)
			})
		},
	}
	c.Flags().StringVar(&peer, "peer", "", "only of the peer `NAME`")
	return c
}

func (a *app) printCheckpoints(all []api.PeerCheckpoint, peer string) error {
	t := table{head: []string{"PEER", "ROWS", "SIGNED", "RESTORED", "REFUSED"}, wide: []string{"CONNECTION", "INSTANCE"}, empty: "no peer has shown a checkpoint of its audit"}
	var list []api.PeerCheckpoint
	for _, p := range all {
		if peer != "" && p.Peer != peer {
			continue
		}
		refused := "-"
		if p.Refused != "" {
			refused = p.Why
		}
		list = append(list, p)
		t.rows = append(t.rows, []string{p.Peer, strconv.FormatInt(p.Checkpoint.Size, 10), clock(p.Checkpoint.At), clock(p.Checkpoint.RestoredAt), refused, p.Conn, p.Checkpoint.Instance})
		t.names = append(t.names, p.Peer)
	}
	if peer != "" && len(list) == 0 {
		return commands.Refuse(commands.NotFound, "no checkpoint of the audit of a peer %q is kept here", commands.Clip(peer)).Hinting("whose are").Running("audit", "checkpoints")
	}
	return printList(a, list, t)
}
