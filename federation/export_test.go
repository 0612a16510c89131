package federation

import "context"

// ReconcileForTest follows the table of connections once, and reports whether nothing has to be looked at soon.
func ReconcileForTest(ctx context.Context, b *Board) (settled bool, err error) {
	return b.reconcile(ctx)
}
