package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Where webhooks may be sent is looked at before anything is started.
func TestWebhookSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none.pem")
	require.NoError(t, os.WriteFile(none, []byte("no certificate"), 0o600))
	h := hand{t: t, dir: t.TempDir()}
	for flag, want := range map[string][2]string{
		"--webhook-allow": {"10.1.2.3/24", "is no network"},
		"--webhook-ca":    {none, "has no certificate in PEM"},
	} {
		h.refused(exitMisuse, want[1], "hub", "run", flag, want[0])
	}
	h.refused(exitMisuse, "is no network", "hub", "run", "--webhook-allow", "everything")
	h.refused(exitMisuse, "reading the certificates of --webhook-ca", "hub", "run", "--webhook-ca", none+".gone")
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	h.refused(exitMisuse, "is not a regular file", "hub", "run", "--webhook-ca", pipe)
}

// A webhook for a name that means this host is made, with a warning.
func TestAWebhookToThisHostIsWarnedOf(t *testing.T) {
	t.Parallel()
	h := hand{t: t, dir: startHub(t).Hub.Dir}

	got := h.run("", "webhook", "create", "local", "https://localhost/in")

	require.Zero(t, got.code, got.err)
	require.Regexp(t, `(?m)^warning: nothing is sent to localhost as long as that means (127\.0\.0\.1|::1): address \S+ is not allowed for webhooks$`, got.err)
}
