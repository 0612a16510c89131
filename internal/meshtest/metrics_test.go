package meshtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/hub"
	"github.com/spawnmesh/spawnmesh/hub/api"
	"github.com/spawnmesh/spawnmesh/internal/listener"
	"github.com/spawnmesh/spawnmesh/spoke/policy"
)

// scraped is what an instance exports, by name.
type scraped map[string]*dto.MetricFamily

// scrape reads the metrics of an instance, as Prometheus does.
func (d described) scrape(t *testing.T) scraped {
	t.Helper()
	status, text := d.ask(t, "GET", "/metrics", "", "")
	require.Equal(t, http.StatusOK, status)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	require.NoError(t, err, "%s", text)
	problems, err := promlint.New(strings.NewReader(string(text))).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	return families
}

// value is the sum of a metric over all label values that are named: "state=failed".
func (s scraped) value(name string, labels ...string) (sum float64) {
	for _, m := range s[name].GetMetric() {
		have := map[string]bool{}
		for _, l := range m.GetLabel() {
			have[l.GetName()+"="+l.GetValue()] = true
		}
		if !slices.ContainsFunc(labels, func(l string) bool { return !have[l] }) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// id is what tasks, connections and messages are called.
var id = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)

// check requires of every metric what promlint does not ask for: text, and labels without names of
// tasks, keys and what agents ran.
func (s scraped) check(t *testing.T, secret ...string) {
	t.Helper()
	for name, f := range s {
		require.NotEmpty(t, f.GetHelp(), name)
		require.NotEqual(t, dto.MetricType_UNTYPED, f.GetType(), name)
		require.Regexp(t, `^(spawnmesh|go|process)_`, name)
		require.Less(t, len(f.GetMetric()), 200, name)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				require.NotRegexp(t, id, l.GetValue(), name)
				for _, word := range secret {
					require.NotContains(t, l.GetValue(), word, name)
				}
			}
		}
	}
}

// alerts are the rules of docs/alerts.yaml, in the form of Prometheus.
type alerts struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert       string
			Expr        string
			For         string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

// What happens in a mesh is counted where it happens, and each alert is about something that
// is counted.
func TestMetricsOfAMesh(t *testing.T) {
	t.Parallel()
	m := Plan{Slots: 1, API: &listener.Config{Address: "127.0.0.1:0"}}.Start(t, "attic")
	spoke := m.Spokes["attic"]
	m.Wait(t, m.Noop(t, "attic"))
	require.Equal(t, commands.Failed, m.Wait(t, m.Order(t, hub.SpawnRequest{Spoke: "attic", Spawn: commands.Spawn{Runtime: commands.RuntimeExec, Argv: []string{"sh", "-c", "exit 3 # swordfish"}, Title: "swordfish"}})).State)
	long := m.Spawn(t, "attic", "sleep", "600")
	m.Await(t, long, commands.Running)
	waits := m.Noop(t, "attic")
	Await(t, "it waits on the spoke", func() bool { return spoke.Count(t, `SELECT count(*) FROM ready`) == 1 })
	at, of := m.Hub.describe(t), spoke.describe(t)

	busy := of.scrape(t)
	require.Equal(t, 1.0, busy.value("spawnmesh_tasks", "state=running", "lane=default"))
	require.Equal(t, 1.0, busy.value("spawnmesh_tasks", "state=ready", "lane=default"))
	require.Equal(t, 1.0, busy.value("spawnmesh_tasks", "state=failed"))
	require.Equal(t, 1.0, busy.value("spawnmesh_slots_taken"))
	require.Equal(t, 0.0, busy.value("spawnmesh_agents_paused"))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+long+"/pause", map[string]any{"reason": "so"}, nil)
	m.Await(t, long, commands.Paused)
	require.Equal(t, 1.0, of.scrape(t).value("spawnmesh_agents_paused"))
	m.Hub.Do(t, "POST", "/api/v1/tasks/"+long+"/kill", map[string]any{"reason": "enough", "grace_ms": 0}, nil)
	m.Wait(t, long)
	m.Wait(t, waits)

	h, s := at.scrape(t), of.scrape(t)
	h.check(t, "swordfish")
	s.check(t, "swordfish")
	require.Equal(t, 4.0, h.value("spawnmesh_orders_total"))
	require.Equal(t, 2.0, h.value("spawnmesh_results_total", "state=completed"))
	require.Equal(t, 1.0, h.value("spawnmesh_results_total", "state=failed"))
	require.Equal(t, 1.0, h.value("spawnmesh_results_total", "state=cancelled"))
	require.Equal(t, 1.0, h.value("spawnmesh_connection_linked", "connection=attic", "peer=spoke"))
	require.Equal(t, 4.0, s.value("spawnmesh_claims_total"))
	require.Equal(t, 4.0, s.value("spawnmesh_start_seconds"))
	require.Equal(t, 2.0, s.value("spawnmesh_attempts_ended_total", "outcome=succeeded"))
	require.Equal(t, 1.0, s.value("spawnmesh_attempts_ended_total", "outcome=killed"))
	require.Equal(t, 1.0, s.value("spawnmesh_kills_total", "cause=order"))
	require.Equal(t, 1.0, s.value("spawnmesh_connection_linked", "connection=lab", "peer=hub"))
	for _, each := range []scraped{h, s} {
		require.Equal(t, each.value("spawnmesh_group_read"), float64(len(each["spawnmesh_group_read"].GetMetric())), "all was read")
		require.Positive(t, each.value("spawnmesh_stored_bytes", "of=tables"))
		require.Positive(t, each.value("go_goroutines"))
	}
	alertsAreAbout(t, h, s)
	pageNames(t, h, s)
}

// pageNames requires that docs/operating.md tells of what is exported, and of nothing else.
func pageNames(t *testing.T, instances ...scraped) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Health, metrics and alerts\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("`(spawnmesh_[a-z_]+)`").FindAllStringSubmatch(section, -1) {
		told[m[1]] = true
	}
	exported := map[string]bool{}
	for _, s := range instances {
		for name := range s {
			if strings.HasPrefix(name, "spawnmesh_") {
				exported[name] = true
			}
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(exported)), slices.Sorted(maps.Keys(told)))
}

// alertsAreAbout requires that what the rules of docs/alerts.yaml name is exported, with these labels.
func alertsAreAbout(t *testing.T, instances ...scraped) {
	t.Helper()
	exported := map[string]*dto.MetricFamily{}
	for _, s := range instances {
		maps.Copy(exported, s)
	}
	raw, err := os.ReadFile("../../docs/alerts.yaml")
	require.NoError(t, err)
	var rules alerts
	require.NoError(t, yaml.UnmarshalWithOptions(raw, &rules, yaml.Strict()))
	exprs, after := map[string]string{}, map[string]string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			require.NotContains(t, exprs, r.Alert, "it is there twice")
			exprs[r.Alert], after[r.Alert] = r.Expr, r.For
			require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.NotEmpty(t, r.Annotations["do"], r.Alert)
			found := regexp.MustCompile(`(\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(r.Expr, -1)
			about := 0
			for _, named := range found {
				if !strings.HasPrefix(named[1], "spawnmesh_") {
					continue
				}
				about++
				name := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(named[1], "")
				f := exported[name]
				require.NotNil(t, f, "%s is about %s, which no instance exports", r.Alert, name)
				for _, label := range regexp.MustCompile(`(\w+)[=!]`).FindAllStringSubmatch(named[2], -1) {
					has := slices.ContainsFunc(f.GetMetric()[0].GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label[1] }) || label[1] == "le" && f.GetType() == dto.MetricType_HISTOGRAM
					require.True(t, has, "%s goes by the label %s, which %s does not have", r.Alert, label[1], name)
				}
			}
			require.Positive(t, about, r.Alert)
		}
	}
	for alert, threshold := range map[string]string{"SpawnmeshSweepSlow": `le=~"5|5[.]0"`, "SpawnmeshLeasesExpired": "> 5", "SpawnmeshTasksWait": "> 50", "SpawnmeshAgentsFail": "[1h])) > 10", "SpawnmeshAttemptsFail": "[1h])) > 10",
		"SpawnmeshRetriesExhausted": "> 0", "SpawnmeshManySpawns": "[1m]) > 100", "SpawnmeshDatabaseOutages": "> 0", "SpawnmeshLinkLost": "> 0", "SpawnmeshDatabaseDown": "== 0"} {
		require.Contains(t, exprs[alert], threshold, alert)
	}
	for alert, since := range map[string]string{"SpawnmeshDatabaseDown": "5m", "SpawnmeshLinkDown": "5m", "SpawnmeshTasksWait": "5m", "SpawnmeshLeasesExpired": "1m", "SpawnmeshNotReady": "1m"} {
		require.Equal(t, since, after[alert], alert)
	}
}

// A kill takes the fence of its agent, so the next renewal finds that lost; and a second kill only
// hastens the first. It is one agent that was to be ended, and it was by order.
func TestAKillIsCountedOnce(t *testing.T) {
	t.Parallel()
	m := Plan{Lease: 3 * time.Second}.Start(t, "attic")
	s, gate := m.Spokes["attic"], filepath.Join(t.TempDir(), "gate")
	other := m.Spawn(t, "attic", "sleep", "600")
	task := m.Spawn(t, "attic", "sh", "-c", `trap 'while [ ! -e "$0" ]; do sleep 0.1; done; exit 7' TERM; touch "$0.up"; while :; do sleep 0.1; done`, gate)
	Await(t, "the agents", func() bool { _, err := os.Stat(gate + ".up"); return err == nil })
	m.Await(t, task, commands.Running)
	m.Await(t, other, commands.Running)

	for n, grace := range []time.Duration{commands.MaxGrace, commands.MaxGrace - time.Second} {
		m.Hub.Do(t, "POST", "/api/v1/tasks/"+task+"/kill", map[string]any{"reason": "enough", "grace_ms": grace.Milliseconds()}, nil)
		Await(t, "the kill", func() bool { return s.Count(t, `SELECT count(*) FROM kills WHERE task = $1`, task) == n+1 })
	}

	for range 3 { // one renewal is for all agents
		renewed := s.Pairs(t, `SELECT 'at', max(renewed_at)::text FROM leases WHERE task = $1`, other)
		Await(t, "a renewal", func() bool {
			return s.Pairs(t, `SELECT 'at', max(renewed_at)::text FROM leases WHERE task = $1`, other)["at"] != renewed["at"]
		})
	}
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Equal(t, commands.Cancelled, m.Wait(t, task).State)
	counted := s.describe(t).scrape(t)
	require.Equal(t, 1.0, counted.value("spawnmesh_kills_total", "cause=order"))
	require.Zero(t, counted.value("spawnmesh_kills_total", "cause=lease"))
}

// What a spoke refuses is counted by its own word for it, and a link that goes on both sides.
func TestRefusalsAndLostLinksAreCounted(t *testing.T) {
	t.Parallel()
	m := Plan{Policy: Loose(policy.Presets["deny"])}.Start(t, "attic")
	m.Wait(t, m.Spawn(t, "attic", "true"))
	at, of := m.Hub.describe(t), m.Spokes["attic"].describe(t)
	require.Equal(t, 1.0, of.scrape(t).value("spawnmesh_messages_refused_total", "code=POLICY"))

	m.Spokes["attic"].Proxy.Cut()

	Await(t, "both have counted it", func() bool {
		return at.scrape(t).value("spawnmesh_link_losses_total") == 1 && of.scrape(t).value("spawnmesh_link_losses_total") == 1
	})
	require.Zero(t, of.scrape(t).value("spawnmesh_connection_linked"))
	m.Noop(t, "attic")
	Await(t, "it is known to wait", func() bool {
		s := at.scrape(t)
		return s.value("spawnmesh_connection_unconfirmed") == 1 && s.value("spawnmesh_connection_unconfirmed_age_seconds") > 0
	})
}

// problem is why an instance is not ready.
func (d described) problem(t *testing.T) (status int, p api.Problem) {
	t.Helper()
	status, text := d.ask(t, "GET", "/readyz", "", "")
	require.NoError(t, json.Unmarshal(text, &p))
	return status, p
}

// Readiness names what is not there, and that the process serves is said whatever is missing.
func TestReadinessNamesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	m := Start(t, "attic")
	at, spoke := m.Hub.describe(t), m.Spokes["attic"]
	of := spoke.describe(t)
	for _, d := range []described{at, of} {
		status, _ := d.problem(t)
		require.Equal(t, http.StatusOK, status)
	}

	require.NoError(t, os.WriteFile(policy.File(spoke.Dir), []byte(Loose(strings.Replace(policy.Presets["open"], "\nlimits:\n", "\nlimits:\n  reserve: 100000TiB\n", 1))), 0o600))
	spoke.Do(t, "POST", "/api/v1/policy/reload", nil, nil)
	status, p := of.problem(t)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Regexp(t, `^disk: that of .* \(limits\.reserve\)$`, p.Detail)
	require.Equal(t, "NOT_READY", p.Code)

	_, err := m.Hub.SQL.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
	require.NoError(t, err)
	status, p = at.problem(t)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, p.Detail, "migrations: the database has schema 9999")
	require.NotContains(t, p.Detail, "postgres")

	m.Hub.closeDatabase(t)
	began := time.Now()
	status, p = at.problem(t)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, p.Detail, "postgres: ")
	require.NotContains(t, p.Detail, "nats")
	Await(t, "the figures say so, too", func() bool {
		s := at.scrape(t)
		return s.value("spawnmesh_check_ok", "check=postgres") == 0 && s.value("spawnmesh_group_read", "group=backlog") == 0 && s.value("spawnmesh_check_ok", "check=nats") == 1 && s.value("spawnmesh_database_outages_total") > 0
	})
	require.Less(t, time.Since(began), 30*time.Second)
	status, _ = at.ask(t, "GET", "/healthz", "", "")
	require.Equal(t, http.StatusOK, status)
}
