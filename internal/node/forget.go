package node

import (
	"context"
	"errors"
	"time"

	"github.com/spawnmesh/spawnmesh/internal/blob"
	"github.com/spawnmesh/spawnmesh/internal/wait"
	"github.com/spawnmesh/spawnmesh/store"
)

const (
	blobGrace = 24 * time.Hour // how long bytes are kept that no task needs or has left
	partGrace = time.Hour      // how long a part is left alone after the last of it has come
)

// forgetBlobs removes bytes that nobody needs, now and then: the hub and the spoke of an instance have one directory.
func (n *Node) forgetBlobs(ctx context.Context, blobs *blob.Store) error {
	for first := byte(0); wait.For(ctx, time.Minute) == nil; first++ {
		now := time.Now()
		err := errors.Join(n.forgetRows(ctx, blobs, now), n.forgetParts(ctx, blobs, now), n.forgetFiles(ctx, blobs, first, now))
		if err != nil && ctx.Err() == nil {
			n.Log.ErrorContext(ctx, "removing blobs that nobody needs; it is tried again", "err", err)
		}
	}
	return nil
}

// forgetRows forgets what nobody needs, and its bytes. What cannot be removed has no row, and is found as a file.
func (n *Node) forgetRows(ctx context.Context, blobs *blob.Store, now time.Time) error {
	var failed error
	for {
		gone, err := n.Instance.DB.ForgetBlobs(ctx, blobGrace)
		if err != nil || len(gone) == 0 {
			return errors.Join(failed, err)
		}
		failed = errors.Join(failed, removeAll(blobs, gone, now))
		n.Log.InfoContext(ctx, "blobs that nobody needs were removed", "blobs", len(gone))
	}
}

// forgetFiles removes the bytes in one of the directories that nobody owns: whoever wrote them was killed, or they were not to be removed then.
func (n *Node) forgetFiles(ctx context.Context, blobs *blob.Store, first byte, now time.Time) error {
	old, err := blobs.Old(first, now.Add(-blobGrace))
	if err != nil || len(old) == 0 {
		return err
	}
	digests := make([]string, len(old))
	for i, d := range old {
		digests[i] = d.String()
	}
	gone, err := n.Instance.DB.Unknown(ctx, digests)
	return errors.Join(err, removeAll(blobs, gone, now))
}

// removeAll removes bytes that were not written within the grace.
func removeAll(blobs *blob.Store, digests []string, now time.Time) (failed error) {
	for _, text := range digests {
		d, err := blob.Parse(text)
		if err == nil {
			err = blobs.RemoveOld(d, now.Add(-partGrace))
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// forgetParts removes what has come of blobs that nobody wants any more.
func (n *Node) forgetParts(ctx context.Context, blobs *blob.Store, now time.Time) error {
	list, err := blobs.Parts()
	if err != nil || len(list) == 0 {
		return err
	}
	parts := make([]store.Part, len(list))
	for i, p := range list {
		parts[i] = store.Part{Conn: p.From, Digest: p.Digest.String()}
	}
	gone, err := n.Instance.DB.Unwanted(ctx, parts)
	for _, p := range gone {
		d, e := blob.Parse(p.Digest)
		if e == nil {
			e = blobs.RemovePart(p.Conn, d, now.Add(-partGrace))
		}
		err = errors.Join(err, e)
	}
	return err
}
