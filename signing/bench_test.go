package signing

import (
	"fmt"
	"testing"
)

// What a message costs in trees of several sizes: an op is one message, with a body as
// long as a usual order's.
func BenchmarkSeal(b *testing.B) {
	for _, n := range []int{1, 16, MaxTree} {
		b.Run(fmt.Sprintf("tree-%d", n), func(b *testing.B) {
			list, _, _ := unsealed(b, n)
			key := seedSigner(b, 2)
			b.ReportAllocs()
			for done := 0; done < b.N; done += n {
				if _, err := key.SealAll(list); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{1, 16, MaxTree} {
		b.Run(fmt.Sprintf("tree-%d", n), func(b *testing.B) {
			list, v, now := unsealed(b, n)
			all, err := seedSigner(b, 2).SealAll(list)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := range b.N {
				if i%n == 0 {
					v.Heads = &Heads{} // the first message of each tree is verified
				}
				if _, err := v.Open(all[i%n].Envelope, now); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(all[n/2].Envelope)), "bytes")
		})
	}
}
