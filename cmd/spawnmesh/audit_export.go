package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

func (a *app) auditExportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "export FILE|-", Short: "Write the whole audit, as others can verify it", Args: cobra.ExactArgs(1),
		Long: `Write the audit as lines of JSON: the newest checkpoint with the public key of the
instance, each leaf of the tree with its row, and the end. Of rows that retention has
removed there is the hash. It needs no running hub or spoke. FILE must not be there
yet.`,
		Example: "  spawnmesh audit export audit.jsonl\n  spawnmesh audit export - | gzip >audit.jsonl.gz",
		RunE: func(c *cobra.Command, args []string) error {
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error { return a.exportAudit(ctx, c.API(), args[0]) })
		},
	}
}

func (a *app) exportAudit(ctx context.Context, c *api.ClientWithResponses, name string) (err error) {
	var out io.Writer = a.out
	if name != "-" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return misuse("writing the audit: %v", err)
		}
		defer f.Close()
		out = f
	}
	w := bufio.NewWriter(out)
	rows := 0
	err = readAudit(ctx, c, func(l auditLine) error {
		if l.Leaf != nil {
			rows++
		}
		return encode(w, l, "")
	})
	if err == nil {
		err = w.Flush()
	}
	if err == nil && name != "-" {
		a.did("%s was written; see: %s", name, a.line("audit", "verify", name))
		if a.forPeople() {
			fmt.Fprintf(a.out, "%s with %d leaves; see: %s\n", name, rows, a.line("audit", "verify", name))
		}
	}
	return err
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
