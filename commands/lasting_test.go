package commands

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDurationsForPeople(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{720 * time.Hour: "30d", 192 * time.Hour: "8d", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m",
		0: "0s", 25 * time.Hour: "25h", 1500 * time.Millisecond: "1.5s", -time.Hour: "-1h", 10 * time.Second: "10s", 100 * time.Second: "1m40s"} {
		require.Equal(t, want, Lasting(d))
	}
}
