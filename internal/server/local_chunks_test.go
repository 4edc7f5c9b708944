package server

import (
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile/disktest"
	"trainyard/internal/blob"
	"trainyard/internal/blob/blobtest"
	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
)

// Chunks are taken without waiting for the disk, but a checkpoint is in the catalogue only when they are there.
func TestACheckpointInTheCatalogueSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	disk, err := disktest.New(root)
	if err != nil {
		t.Fatal(err)
	}

	blobs, err := blob.OpenDirOn(disk, filepath.Join(root, "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	y := startYardOn(t, t.TempDir(), blobs)
	n := y.join("n")
	n.listen()
	_, run := n.started(y.researcher("ada"))
	before := disk.Syncs()
	manifest, chunks := twoFiles()
	all := append(chunks, manifest)

	for _, text := range all {
		y.must(n.PutChunk(t.Context(), run, digestOf(text), []byte(text)))
	}

	if after := disk.Syncs(); after != before {
		t.Errorf("%d syncs for %d chunks", after-before, len(all))
	}

	_, err = n.AddCheckpoint(t.Context(), n.newCheckpoint(run, manifest))
	y.must(err)
	y.must(disk.Cut(func(int) int { return 0 }))

	blobs, err = blob.OpenDirOn(disk, filepath.Join(root, "blobs"))
	y.must(err)

	for _, text := range all {
		r, err := blobs.Get(t.Context(), httpapi.ChunkBlob(digestOf(text)))
		if got := blobtest.Read(t, r, err); got != text {
			t.Errorf("%q is now %q", text, got)
		}
	}
}

func TestAnAgentOnTheMachineOfTheServerUsesItsFolder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n")
	n.listen()
	_, run := n.started(y.researcher("ada"))
	manifest, chunks := twoFiles()
	all := append(chunks, manifest)
	req := api.ChunksRequest{Run: run}

	for _, text := range all {
		req.Chunks = append(req.Chunks, api.CheckpointChunk{Digest: digestOf(text), Size: int64(len(text))})
	}

	reply, err := n.Chunks(t.Context(), req)
	y.must(err)

	if reply.Folder == "" || reply.Local || reply.Chunks[0].File != "" {
		t.Fatalf("without a nonce: %+v", reply)
	}

	folder, nonce, err := blob.JoinDir(reply.Folder, "agent-1")
	y.must(err)

	req.Nonce = nonce + "x"
	reply, err = n.Chunks(t.Context(), req)
	y.must(err)

	if reply.Local || reply.Chunks[0].File != "" {
		t.Errorf("with a nonce that is not there: %+v", reply)
	}

	req.Nonce = nonce
	reply, err = n.Chunks(t.Context(), req)
	y.must(err)

	if !reply.Local || len(reply.Chunks) != len(all) {
		t.Fatalf("with the nonce: %+v", reply)
	}

	var names []string
	for i, text := range all {
		names = append(names, reply.Chunks[i].File)
		y.must(folder.Stage(t.Context(), names[i], strings.NewReader(text)))
	}

	// What is not synced is not there.
	_, err = n.AddCheckpoint(t.Context(), n.newCheckpoint(run, manifest))
	wantFault(t, err, fault.Conflict, "chunk_missing")

	y.must(folder.Sync(t.Context(), names))

	_, err = n.AddCheckpoint(t.Context(), n.newCheckpoint(run, manifest))
	y.must(err)
}
