package layout

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// service is what docker-compose.yml promises about each container.
type service struct {
	Image       string
	Build       map[string]any
	User        string
	Init        bool
	Restart     string
	Command     []string
	Environment map[string]string
	Secrets     []string
	Networks    []string
	Volumes     []string
	Configs     []struct{ Source, Target string }
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Healthcheck struct{ Test []string }
	DependsOn   map[string]map[string]string `yaml:"depends_on"`
}

type compose struct {
	Services map[string]service
	Networks map[string]struct{ Internal bool }
	Secrets  map[string]struct{ File string }
	Configs  map[string]struct{ File string }
	Volumes  map[string]any
}

func readCompose(t *testing.T) compose {
	t.Helper()
	raw, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	var c compose
	require.NoError(t, yaml.Unmarshal(raw, &c))
	require.NotEmpty(t, c.Services)
	return c
}

func TestContainersShareNetworksInPairs(t *testing.T) {
	c := readCompose(t)
	members := map[string][]string{}
	for name, s := range c.Services {
		for _, n := range s.Networks {
			require.Contains(t, c.Networks, n, name)
			members[n] = append(members[n], name)
		}
	}

	for n, who := range members {
		slices.Sort(who)
		require.Len(t, who, 2, "network %s has %v", n, who)
		if node, isDB := strings.CutSuffix(n, "-db"); isDB {
			require.Equal(t, []string{node, n}, who)
			require.True(t, c.Networks[n].Internal, "nothing outside is reached from network %s", n)
		} else {
			require.Equal(t, []string{n, "hub"}, who, "a spoke shares a network with its hub alone")
		}
	}
	require.Len(t, members, len(c.Networks))
}

func TestContainersHaveNoPasswordsInTheirEnvironment(t *testing.T) {
	c := readCompose(t)
	seen := map[string]bool{}
	for name, s := range c.Services {
		own := strings.TrimSuffix(name, "-db") + "-db"
		require.Equal(t, []string{own}, s.Secrets, "%s reads the password of its own database", name)
		require.Equal(t, "secrets/"+own, c.Secrets[own].File)
		from := ""
		for key, value := range s.Environment {
			if key == "DATABASE_URL" {
				require.Equal(t, "postgres://mesh@"+own+"/mesh", value)
			}
			if strings.HasSuffix(key, "_PASSWORD_FILE") {
				from = value
			} else {
				require.NotContains(t, key, "PASSWORD", name)
			}
		}
		require.Equal(t, "/run/secrets/"+own, from, name)
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			require.Contains(t, c.Volumes, volume, "%s mounts no directory of the host", name)
			if strings.HasSuffix(volume, "-token") && name != "hub" {
				require.Equal(t, name+"-token:/token:ro", v)
				require.False(t, seen[volume], "one token per spoke")
				seen[volume] = true
			}
		}
	}
	require.Len(t, seen, 2)
}

// The program's role is no superuser: the image makes that one, and a script the other.
func TestTheDatabasesOfContainersHaveARoleForTheProgram(t *testing.T) {
	c := readCompose(t)
	for name, s := range c.Services {
		if !strings.HasSuffix(name, "-db") {
			continue
		}
		require.Equal(t, "postgres", s.Environment["POSTGRES_USER"], name)
		require.Len(t, s.Configs, 1, name)
		require.Equal(t, "/docker-entrypoint-initdb.d/role.sh", s.Configs[0].Target, name)
		require.Equal(t, "scripts/container/role", c.Configs[s.Configs[0].Source].File, name)
	}
}

func TestContainersAreRestartedCheckedAndUnprivileged(t *testing.T) {
	c := readCompose(t)
	for name, s := range c.Services {
		require.Equal(t, "unless-stopped", s.Restart, name)
		require.NotEmpty(t, s.Healthcheck.Test, name)
		if strings.HasSuffix(name, "-db") {
			continue
		}
		require.True(t, s.Init, "%s has a PID 1 that forwards signals", name)
		require.Equal(t, "10001:10001", s.User, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		require.Equal(t, []string{"CMD", "spawnmesh", "health"}, s.Healthcheck.Test, name)
		require.Equal(t, "service_healthy", s.DependsOn[name+"-db"]["condition"], name)
		script, found := strings.CutPrefix(s.Command[0], "/usr/local/lib/spawnmesh/")
		require.True(t, found, name)
		info, err := os.Stat("../../scripts/container/" + script)
		require.NoError(t, err)
		require.NotZero(t, info.Mode().Perm()&0o111, "%s can be run", script)
	}
}

// The image is built as a checkout is, and does not run as root.
func TestTheImage(t *testing.T) {
	raw, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	stages := strings.Split("\n"+string(raw), "\nFROM ")[1:]

	require.Len(t, stages, 2, "what builds stays behind")
	require.Contains(t, stages[0], `make build BIN=/spawnmesh VERSION="$VERSION"`)
	require.Contains(t, stages[1], "\nUSER 10001:10001\n")
	require.NotContains(t, string(raw), "://", "no host is named")
	ignored, err := os.ReadFile("../../.dockerignore")
	require.NoError(t, err)
	require.Contains(t, string(ignored), "/secrets/\n")
}
