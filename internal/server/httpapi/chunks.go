package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// ReadManifest reads the manifest of a checkpoint, or of a part of one. It is fault.Invalid if it is not what was
// uploaded under this digest.
func ReadManifest(ctx context.Context, blobs blob.Store, digest string) (*api.CheckpointManifest, error) {
	f, err := blobs.Get(ctx, ChunkBlob(digest))
	if err != nil {
		return nil, err
	}

	defer func() { _ = f.Close() }()

	sum := sha256.New()

	text, err := io.ReadAll(io.TeeReader(io.LimitReader(f, api.MaxCheckpointManifest), sum))
	if err != nil {
		return nil, err
	}

	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return nil, fault.New(fault.Invalid, "bad_manifest", "manifest %s has another digest", digest).WithField("manifest")
	}

	var m api.CheckpointManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fault.New(fault.Invalid, "bad_manifest", "manifest %s is not valid JSON", digest).
			WithField("manifest").WithCause(err)
	}

	return &m, m.Check()
}
