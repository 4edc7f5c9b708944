package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// ReadManifest reads the manifest of a checkpoint, or of a part of one.
func ReadManifest(ctx context.Context, blobs blob.Store, digest string) (*api.CheckpointManifest, error) {
	f, err := blobs.Get(ctx, ChunkBlob(digest))
	if err != nil {
		return nil, err
	}

	defer func() { _ = f.Close() }()

	var m api.CheckpointManifest
	if err := json.NewDecoder(io.LimitReader(f, api.MaxCheckpointManifest)).Decode(&m); err != nil {
		return nil, fault.New(fault.Invalid, "bad_manifest", "manifest %s is not valid JSON", digest).
			WithField("manifest").WithCause(err)
	}

	return &m, m.Check()
}

// lookups is how many chunks are looked for at a time: an object store takes some milliseconds for each.
const lookups = 32

// MissingChunks returns those of the digests whose chunks are not stored, in their order.
func MissingChunks(ctx context.Context, blobs blob.Store, digests []string) ([]string, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	missing := make([]bool, len(digests))
	next := make(chan int)

	var group sync.WaitGroup
	for range min(lookups, len(digests)) {
		group.Go(func() {
			for i := range next {
				has, err := blobs.Has(ctx, ChunkBlob(digests[i]))
				if err != nil {
					stop(err)
					return
				}

				missing[i] = !has
			}
		})
	}

	for i := range digests {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}

		break
	}

	close(next)
	group.Wait()

	if err := context.Cause(ctx); err != nil {
		return nil, err
	}

	var list []string
	for i, d := range digests {
		if missing[i] {
			list = append(list, d)
		}
	}

	return list, nil
}
