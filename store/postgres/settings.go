package postgres

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// defaults are small, because several instances share a machine and an idle one should
// cost nearly nothing, and never trade durability for speed.
var defaults = map[string]string{
	"listen_addresses":        "",
	"unix_socket_permissions": "0700",

	"fsync":                 "on",
	"full_page_writes":      "on",
	"synchronous_commit":    "on",
	"restart_after_crash":   "on",
	"wal_level":             "replica", // so that pg_basebackup works
	"wal_compression":       "on",
	"max_wal_senders":       "2",
	"max_replication_slots": "2",
	"min_wal_size":          "16MB", // at least two segments, or the server does not start
	"max_wal_size":          "256MB",
	"checkpoint_timeout":    "15min",
	"wal_writer_delay":      "10s", // nobody commits without waiting for the disk, so there is nothing for it to write

	"max_connections":                "260", // 200 workers that wait have one each
	"superuser_reserved_connections": "3",
	"max_pred_locks_per_transaction": "10", // the least: nothing here is serializable, and the table is made at the start
	"shared_buffers":                 "16MB",
	"work_mem":                       "4MB",
	"maintenance_work_mem":           "32MB",
	"effective_cache_size":           "256MB",
	"huge_pages":                     "off",
	"jit":                            "off",

	"max_worker_processes":             "2",
	"max_parallel_workers":             "0",
	"max_parallel_workers_per_gather":  "0",
	"max_parallel_maintenance_workers": "0",
	"max_logical_replication_workers":  "0",

	"autovacuum_max_workers":         "1",
	"autovacuum_naptime":             "1min", // each round starts a worker, half of what an idle server costs
	"autovacuum_vacuum_scale_factor": "0.05",
	"autovacuum_vacuum_cost_limit":   "1000",

	"timezone":                            "UTC",
	"lc_messages":                         "C",
	"idle_in_transaction_session_timeout": "60s",
	"client_connection_check_interval":    "10s",
	"password_encryption":                 "scram-sha-256",

	"log_destination":            "stderr",
	"logging_collector":          "off", // stderr is the log file itself
	"log_min_duration_statement": "1s",
	"log_parameter_max_length":   "0", // a slow statement shows its text, never what was in it
	"log_lock_waits":             "on",
	"log_checkpoints":            "off",
}

// settingsOf returns the defaults that a server can use.
func settingsOf(server programs) map[string]string {
	s := maps.Clone(defaults)
	if server.linkedTo("liblz4") {
		s["wal_compression"] = "lz4" // a page with pglz costs ten times as much, a tenth of all the work of a busy backlog
	}
	if server.major >= 18 {
		s["io_method"] = "sync" // the default keeps three more processes
	}
	return s
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

func checkSettings(settings map[string]string) error {
	for name, value := range settings {
		if !settingName.MatchString(name) || strings.ContainsAny(value, "\n\r\x00") {
			return fmt.Errorf("the database setting %q is not a setting name with a value of one line", name)
		}
	}
	return nil
}

// configure writes the files of the cluster that are ours. It happens at every start, so a newer version of this
// program brings its settings along.
func (c *Cluster) configure() error {
	root, err := os.OpenRoot(c.data) // the server's user writes there too: no link of theirs leads us outside
	if err != nil {
		return err
	}
	defer root.Close()

	return errors.Join(
		c.write(root, "mesh.conf", meshConf(c.programs, c.settings)),
		c.write(root, "pg_hba.conf", "local all all scram-sha-256\nlocal replication all scram-sha-256\n"),
		c.write(root, "pg_ident.conf", ""), // an earlier version let OS users in by it
	)
}

func meshConf(server programs, extra map[string]string) string {
	settings := settingsOf(server)
	maps.Copy(settings, extra)
	var b strings.Builder
	b.WriteString("# Written by spawnmesh at every start. Your own settings belong in user.conf beside this file.\n")
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, quote.Replace(settings[name]))
	}
	return b.String()
}

// write replaces a file whole: a crash leaves the old one or the new one.
func (c *Cluster) write(root *os.Root, name, text string) error {
	fresh := name + ".new"
	if err := root.WriteFile(fresh, []byte(text), 0o600); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := root.Lchown(fresh, c.account.uid, c.account.gid); err != nil {
			return err
		}
	}
	return root.Rename(fresh, name)
}
