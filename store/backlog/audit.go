package backlog

import (
	"context"

	"github.com/spawnmesh/spawnmesh/store"
)

// Audit returns what was decided about the task that ref names, in order; with
// an empty ref about everything in the workspace. Of more than limit rows it is
// the newest; where before is not 0, of those with lower numbers.
func (ws *Workspace) Audit(ctx context.Context, ref string, before int64, limit int) (list []store.AuditRow, err error) {
	err = ws.read(ctx, "reading the audit of workspace "+ws.name, func(ctx context.Context, tx *store.Tx) error {
		object := ""
		if ref != "" {
			t, err := ws.find(ctx, tx, ref)
			if err != nil {
				return err
			}
			object = t.ID
		}
		list, err = store.AuditHere(ctx, tx, object, before, limit)
		return err
	})
	return list, err
}
