package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/backup"
	"github.com/spawnmesh/spawnmesh/internal/instance"
	"github.com/spawnmesh/spawnmesh/store/postgres"
)

func (a *app) backupCommand() *cobra.Command {
	var s secretFlags
	c := &cobra.Command{
		Use: "backup DIR", Short: "Back up this instance, whether it runs or not", Args: cobra.ExactArgs(1),
		Long: `Back up this instance into the directory DIR, whether it runs or not.

The backup has the database, policy, config.yaml and kept output as they are, and the
keys encrypted: with a passphrase, which is asked for twice or read from a file, or
for an age recipient (--recipient age1...). Who loses the passphrase has no backup.

DIR is not there yet, or empty. It appears when it is whole and was read again.`,
		Example: "  spawnmesh --data-dir H backup /backups/H-monday --passphrase-file passphrase\n  spawnmesh backup verify /backups/H-monday",
		RunE:    func(c *cobra.Command, args []string) error { return a.backUp(c.Context(), args[0], &s) },
	}
	s.addPassphrase(c.Flags())
	c.Flags().StringVar(&s.recipient, "recipient", "", "encrypt the keys for an age `RECIPIENT`")
	c.AddCommand(a.verifyCommand())
	return c
}

func (a *app) verifyCommand() *cobra.Command {
	var s secretFlags
	c := &cobra.Command{
		Use: "verify DIR", Short: "Read a backup whole, and say whether it is as it was written", Args: cobra.ExactArgs(1),
		Long: `Read a backup whole, and say whether each file is as it was written, and whether
pg_restore can read the dump. With --passphrase-file or --identity the keys are
opened, too.`,
		Example: "  spawnmesh backup verify /backups/H-monday --passphrase-file passphrase",
		RunE: func(c *cobra.Command, args []string) error {
			identity, err := s.identityIfAny(c.Context(), a)
			if err != nil {
				return err
			}
			l := a.lasting("reading the backup")
			m, err := backup.Verify(c.Context(), args[0], a.getenv("SPAWNMESH_PG_BIN"), identity)
			l.done()
			if err != nil {
				return a.notDone(c.Context(), err, "the backup was not read to its end")
			}
			return a.sayBackup(m, args[0])
		},
	}
	s.addPassphrase(c.Flags())
	s.addIdentity(c.Flags())
	return c
}

func (a *app) restoreCommand() *cobra.Command {
	var s secretFlags
	c := &cobra.Command{
		Use: "restore DIR", Short: "Make the instance of a backup in an empty data directory", Args: cobra.ExactArgs(1),
		Long: `Make the instance of the backup DIR in the data directory, which must not be there,
or be empty. With DATABASE_URL its database must be empty, too.

The backup is verified first. The data directory appears when all is restored. Then
start the instance: it notices that it was restored, and asks its peers for what they
know. Nothing else is to be done for the work; docs/operating.md says what people had
decided since the backup and have to decide again. Type it as the user who runs the
instance.`,
		Example: "  spawnmesh --data-dir H restore /backups/H-monday --passphrase-file passphrase",
		RunE:    func(c *cobra.Command, args []string) error { return a.restore(c.Context(), args[0], &s) },
	}
	s.addPassphrase(c.Flags())
	s.addIdentity(c.Flags())
	return c
}

func (a *app) backUp(ctx context.Context, dir string, s *secretFlags) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	to, check, err := s.recipientFor(ctx, a)
	if err != nil {
		return err
	}
	var m backup.Manifest
	err = a.longer("opening the database", func(o instance.Options) (err error) {
		m, err = backup.Make(ctx, o, dir, version(), to, check)
		return err
	})
	if err != nil {
		return a.notDone(ctx, err, "nothing was written")
	}
	a.did("%s was written", dir)
	return a.sayBackup(m, dir)
}

func (a *app) restore(ctx context.Context, from string, s *secretFlags) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	dir, err := a.dir()
	if err != nil {
		return err
	}
	identity, err := s.identityAsked(ctx, a)
	if err != nil {
		return err
	}
	var m backup.Manifest
	err = a.longer("reading the backup", func(o instance.Options) (err error) {
		m, err = backup.Restore(ctx, from, o, identity)
		return err
	})
	if err != nil {
		left := dir + " was not made"
		if a.databaseURL() != "" {
			left += "; the database of DATABASE_URL may be filled: empty it before the next try"
		}
		return a.notDone(ctx, err, left)
	}
	role := "spoke"
	if m.Hub {
		role = "hub"
	}
	a.did("%s was restored", dir)
	if !a.forPeople() {
		return a.print(m, []any{m}, table{names: []string{dir}})
	}
	fmt.Fprintf(a.out, "restored instance %s in %s, as it was at %s\n", m.Instance, dir, m.At.Local().Format(time.RFC3339))
	fmt.Fprintf(a.err, "start it; it notices that it was restored, and asks its peers for what they know: %s\n", a.line(role, "run"))
	if m.Hub {
		fmt.Fprintf(a.err, "its schedules are paused then, and order nothing until somebody resumes them, as with: %s\n", a.line("schedule", "resume", "--all"))
		fmt.Fprintf(a.err, "its webhooks are disabled then, and told nothing until somebody enables them: delete those that were deleted since, then: %s\n", a.line("webhook", "enable", "--all"))
		fmt.Fprintf(a.err, "its tokens let nobody in then, until somebody confirms them: revoke those that were revoked since, then: %s\n", a.line("token", "confirm", "--all"))
	}
	fmt.Fprintln(a.err, "what people decided since the backup is to be decided again: suspensions, freezes, grants, invites, pauses of lanes, budgets, quotas, labels")
	return nil
}

// sayBackup says what a backup is of.
func (a *app) sayBackup(m backup.Manifest, dir string) error {
	if !a.forPeople() {
		return a.print(m, []any{m}, table{names: []string{dir}})
	}
	fmt.Fprintf(a.out, "%s is a whole backup of instance %s, made at %s by %s: %d files, %d bytes\n",
		dir, m.Instance, m.At.Local().Format(time.RFC3339), printable(m.Version), len(m.Files), m.Size())
	return nil
}

// notDone is the error of a backup, a restore or a look at a backup that failed. Of one that was interrupted it says what is left.
func (a *app) notDone(ctx context.Context, err error, left string) error {
	if ctx.Err() == nil {
		return toolMissing(err)
	}
	fmt.Fprintf(a.err, "interrupted; %s\n", left)
	return ctx.Err()
}

// toolMissing gives a client program that is not here the code of a database that is not there.
func toolMissing(err error) error {
	if tool, ok := errors.AsType[*postgres.ToolError](err); ok {
		return commands.Refuse(commands.StoreDown, "%v", tool)
	}
	return err
}
