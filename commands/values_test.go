package commands

import (
	"bytes"
	"crypto/ecdh"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spawnmesh/spawnmesh/signing"
)

func sealedExample() *Sealed {
	return &Sealed{Key: signing.SealingKeyIDOf(nil), Mark: make([]byte, 32), Box: make([]byte, 60)}
}

func decrypter(t *testing.T, b byte) *signing.Decrypter {
	t.Helper()
	key, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{b}, 32))
	require.NoError(t, err)
	d, err := signing.NewDecrypter(key)
	require.NoError(t, err)
	return d
}

var valuesAt = ValuesPlace("mi1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", task, task)

func TestValuesAreForTheirVariablesAlone(t *testing.T) {
	hub, spoke := decrypter(t, 1), decrypter(t, 2)
	s := good()
	s.Env = []EnvVar{{"CI", EnvPlain}, {"TOKEN", EnvSecret}}
	values := Values{NewSecret("1"), NewSecret("hunter2 \u00fc\n\"<&>")}
	require.NoError(t, s.CheckValues(values))
	marked, err := s.Marked(hub, values)
	require.NoError(t, err)

	sealed, err := marked.Seal(spoke.Public(), valuesAt, values)

	require.NoError(t, err)
	require.NoError(t, sealed.Validate())
	raw, err := json.Marshal(sealed)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "hunter2")
	got, err := sealed.Values(spoke, valuesAt)
	require.NoError(t, err)
	require.Equal(t, values, got)
	require.Equal(t, marked, sealed.WithoutBox(), "what is kept of it")
	for name, change := range map[string]func(*Spawn){
		"a variable with another name":    func(s *Spawn) { s.Env = []EnvVar{{"CI", EnvPlain}, {"OTHER", EnvSecret}} },
		"variables that changed places":   func(s *Spawn) { s.Env = []EnvVar{{"TOKEN", EnvSecret}, {"CI", EnvPlain}} },
		"a secret that is to be one less": func(s *Spawn) { s.Env = []EnvVar{{"CI", EnvPlain}, {"TOKEN", EnvPlain}} },
		"one variable less":               func(s *Spawn) { s.Env = s.Env[:1] },
	} {
		other := *sealed
		change(&other)
		_, err := other.Values(spoke, valuesAt)
		require.Equal(t, signing.SealOpen, CodeOf(err), name)
	}
}

// What is measured of an order is what is sealed of it, to the byte: the largest one is sent, and one
// more byte is refused before anything is sealed.
func TestTheSizeOfAnOrderIsKnownBeforeItIsSealed(t *testing.T) {
	hub, spoke := decrypter(t, 1), decrypter(t, 2)
	for name, values := range map[string]Values{
		"without values": nil,
		"with values":    {NewSecret(strings.Repeat("\n", 20<<10)), NewSecret("\u00fc<&>")},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			s.Argv = []string{"a", ""}
			s.Env = []EnvVar{{"CI", EnvPlain}, {"TOKEN", EnvSecret}}[:len(values)]
			sent := func() ([]byte, error) {
				body, err := s.Marked(hub, values)
				require.NoError(t, err)
				if len(values) > 0 {
					body, err = body.Seal(spoke.Public(), valuesAt, values)
					require.NoError(t, err)
				}
				return BodyToSend(body)
			}
			raw, err := sent()
			require.NoError(t, err)
			room := signing.MaxBody - len(raw)
			s.Argv[1] = strings.Repeat(`"`, room/2) + strings.Repeat("x", room%2)

			raw, err = sent()

			require.NoError(t, err)
			require.Len(t, raw, signing.MaxBody)
			require.NoError(t, s.CheckSize(values))
			s.Argv[1] += "x"
			require.NoError(t, s.ValidateOrder(), "its parts are within their limits")
			require.Equal(t, Validation, CodeOf(s.CheckSize(values)))
			_, err = sent()
			require.Equal(t, Validation, CodeOf(err))
		})
	}
}

func TestValuesThatCannotBe(t *testing.T) {
	s := good()
	s.Env = []EnvVar{{"A", EnvPlain}, {"B", EnvSecret}}
	for name, v := range map[string]Values{
		"one too few":     {NewSecret("hunter2")},
		"a NUL":           {NewSecret("hunter2\x00"), {}},
		"no UTF-8":        {NewSecret("hunter2\xff"), {}},
		"U+FFFD":          {NewSecret("hunter2\uFFFD"), {}},
		"64 KiB and more": {{}, NewSecret("hunter2" + strings.Repeat("x", MaxEnvBytes))},
		"96 KiB together": {NewSecret("hunter2" + strings.Repeat("x", 60<<10)), NewSecret(strings.Repeat("x", 60<<10))},
	} {
		err := s.CheckValues(v)
		require.Equal(t, BadEnv, CodeOf(err), name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
	require.NoError(t, s.CheckValues(Values{{}, NewSecret(strings.Repeat("x", MaxEnvBytes))}))
}

// A secret is not shown by any way that shows things.
func TestSecretsShowThemselvesNowhere(t *testing.T) {
	v := NewSecret("hunter2")
	type holder struct {
		V    Secret
		List Values
		Map  map[Secret]Secret
		P    *Secret
		own  Secret // whose methods nobody may ask
	}
	h := holder{v, Values{v}, map[Secret]Secret{v: v}, &v, v}
	var log bytes.Buffer
	raw, err := json.Marshal(h)
	require.NoError(t, err)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v, "h", h, "list", Values{v})
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "h", h, "list", Values{v})
	shown := string(raw) + log.String() + v.String() + v.GoString() + fmt.Errorf("err: %w %v", fmt.Errorf("%s", v), h).Error()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		shown += fmt.Sprintf(verb, v) + fmt.Sprintf(verb, h) + fmt.Sprintf(verb, Values{v})
	}
	require.NotContains(t, shown, "hunter2")
	require.NotContains(t, strings.ToLower(shown), fmt.Sprintf("%x", "hunter2"))
	require.Contains(t, shown, redacted)
}
