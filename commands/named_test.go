package commands

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const anID = "0199a5f2-7c10-7d3e-9b7a-5f2c1e88d001"

func TestAnIDIsMeantBySixOrMoreOfItsCharacters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text  string
		means bool
	}{
		"all of it":                   {anID, true},
		"six characters":              {anID[:6], true},
		"five characters":             {anID[:5], false},
		"none":                        {"", false},
		"another id":                  {"0199a5f3", false},
		"more than all of it":         {anID + "0", false},
		"capitals":                    {strings.ToUpper(anID), false},
		"a part that is not at first": {anID[3:12], false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.means, Means(tt.text, anID))
		})
	}
	require.True(t, Means("x", "x"), "a short id is named whole")
}

func TestAShortIDIsTheRandomEndOfAnID(t *testing.T) {
	t.Parallel()
	require.Equal(t, "5gf8hm01", ShortID(anID))
	require.Equal(t, "00000000", ShortID("0199a5f2-7c10-7d3e-9b7a-5f0000000000"))
	require.Equal(t, "zzzzzzzz", ShortID("0199a5f2-7c10-7d3e-9b7a-5fffffffffff"))
	require.Equal(t, "no-uuid", ShortID("no-uuid"))
	require.Equal(t, "0199a5f2-7c10-7d3e-9b7a-5f2c1e88d0xx", ShortID("0199a5f2-7c10-7d3e-9b7a-5f2c1e88d0xx"))
}

func TestATaskIsNamedByItsShortIDOrItsID(t *testing.T) {
	t.Parallel()
	short := ShortID(anID)
	for name, tt := range map[string]struct {
		text      string
		ok, names bool
	}{
		"its id":                           {anID, true, true},
		"its id in capitals":               {strings.ToUpper(anID), true, true},
		"its short id":                     {short, true, true},
		"its short id in capitals":         {strings.ToUpper(short), true, true},
		"a zero that is read as a letter":  {"5gf8hmol", true, true},
		"a one that is read as a letter":   {"5gf8hm0i", true, true},
		"four characters of the short id":  {short[:4], true, true},
		"seven characters of the short id": {short[:7], true, true},
		"three characters":                 {short[:3], false, false},
		"none":                             {"", false, false},
		"another short id":                 {"5gf8hm02", true, false},
		"the time of the id":               {anID[:8], true, false},
		"the id up to a dash":              {anID[:9], true, true},
		"all but the last":                 {anID[:35], true, true},
		"more than all of it":              {anID + "0", false, false},
		"a letter that is no digit":        {"5gf8hmu1", false, false},
		"a dash in a wrong place":          {"0199a5f27-", false, false},
		"none where one must be":           {"0199a5f27", false, false},
		"what is no hexadecimal":           {"0199a5f2-g", false, false},
		"a letter of two bytes":            {"5gf8hé", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r, ok := NamedIDs(tt.text)

			require.Equal(t, tt.ok, ok)
			if ok {
				id := anID
				if r.Tail {
					id = anID[wholeLength-tailDigits:]
				}
				require.Equal(t, tt.names, r.Low <= id && id <= r.High, "from %s to %s", r.Low, r.High)
				require.Len(t, r.Low, len(id))
				require.Len(t, r.High, len(id))
			}
		})
	}
	r, _ := NamedIDs("5gf8")
	require.Equal(t, IDRange{Low: "2c1e800000", High: "2c1e8fffff", Tail: true}, r)
}
