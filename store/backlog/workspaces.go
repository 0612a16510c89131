package backlog

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A WorkspaceCount is a workspace that tasks are in, or were in lately.
type WorkspaceCount struct {
	Name  string `json:"name"`
	Ready int64  `json:"ready"` // tasks that stand ready to be claimed
}

// Workspaces lists them by name, without reading the tasks.
func (b *Backlog) Workspaces(ctx context.Context) (list []WorkspaceCount, err error) {
	err = b.db.Read(ctx, "listing workspaces", func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement("workspaces"))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[WorkspaceCount])
		return err
	})
	return list, err
}
