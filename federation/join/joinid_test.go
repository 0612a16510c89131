package join

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var channel = bytes.Repeat([]byte{9}, 32)

func TestASessionShowsTheInviteOfItsToken(t *testing.T) {
	t.Parallel()
	token, _ := aToken(t)

	joinID := token.JoinID(channel)

	require.Regexp(t, `^[0-9a-f]{32}[A-Z2-7]{32}$`, joinID)
	require.Equal(t, token.ID, InviteOf(joinID))
	require.True(t, CheckJoinID(joinID, token.ProofKey(), channel))
	require.NotContains(t, joinID, string(token.secret[:4]))
}

func TestSessionsThatShowNothing(t *testing.T) {
	t.Parallel()
	token, _ := aToken(t)
	other, _ := aToken(t)
	good := token.JoinID(channel)
	tests := map[string]struct {
		joinID   string
		key      []byte
		exporter []byte
	}{
		"of another connection":          {good, token.ProofKey(), bytes.Repeat([]byte{8}, 32)},
		"with another secret":            {good, other.ProofKey(), channel},
		"with no secret":                 {good, nil, channel},
		"with a name alone":              {good[:joinIDInvite], token.ProofKey(), channel},
		"with another invite's name":     {strings.Repeat("0", joinIDInvite) + good[joinIDInvite:], token.ProofKey(), channel},
		"in another spelling":            {strings.ToUpper(good), token.ProofKey(), channel},
		"in small letters":               {strings.ToLower(good), token.ProofKey(), channel},
		"cut short":                      {good[:len(good)-1], token.ProofKey(), channel},
		"longer":                         {good + "A", token.ProofKey(), channel},
		"empty":                          {"", token.ProofKey(), channel},
		"an invite that is no hex digit": {"x" + good[1:], token.ProofKey(), channel},
	}
	for name, tt := range tests {
		require.False(t, CheckJoinID(tt.joinID, tt.key, tt.exporter), name)
	}
	for at := range good {
		require.False(t, CheckJoinID(good[:at]+"0"+good[at+1:], token.ProofKey(), channel) && good[at] != '0', "letter %d", at)
	}
}
