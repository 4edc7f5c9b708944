package checkpoint_test

import (
	"testing"

	"trainyard/internal/checkpoint"
)

func TestOnlyASnapshotIsRestoredAsOne(t *testing.T) {
	t.Parallel()

	for _, found := range []checkpoint.Found{
		checkpoint.ByMarker, checkpoint.ByRename, checkpoint.ByHuggingFace, checkpoint.ByLightning, checkpoint.ByDCP,
		checkpoint.ByRest, checkpoint.BySnapshot,
	} {
		c := checkpoint.Checkpoint{Found: found}
		if got, want := c.Restore().Snapshot, found == checkpoint.BySnapshot; got != want {
			t.Errorf("found by %s: snapshot is %t", found, got)
		}
	}
}
