package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/audittree"
	"github.com/spawnmesh/spawnmesh/internal/control"
)

// leafPage is how many leaves are asked for at a time.
const leafPage = 5000

func (a *app) auditVerifyCommand() *cobra.Command {
	var kept []string
	c := &cobra.Command{
		Use: "verify [FILE]", Short: "Find out whether the audit was changed", Args: cobra.MaximumNArgs(1),
		Long: `Hold every row of the audit against the tree of their hashes, and the tree against
its newest checkpoint, which the instance has signed. The first row that does not fit
is named, and the exit code is 5. It needs no running hub or spoke; with a FILE of
audit export it needs no instance.

Who owns the database and the keys can sign another history. Name with --checkpoint
what a peer has kept: audit checkpoints --peer NAME -o json, there.`,
		Example: "  spawnmesh audit verify\n  spawnmesh audit verify audit.jsonl\n  spawnmesh audit verify --checkpoint kept.json",
		RunE: func(c *cobra.Command, args []string) error {
			held, err := a.keptIn(c.Context(), kept)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				v, err := until(c.Context(), func() (*verifying, error) { return verifyFile(args[0], held) })
				return a.printVerified(v, args, err)
			}
			return a.asking(c.Context(), func(ctx context.Context, c *control.Client) error {
				v := &verifying{kept: held}
				return a.printVerified(v, nil, readAudit(ctx, c.API(), v.take))
			})
		},
	}
	c.Flags().StringArrayVar(&kept, "checkpoint", nil, "a `FILE` with a checkpoint, which must fit, too; may be repeated")
	return c
}

// An auditLine is a line of an export: the checkpoint comes first, then the leaves, then the end.
type auditLine struct {
	Checkpoint *api.AuditCheckpoint `json:"checkpoint,omitempty"`
	Leaf       *api.AuditLeaf       `json:"leaf,omitempty"`
	End        *auditEnd            `json:"end,omitempty"`
}

type auditEnd struct {
	Size   int64   `json:"size"`
	Strays []int64 `json:"strays,omitempty"` // numbers of rows that are no leaves
}

// readAudit hands take the lines of an export of the instance that c asks.
func readAudit(ctx context.Context, c *api.ClientWithResponses, take func(auditLine) error) error {
	head, err := control.Answer(c.GetAuditCheckpointWithResponse(ctx))
	if err == nil {
		err = take(auditLine{Checkpoint: &head})
	}
	most, from := leafPage, int64(0)
	for err == nil {
		var page api.AuditLeafList
		page, err = control.Answer(c.ListAuditLeavesWithResponse(ctx, &api.ListAuditLeavesParams{From: from, Limit: &most, Strays: true}))
		for i := 0; err == nil && i < len(page.Items); i++ {
			from = page.Items[i].Leaf + 1
			err = take(auditLine{Leaf: &page.Items[i]})
		}
		if err == nil && len(page.Items) < most {
			return take(auditLine{End: &auditEnd{Size: from, Strays: page.Strays}})
		}
	}
	return err
}

// verifyFile reads the export in a file to its end.
func verifyFile(name string, held []keptCheckpoint) (*verifying, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, misuse("reading the export of an audit: %v", err).Hinting("name a file that is there and that you may read")
	}
	defer f.Close()
	v := &verifying{kept: held}
	in := json.NewDecoder(f)
	for line := 1; err == nil; line++ {
		var l auditLine
		switch err = in.Decode(&l); {
		case errors.Is(err, io.EOF) && v.ended:
			return v, nil
		case errors.Is(err, io.EOF):
			err = notWhole("the export has no end: it was cut off behind line %d", line-1)
		case errors.Is(err, io.ErrUnexpectedEOF) && !v.ended:
			err = notWhole("the export has no end: it was cut off in line %d", line)
		case err != nil:
			err = misuse("%s is no export of an audit: line %d: %v", name, line, err)
		default:
			err = v.take(l)
		}
	}
	return nil, err
}

// A verifying takes the lines of an export.
type verifying struct {
	kept  []keptCheckpoint // which must fit, too
	v     *audittree.Verification
	ended bool
}

func (y *verifying) take(l auditLine) error {
	switch {
	case l.Checkpoint != nil && y.v == nil:
		return y.begin(*l.Checkpoint)
	case y.v == nil || y.ended || l.Checkpoint != nil:
		return misuse("this is no export of an audit: it begins with a checkpoint, and nothing is behind its end")
	case l.End != nil:
		y.ended = true
		return whole(y.v.End(l.End.Strays))
	case l.Leaf == nil:
		return misuse("this is no export of an audit: a line is neither a leaf nor the end")
	}
	hash, err := audittree.ParseHash(l.Leaf.Hash)
	if err != nil {
		return misuse("this is no export of an audit: leaf %d: %v", l.Leaf.Leaf, err)
	}
	leaf := audittree.Leaved{Leaf: l.Leaf.Leaf, Seq: l.Leaf.Seq, Hash: hash}
	if r := l.Leaf.Row; r != nil {
		leaf.Row = &audittree.Row{Seq: r.Seq, At: r.At, Workspace: r.Workspace, Actor: r.Actor, Action: r.Action, Object: r.Object, Tasks: r.Tasks, Code: r.Code, Why: r.Why, Conn: r.Conn, Message: r.Message}
	}
	return whole(y.v.Add(leaf))
}

func (y *verifying) begin(c api.AuditCheckpoint) (err error) {
	public, err := base64.StdEncoding.DecodeString(c.PublicKey)
	if err != nil || len(public) != ed25519.PublicKeySize {
		return misuse("this is no export of an audit: its public key is none")
	}
	var notes []string
	if c.Note != "" {
		notes = append(notes, c.Note)
	}
	for _, k := range y.kept {
		if err := k.check(public); err != nil {
			return err
		}
		notes = append(notes, k.note)
	}
	y.v, err = audittree.Verify(public, notes...)
	return whole(err)
}

// whole gives what does not fit a code.
func whole(err error) error {
	if err == nil {
		return nil
	}
	return notWhole("%v", err)
}

func notWhole(format string, args ...any) *commands.Refused {
	return commands.Refuse(commands.AuditBroken, "the audit is not whole: "+format, args...).
		Hinting("keep the database as it is, and compare with an export or a backup of before")
}

// printVerified says what was found of an instance, or of the export in a file.
func (a *app) printVerified(v *verifying, file []string, err error) error {
	if err != nil {
		return err
	}
	s := v.v.Summary
	if !a.forPeople() {
		return a.print(s, []any{s}, table{names: []string{s.Instance}})
	}
	fmt.Fprintf(a.out, "the audit of %s is whole: %s of %s\n", s.Instance, amount(s.Rows, "row"), amount(s.Size+s.Later, "leaf"))
	if s.Pruned > 0 {
		fmt.Fprintf(a.out, "retention has removed %s; rows are there from number %d of %s on\n", amount(s.Pruned, "row"), s.From, clock(s.Since))
	}
	if s.Later > 0 {
		fmt.Fprintf(a.out, "%s came after the checkpoint\n", amount(s.Later, "row"))
	}
	if s.At != nil {
		fmt.Fprintf(a.out, "the checkpoint is of %s\n", clock(s.At))
	}
	if s.Restored != nil {
		fmt.Fprintf(a.out, "the database was restored from a backup at %s: what was audited between is not here\n", clock(s.Restored))
	}
	if s.Kept > 0 {
		fmt.Fprintf(a.out, "it goes on from %s of --checkpoint, too\n", amount(int64(s.Kept), "checkpoint"))
		return nil
	}
	fmt.Fprintf(a.out, "that was the newest checkpoint here; whether rows were cut off with it shows only one that a peer keeps: there %s, here %s\n",
		"spawnmesh audit checkpoints --peer NAME -o json", a.line(slices.Concat([]string{"audit", "verify"}, file, []string{"--checkpoint", "FILE"})...))
	return nil
}

func amount(n int64, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case what == "leaf":
		return fmt.Sprint(n, " leaves")
	}
	return fmt.Sprint(n, " ", what, "s")
}
