package signing

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unsealed is n messages of one sender, and who opens them.
func unsealed(t testing.TB, n int) ([]Unsealed, Verifier, time.Time) {
	t.Helper()
	envelope, v, now := sealed(t, nil)
	m, err := Unseal(envelope, 1)
	require.NoError(t, err)
	list := make([]Unsealed, n)
	for i := range list {
		list[i] = m
		list[i].Header.Seq = int64(i + 1)
	}
	return list, v, now
}

// together is n messages that were sealed together, and who opens them.
func together(t testing.TB, n int) ([]Sealed, Verifier, time.Time) {
	t.Helper()
	list, v, now := unsealed(t, n)
	all, err := seedSigner(t, 2).SealAll(list)
	require.NoError(t, err)
	return all, v, now
}

func TestMessagesSealedTogetherOpenAlone(t *testing.T) {
	for _, n := range []int{1, 2, 3, MaxTree - 1, MaxTree, MaxTree + 1, 3 * MaxTree} {
		all, v, now := together(t, n)
		require.Len(t, all, n)
		for i, s := range all {
			o, err := v.Open(s.Envelope, now)
			require.NoError(t, err)
			require.Equal(t, int64(i+1), o.Header().Seq)
			require.Equal(t, s.Digest, o.Digest())
		}
	}
}

// One signature covers up to MaxTree messages, and the next one begins another tree.
func TestOneSignatureForATree(t *testing.T) {
	all, _, _ := together(t, MaxTree+2)
	sigs := map[string]int{}
	for _, s := range all {
		d, r := decodeEnvelope(s.Envelope)
		require.Nil(t, r)
		sigs[string(d.sigs[0].sig)]++
	}
	first, r := decodeEnvelope(all[0].Envelope)
	require.Nil(t, r)
	require.Len(t, sigs, 2)
	require.Equal(t, MaxTree, sigs[string(first.sigs[0].sig)])
}

func TestSealAllRefusesAllWhereItRefusesOne(t *testing.T) {
	all, _, _ := together(t, 2)
	good, err := Unseal(all[0].Envelope, 1)
	require.NoError(t, err)
	bad := good
	bad.Header.ID = "nope"

	got, err := seedSigner(t, 2).SealAll([]Unsealed{good, bad})

	require.ErrorContains(t, err, "header field id")
	require.Empty(t, got)
	none, err := seedSigner(t, 2).SealAll(nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// What was verified is not verified again: a signature that is remembered counts, though
// it is none. So a fact may be remembered only after it was found to be true.
func TestAVerifiedHeadIsRemembered(t *testing.T) {
	all, v, now := together(t, 3)
	v.Heads = &Heads{}
	for _, s := range all {
		_, err := v.Open(s.Envelope, now)
		require.NoError(t, err)
	}
	require.Len(t, v.Heads.known, 1, "one head, one fact")

	d, r := decodeEnvelope(all[1].Envelope)
	require.Nil(t, r)
	d.sigs[0].sig[0] ^= 1
	_, err := v.Open(d.encode(), now)
	require.Equal(t, string(SigBad), codeOf(err))
	require.Len(t, v.Heads.known, 1, "a failure is no fact")

	key := [32]byte(seedSigner(t, 2).Public())
	v.Heads.remember(verified{key, [64]byte(d.sigs[0].sig), d.place.head(leafOf(d.typ, d.payload))})
	_, err = v.Open(d.encode(), now)
	require.NoError(t, err)
}

// Every part of a fact counts: with any other it has to be verified, and is not true.
func TestWhatWasVerifiedOpensNothingElse(t *testing.T) {
	signer := seedSigner(t, 2)
	h := treeOf(someLeaves(5)).head()
	sig := signer.signHead(h)
	var k Heads
	require.True(t, k.verify(signer.Public(), h, sig))
	require.True(t, k.verify(signer.Public(), h, sig))

	otherRoot, otherSize, otherSig := h, h, append([]byte(nil), sig...)
	otherRoot.root[31] ^= 1
	otherSize.size++
	otherSig[40] ^= 1
	require.False(t, k.verify(signer.Public(), otherRoot, sig), "another root")
	require.False(t, k.verify(signer.Public(), otherSize, sig), "another size")
	require.False(t, k.verify(signer.Public(), h, otherSig), "another signature")
	require.False(t, k.verify(seedSigner(t, 3).Public(), h, sig), "another key")
	require.False(t, k.verify(signer.Public()[:31], h, sig), "half a key")
	require.False(t, k.verify(signer.Public(), h, sig[:63]), "half a signature")
	require.Len(t, k.known, 1)
}

// The keys are asked for each message, not what was verified before.
func TestAKeyThatIsGoneOpensNothing(t *testing.T) {
	all, v, now := together(t, 2)
	v.Heads = &Heads{}
	_, err := v.Open(all[0].Envelope, now)
	require.NoError(t, err)

	id := seedSigner(t, 2).KeyID()
	without, asIdentity := v, v
	without.Keys = map[KeyID]PeerKey{}
	asIdentity.Identity = id
	another := v
	another.Keys = map[KeyID]PeerKey{id: {id, v.Keys[id].Owner, seedSigner(t, 3).Public()}}

	for want, verifier := range map[Code]Verifier{KeyUnknown: without, SigBad: another} {
		_, err = verifier.Open(all[1].Envelope, now)
		require.Equal(t, string(want), codeOf(err))
	}
	_, err = asIdentity.Open(all[1].Envelope, now)
	require.Equal(t, string(KeyUnknown), codeOf(err))
	_, err = v.Open(all[1].Envelope, now.Add(24*time.Hour))
	require.Equal(t, string(TimeExpired), codeOf(err))
}

// The oldest fact is forgotten for a new one.
func TestHeadsAreBounded(t *testing.T) {
	var k Heads
	fact := func(i int) verified { return verified{head: head{size: i}} }
	for i := range maxHeads + 10 {
		k.remember(fact(i))
		k.remember(fact(i))
	}
	require.Len(t, k.known, maxHeads)
	require.Len(t, k.ring, maxHeads)
	require.False(t, k.knows(fact(9)))
	require.True(t, k.knows(fact(10)))
	require.True(t, k.knows(fact(maxHeads+9)))
}

func TestHeadsServeSeveralAtOnce(t *testing.T) {
	all, v, now := together(t, 16)
	v.Heads = &Heads{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, s := range all {
				if _, err := v.Open(s.Envelope, now); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, v.Heads.known, 1)
}
