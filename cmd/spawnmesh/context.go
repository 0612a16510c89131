package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/spawnmesh/spawnmesh/internal/contexts"
)

// A contextView is a context as programs see it.
type contextView struct {
	Name      string `json:"name"`
	Current   bool   `json:"current"`
	URL       string `json:"url"`
	TokenFile string `json:"token_file"`
	CA        string `json:"ca,omitempty"`
}

func viewOf(b *contexts.Book, name string) contextView {
	c := b.Contexts[name]
	return contextView{name, b.Current == name, c.URL, c.TokenFile, c.CA}
}

func (a *app) contextCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "context", Short: "Say which hubs on other machines are asked, and how",
		Long: `Say which hubs on other machines are asked, and how. A context is a name for the
address of a hub (hub run --api) and the file of a token (token create). With it the
commands that ask a running instance ask that hub: --context NAME, or
$SPAWNMESH_CONTEXT, or the one in use. A data directory that is named goes before the
one in use.

Contexts are in $XDG_CONFIG_HOME/spawnmesh/contexts.yaml (~/.config/spawnmesh).`,
	}
	c.AddCommand(a.contextAddCommand(), a.contextListCommand(), a.contextShowCommand(), a.contextUseCommand(), a.contextRemoveCommand())
	return c
}

func (a *app) contextAddCommand() *cobra.Command {
	var v contexts.Context
	var replace bool
	c := &cobra.Command{
		Use: "add NAME --url URL --token-file FILE", Short: "Add a hub that is asked over the network", Args: cobra.ExactArgs(1),
		Long: `Add a hub that is asked over the network. The file of the token is this user's alone
(0600), and is read each time. --ca is needed where the authority that has issued the
hub's certificate is not one of this system. A context that is there already stays,
but with --replace.`,
		Example: `  spawnmesh context add lab --url https://hub.example.org:7480 --token-file token`,
		RunE: func(_ *cobra.Command, args []string) error {
			if v.URL == "" || v.TokenFile == "" {
				return misuse("a context needs an address and the file of a token").Hinting("add --url https://HOST:PORT --token-file FILE")
			}
			for _, file := range []*string{&v.TokenFile, &v.CA} {
				if *file != "" {
					whole, err := filepath.Abs(*file)
					if err != nil {
						return err
					}
					*file = whole
				}
			}
			err := a.changeBook(func(b *contexts.Book) error { return b.Add(args[0], v, replace) })
			if err == nil && a.forPeople() {
				fmt.Fprintf(a.err, "ask it with --context %s, or use it from now on: spawnmesh context use %s\n", args[0], args[0])
			}
			return err
		},
	}
	c.Flags().StringVar(&v.URL, "url", "", "where the hub is: `URL` (required)")
	c.Flags().StringVar(&v.TokenFile, "token-file", "", "`FILE` with a token, 0600 (required)")
	c.Flags().StringVar(&v.CA, "ca", "", "`FILE` with the certificate of the authority of the hub's certificate")
	c.Flags().BoolVar(&replace, "replace", false, "replace the context that has this name")
	return c
}

// changeBook changes the contexts of this user.
func (a *app) changeBook(change func(*contexts.Book) error) error {
	b, err := a.book()
	if err == nil {
		err = change(b)
	}
	if err != nil {
		return err
	}
	return b.Write()
}

func (a *app) contextListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the contexts", Args: cobra.NoArgs, Long: "List the contexts. The one in use has a * before its name.",
		RunE: func(*cobra.Command, []string) error {
			b, err := a.book()
			if err != nil {
				return err
			}
			t := table{head: []string{"NAME", "URL", "TOKEN FILE"}, wide: []string{"CA"}, empty: "no contexts; add one: spawnmesh context add NAME --url URL --token-file FILE"}
			var list []contextView
			for _, name := range slices.Sorted(maps.Keys(b.Contexts)) {
				v := viewOf(b, name)
				list = append(list, v)
				t.names = append(t.names, name)
				if v.Current {
					name = "*" + name
				}
				t.rows = append(t.rows, []string{name, v.URL, v.TokenFile, v.CA})
			}
			return printList(a, list, t)
		},
	}
}

func (a *app) contextShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show which instance is asked", Args: cobra.NoArgs,
		Long: "Show which instance the commands of this shell ask: a context, or a data directory.",
		RunE: func(*cobra.Command, []string) error {
			name, _, err := a.target()
			if err != nil {
				return err
			}
			if name == "" {
				dir, err := a.dir()
				if err != nil {
					return err
				}
				v := struct {
					DataDir string `json:"data_dir"`
				}{dir}
				return a.print(v, []any{v}, table{head: []string{"DATA DIR"}, rows: [][]string{{dir}}, names: []string{dir}})
			}
			b, err := a.book()
			if err != nil {
				return err
			}
			v := viewOf(b, name)
			return a.print(v, []any{v}, table{head: []string{"NAME", "URL", "TOKEN FILE"}, wide: []string{"CA"}, rows: [][]string{{v.Name, v.URL, v.TokenFile, v.CA}}, names: []string{v.Name}})
		},
	}
}

func (a *app) contextUseCommand() *cobra.Command {
	var none bool
	c := &cobra.Command{
		Use: "use NAME", Short: "Ask the hub of a context where nothing else is named", Args: cobra.MaximumNArgs(1),
		Long:    "Ask the hub of a context from now on, where neither a context nor a data directory\nis named. --none takes that back.",
		Example: "  spawnmesh context use lab\n  spawnmesh context use --none",
		RunE: func(_ *cobra.Command, args []string) error {
			if none == (len(args) == 1) {
				return misuse("context use takes NAME, or --none")
			}
			return a.changeBook(func(b *contexts.Book) error {
				if b.Current = ""; none {
					return nil
				}
				b.Current = args[0]
				_, err := b.Get(args[0])
				return err
			})
		},
	}
	c.Flags().BoolVar(&none, "none", false, "use no context")
	return c
}

func (a *app) contextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a context", Args: cobra.ExactArgs(1), Long: "Forget a context. The file of its token stays, and so does the token.",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeBook(func(b *contexts.Book) error {
				if _, err := b.Get(args[0]); err != nil {
					return err
				}
				delete(b.Contexts, args[0])
				if b.Current == args[0] {
					b.Current = ""
				}
				return nil
			})
		},
	}
}
