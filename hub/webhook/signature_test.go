package webhook

import (
	"crypto/ed25519"
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The signature of the specification, with the key that its authors have published for it.
func TestTheSignatureOfTheSpecification(t *testing.T) {
	t.Parallel()
	raw, err := base64.StdEncoding.DecodeString("6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
	require.NoError(t, err)
	key := ed25519.PrivateKey(raw)
	const id, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`
	at := time.Unix(1614265330, 0)

	require.Equal(t, "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", publicText(key))
	const want = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
	require.Equal(t, want, signature([]ed25519.PrivateKey{key}, id, at, body))
	require.Equal(t, want+" "+want, signature([]ed25519.PrivateKey{key, key}, id, at, body))
	require.Equal(t, `msg_2KWPBgLlAfxdpx2AI54pPJ85f4W.1674087231.{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}`,
		signedText("msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", time.Unix(1674087231, 0), `{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}`))
}

// Each webhook, and each of its keys, has another one, which is the same in each life of the hub.
func TestKeysAreOfOneWebhook(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, secret := range []string{"one", "two"} {
		for _, webhook := range []string{"a", "b"} {
			for _, key := range []string{"1", "2"} {
				k, err := privateKey([]byte(secret), webhook, key)
				require.NoError(t, err)
				again, err := privateKey([]byte(secret), webhook, key)
				require.NoError(t, err)
				require.Equal(t, k, again)
				seen[publicText(k)] = true
			}
		}
	}
	require.Len(t, seen, 8)
}
