package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// linked is what the linker was told the version is: make build VERSION=..., for a build where go cannot see the commit.
var linked string

// archived is the commit, put in by git archive; in a checkout git leaves it as it is.
const archived = "$Format:%H$"

// version is the version of this program, or the commit that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionFrom(linked, info, archived)
}

// versionFrom asks, in this order: the linker's word; the build info, which names the module's version after go install
// and the commit after go build in a checkout; the archive that the source came in.
func versionFrom(linked string, info *debug.BuildInfo, archived string) string {
	if linked != "" {
		return linked
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if commit == "" && !strings.HasPrefix(archived, "$") {
		commit = archived
	}
	if len(commit) < 12 {
		return "devel"
	}
	return "devel-" + commit[:12] + changed
}

// versionLine says what this program is, in one line.
func versionLine() string {
	return fmt.Sprintf("spawnmesh %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			if !a.forPeople() {
				return a.print(v, []any{v}, table{names: []string{version()}})
			}
			fmt.Fprint(a.out, versionLine())
			return nil
		},
	}
}
