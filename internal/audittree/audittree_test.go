package audittree

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/spawnmesh/spawnmesh/signing"
)

func identity(t *testing.T, seed byte) *signing.Signer {
	t.Helper()
	s, err := signing.NewSigner(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	require.NoError(t, err)
	return s
}

// Two rows that differ have two records, also where their texts run into each other.
func TestNoTwoRowsHaveOneRecord(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1)
	base := Row{Seq: 1, At: at, Workspace: "w", Actor: "a", Action: "b", Object: "c", Tasks: []string{"t"}, Code: "d", Why: "e", Conn: "f", Message: "g"}
	seen := map[string]bool{string(Record(base)): true}
	for _, change := range []func(*Row){
		func(r *Row) { r.Seq = 2 }, func(r *Row) { r.At = at.Add(time.Microsecond) }, func(r *Row) { r.Workspace = "" }, func(r *Row) { r.Actor = "a,1:b" },
		func(r *Row) { r.Actor, r.Action = "ab", "" }, func(r *Row) { r.Object = "" }, func(r *Row) { r.Tasks = nil }, func(r *Row) { r.Code = "" },
		func(r *Row) { r.Code, r.Why = "e", "d" }, func(r *Row) { r.Conn = "" }, func(r *Row) { r.Message = "" },
	} {
		r := base
		change(&r)
		require.False(t, seen[string(Record(r))], "%+v", r)
		seen[string(Record(r))] = true
	}
	require.Equal(t, "18:spawnmesh-audit-v1,1:1,1:1,1:w,1:a,1:b,1:c,1:t,1:d,1:e,1:f,1:g,", string(Record(base)), "others compute it, too")
}

func TestTheRootIsTheSameHoweverItIsMade(t *testing.T) {
	t.Parallel()
	var stored []Hash
	read := func(places []int64) ([]Hash, error) {
		list := make([]Hash, len(places))
		for i, p := range places {
			list[i] = stored[p]
		}
		return list, nil
	}
	var g Growing
	size := int64(0)
	for _, page := range []int{1, 2, 5, 8, 1, 0, 64, 3} {
		leaves := make([]Hash, page)
		for i := range leaves {
			leaves[i] = tlog.RecordHash([]byte{byte(size) + byte(i)})
			g.Add(leaves[i])
		}
		added, err := Append(size, leaves, read)
		require.NoError(t, err)
		stored = append(stored, added...)
		size += int64(page)
		root, err := Root(size, read)
		require.NoError(t, err)
		require.Equal(t, root, g.Root())
		require.Equal(t, Place(size), int64(len(stored)))
	}
}

func TestACheckpointIsBelievedOfItsInstanceAlone(t *testing.T) {
	t.Parallel()
	key := identity(t, 1)
	c := Checkpoint{Instance: signing.InstanceIDOf(key.Public()), Size: 7, Root: tlog.RecordHash(nil), Era: 3, At: time.UnixMicro(1800000000000001).UTC()}
	text, err := c.Sign(key)
	require.NoError(t, err)
	require.Less(t, len(text), MaxCheckpoint)

	got, err := Open(text, key.Public())
	require.NoError(t, err)
	require.Equal(t, c, got)
	for name, bad := range map[string]string{
		"another size": strings.Replace(text, "\n7\n", "\n8\n", 1), "another root": strings.Replace(text, "\n7\n", "\n7\nA", 1), "no signature": strings.Split(text, "— ")[0],
		"another era": strings.Replace(text, "era 3", "era 4", 1), "nothing": "", "long": text + strings.Repeat("x", MaxCheckpoint),
	} {
		_, err := Open(bad, key.Public())
		require.ErrorIs(t, err, ErrCheckpoint, name)
	}
	_, err = Open(text, identity(t, 2).Public())
	require.ErrorIs(t, err, ErrCheckpoint)
	foreign, err := c.Sign(identity(t, 2))
	require.NoError(t, err)
	_, err = Open(foreign, identity(t, 2).Public())
	require.ErrorIs(t, err, ErrCheckpoint, "the name in it is that of another instance")
}
