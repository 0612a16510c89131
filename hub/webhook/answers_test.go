package webhook

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/store"
)

// Whatever a receiver answers, a try ends in time, reads little and goes nowhere else.
func TestWhatReceiversAnswer(t *testing.T) {
	t.Parallel()
	elsewhere := receive(t, nil)
	flood := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, g got)
		state  string
		err    string
	}{
		"204":              {nil, store.DeliveryDelivered, ""},
		"a redirect":       {func(w http.ResponseWriter, _ got) { w.Header().Set("Location", elsewhere.URL); w.WriteHeader(307) }, store.DeliveryFailed, "it answered 307, and redirects are not followed"},
		"an error":         {func(w http.ResponseWriter, _ got) { w.WriteHeader(500) }, store.DeliveryFailed, "it answered 500"},
		"10 MB":            {func(w http.ResponseWriter, _ got) { tenTimes(w, flood) }, store.DeliveryDelivered, ""},
		"it closes":        {hangUp, store.DeliveryFailed, "EOF"},
		"too long headers": {func(w http.ResponseWriter, _ got) { w.Header().Set("X", flood) }, store.DeliveryFailed, "header"},
		"a few bytes now and then": {func(w http.ResponseWriter, _ got) { // its status is what counts
			for range 3 {
				_, _ = w.Write([]byte("x"))
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
			hangUp(w, got{})
		}, store.DeliveryDelivered, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := receive(t, c.answer)
			r := newRig(t, to)
			r.create(t, "one", to, New{})

			d, err := r.sender.Test(t.Context(), "one")

			require.NoError(t, err)
			require.Equal(t, c.state, d.State, d.Error)
			require.Contains(t, d.Error, c.err)
			require.NotContains(t, d.Error, "127.0.0.1:", "no URL in it")
			require.Len(t, to.all(), 1)
			require.Empty(t, elsewhere.all())
		})
	}
}

func tenTimes(w http.ResponseWriter, flood string) {
	for range 10 {
		if _, err := w.Write([]byte(flood)); err != nil {
			return
		}
	}
}

func hangUp(w http.ResponseWriter, _ got) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// A receiver that takes its time is given up after a while, which ends the try and no more.
func TestAReceiverThatTakesItsTime(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	to := receive(t, func(http.ResponseWriter, got) { <-open })
	r := newRig(t, to)
	t.Cleanup(func() { close(open) })
	r.create(t, "slow", to, New{})
	r.sender.http.Timeout = 50 * time.Millisecond
	began := time.Now()

	d, err := r.sender.Test(t.Context(), "slow")

	require.NoError(t, err)
	require.Equal(t, "it did not answer within 10s", d.Error)
	require.Less(t, time.Since(began), testPatience/2)
	require.Equal(t, tryTime, r.sender.client().Timeout)
}

// Who shows a certificate that nobody has vouched for is told nothing.
func TestAReceiverWithoutACertificateThatIsTrusted(t *testing.T) {
	t.Parallel()
	to := receive(t, nil)
	r := newRig(t)
	r.create(t, "other", to, New{})

	d, err := r.sender.Test(t.Context(), "other")

	require.NoError(t, err)
	require.Equal(t, store.DeliveryFailed, d.State)
	require.Contains(t, d.Error, "certificate")
	require.Empty(t, to.all())
}

// A name whose address changes after the webhook was made is looked at when it is dialled; neither that nor a proxy of the
// environment leads to an address that is not allowed.
func TestANameThatComesToMeanThisNetwork(t *testing.T) {
	to := receive(t, nil)
	t.Setenv("HTTPS_PROXY", to.URL)
	names := newNames(t)
	r := newRig(t, to)
	r.stop()
	r.dns = names.resolver()
	r.start(t)
	r.create(t, "moves", to, New{URL: "https://example.com:" + strings.TrimPrefix(to.URL[strings.LastIndex(to.URL, ":"):], ":")})
	names.mean(net.IPv4(127, 0, 0, 1))
	d, err := r.sender.Test(t.Context(), "moves")
	require.NoError(t, err)
	require.Equal(t, store.DeliveryDelivered, d.State, d.Error)
	r.sender.http.CloseIdleConnections()

	for _, ip := range []net.IP{net.IPv4(169, 254, 169, 254), net.IPv4(10, 0, 0, 1), net.IPv4(0, 0, 0, 0)} {
		names.mean(ip)
		d, err = r.sender.Test(t.Context(), "moves")
		require.NoError(t, err)
		require.Equal(t, store.DeliveryFailed, d.State)
		require.Contains(t, d.Error, "address "+ip.String()+" is not allowed for webhooks")
	}
	require.Len(t, to.all(), 1)
}
