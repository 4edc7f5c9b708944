package server

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

// twoFiles is a checkpoint of two files; the second has two chunks, one of which the first has too.
func twoFiles() (manifest string, chunks []string) {
	piece := func(text string) api.CheckpointChunk {
		return api.CheckpointChunk{Digest: digestOf(text), Size: int64(len(text))}
	}
	text, err := json.Marshal(api.CheckpointManifest{Files: []api.CheckpointFile{
		{Path: "a/model", Mode: 0o644, Size: 3, Chunks: []api.CheckpointChunk{piece("abc")}},
		{Path: "b", Mode: 0o600, Size: 5, Chunks: []api.CheckpointChunk{piece("abc"), piece("de")}},
		{Path: "c", Link: "b"},
	}})
	if err != nil {
		panic(err)
	}

	return string(text), []string{"abc", "de"}
}

// assigned returns what a node was assigned of a run.
func (n *node) assigned(run id.Run) api.Assignment {
	n.y.t.Helper()
	var found api.Assignment
	n.await(func(a api.Assignments) bool {
		i := slices.IndexFunc(a.Runs, func(r api.Assignment) bool { return r.Run == run })
		if i >= 0 {
			found = a.Runs[i]
		}

		return i >= 0
	})

	return found
}

// newCheckpoint is one that rank 0 of a run has.
func (n *node) newCheckpoint(run id.Run, manifest string) api.NewCheckpoint {
	return api.NewCheckpoint{
		Run: run, UID: n.assigned(run).Launch.UID, Ranks: 1, Name: "step-7", Step: new(int64(7)), Metric: "loss",
		Value: new(0.5), Size: 8, Found: checkpoint.ByRename, Written: n.y.clock.Now(), Manifest: digestOf(manifest),
	}
}

// saves uploads a checkpoint of a run and adds it.
func (n *node) saves(run id.Run) api.NewCheckpointReply {
	n.y.t.Helper()
	manifest, chunks := twoFiles()

	for _, text := range append(chunks, manifest) {
		n.y.must(n.PutChunk(n.y.t.Context(), run, digestOf(text), []byte(text)))
	}

	reply, err := n.AddCheckpoint(n.y.t.Context(), n.newCheckpoint(run, manifest))
	n.y.must(err)

	return reply
}

func TestACheckpointTravelsToAnotherNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	first := y.join("first")
	first.listen()
	j, run := first.started(ada)
	manifest, chunks := twoFiles()
	pieces := []api.CheckpointChunk{
		{Digest: digestOf(chunks[0]), Size: 3}, {Digest: digestOf(chunks[1]), Size: 2}, {Digest: digestOf(manifest), Size: 9},
	}

	located := func(n *node, r api.ChunksRequest) []string {
		reply, err := n.Chunks(t.Context(), r)
		y.must(err)

		var list []string
		for _, c := range reply.Chunks {
			list = append(list, c.Digest)
		}

		return list
	}

	y.must(first.PutChunk(t.Context(), run, digestOf(chunks[0]), []byte(chunks[0])))

	want := []string{digestOf(chunks[1]), digestOf(manifest)}
	if diff := cmp.Diff(want, located(first, api.ChunksRequest{Run: run, Chunks: pieces})); diff != "" {
		t.Errorf("to be uploaded (-want +got):\n%s", diff)
	}

	// What is not all there is not a checkpoint.
	_, err := first.AddCheckpoint(t.Context(), first.newCheckpoint(run, manifest))
	wantFault(t, err, fault.Conflict, "chunk_missing")
	y.must(first.PutChunk(t.Context(), run, digestOf(manifest), []byte(manifest)))

	_, err = first.AddCheckpoint(t.Context(), first.newCheckpoint(run, manifest))
	wantFault(t, err, fault.Conflict, "chunk_missing")

	err = first.PutChunk(t.Context(), run, digestOf(chunks[1]), []byte("other content"))
	wantFault(t, err, fault.Invalid, "wrong_digest")

	added := first.saves(run)
	if added.ID != id.NewCheckpoint(j, 1) || added.State != checkpoint.Stored {
		t.Errorf("added as %+v", added)
	}

	// The next run is on another node.
	second := y.join("second")
	second.listen()
	y.do(yardmaster.Cordon{Node: "first", By: "test", On: true, Stop: true})
	now := y.clock.Now()
	first.tell(api.RankReport{Run: run, State: job.RunEnded, Started: now, Ended: now, Signalled: true})

	next := id.NewRun(j, 2)
	restore := second.assigned(next).Launch.Restore
	if restore == nil || restore.Checkpoint != added.ID || restore.Size != 8 ||
		restore.Parts[0].Manifest != digestOf(manifest) {
		t.Fatalf("restore = %+v", restore)
	}

	if got := located(second, api.ChunksRequest{Run: next, Chunks: pieces, Restore: true}); len(got) != len(pieces) {
		t.Errorf("to be downloaded: %v", got)
	}

	for _, text := range append(chunks, manifest) {
		body, err := second.FetchChunk(t.Context(), next, digestOf(text))
		y.must(err)

		got, err := io.ReadAll(body)
		y.must(errors.Join(err, body.Close()))

		if string(got) != text {
			t.Errorf("fetched %q, want %q", got, text)
		}
	}

	// The run before is not the newest any more.
	late := first.newCheckpoint(run, manifest)
	late.Written = y.clock.Now()
	_, err = first.AddCheckpoint(t.Context(), late)
	wantFault(t, err, fault.Conflict, api.CodeStaleEpoch)

	if refused := y.eventsOf("checkpoint.refused"); len(refused) != 1 {
		t.Errorf("refused: %q", refused)
	}
}

func TestANodeTouchesOnlyCheckpointsOfItsRuns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("mine")
	n.listen()
	j, run := n.started(ada)
	manifest, chunks := twoFiles()
	n.saves(run)

	other := y.join("other")
	secret := "of another job"
	y.must(y.blobs.Put(t.Context(), httpapi.ChunkBlob(digestOf(secret)), strings.NewReader(secret)))

	piece := []api.CheckpointChunk{{Digest: digestOf(chunks[0]), Size: 3}}
	_, err := other.Chunks(t.Context(), api.ChunksRequest{Run: run, Chunks: piece})
	wantFault(t, err, fault.Denied, "not_your_run")
	wantFault(t, other.PutChunk(t.Context(), run, digestOf("x"), []byte("x")), fault.Denied, "not_your_run")

	stolen := n.newCheckpoint(run, manifest)
	_, err = other.AddCheckpoint(t.Context(), stolen)
	wantFault(t, err, fault.Denied, "not_your_run")

	lost := n.newCheckpoint(run, manifest)
	lost.UID = "0123456789abcdef0123456789abcdef"
	_, err = n.AddCheckpoint(t.Context(), lost)
	wantFault(t, err, fault.Conflict, api.CodeStaleEpoch)

	// A run that restores nothing fetches nothing, and one that restores fetches that alone.
	_, err = n.FetchChunk(t.Context(), run, digestOf(chunks[0]))
	wantFault(t, err, fault.Denied, "not_your_run")

	n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), Signalled: true})
	next := n.awaitRun(j, 2)
	_, err = n.FetchChunk(t.Context(), next, digestOf(secret))
	wantFault(t, err, fault.Denied, "not_your_chunk")

	_, err = n.Chunks(t.Context(), api.ChunksRequest{
		Run: next, Restore: true, Chunks: append(piece, api.CheckpointChunk{Digest: digestOf(secret), Size: 1}),
	})
	wantFault(t, err, fault.Denied, "not_your_chunk")

	_, err = other.FetchChunk(t.Context(), next, digestOf(chunks[0]))
	wantFault(t, err, fault.Denied, "not_your_run")
}

func TestABadManifestIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n")
	n.listen()
	_, run := n.started(y.researcher("ada"))

	for name, text := range map[string]string{
		"not JSON":                `{"files":`,
		"outside the directory":   `{"files":[{"path":"../x","mode":420,"size":0}]}`,
		"an absolute path":        `{"files":[{"path":"/x","mode":420,"size":0}]}`,
		"a file twice":            `{"files":[{"path":"x","mode":420,"size":0},{"path":"x","mode":420,"size":0}]}`,
		"a size that is not true": `{"files":[{"path":"x","mode":420,"size":4}]}`,
	} {
		y.must(n.PutChunk(t.Context(), run, digestOf(text), []byte(text)))

		_, err := n.AddCheckpoint(t.Context(), n.newCheckpoint(run, text))
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPeopleListPinRemoveAndDownloadCheckpoints(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()
	j, run := n.started(ada)
	first := n.saves(run).ID
	second := n.saves(run).ID

	list, err := ada.Checkpoints(t.Context(), j, false)
	y.must(err)

	if len(list.Checkpoints) != 2 || list.Checkpoints[0].Next || !list.Checkpoints[1].Next {
		t.Fatalf("listed %+v", list.Checkpoints)
	}

	got := list.Checkpoints[1]
	if got.ID != second || *got.Step != 7 || got.Metric != "loss" || *got.Value != 0.5 || got.Size != 8 ||
		got.State != checkpoint.Stored || !slices.Equal(got.Nodes, []id.Node{"n"}) || got.Name != "step-7" {
		t.Errorf("shown as %+v", got)
	}

	pinned, err := ada.PinCheckpoint(t.Context(), first, true)
	y.must(err)

	if !pinned.Pinned {
		t.Errorf("pinned as %+v", pinned)
	}

	wantFault(t, ada.RemoveCheckpoint(t.Context(), first), fault.Conflict, "checkpoint_pinned")
	_, err = ada.PinCheckpoint(t.Context(), first, false)
	y.must(err)
	wantFault(t, ada.RemoveCheckpoint(t.Context(), second), fault.Conflict, "checkpoint_needed")
	y.must(ada.RemoveCheckpoint(t.Context(), first))

	list, err = ada.Checkpoints(t.Context(), j, true)
	y.must(err)

	if len(list.Checkpoints) != 2 || list.Checkpoints[0].State != checkpoint.Removed ||
		list.Checkpoints[0].Reason != "removed by ada" {
		t.Errorf("after the removal: %+v", list.Checkpoints)
	}

	_, err = y.researcher("bob").Checkpoint(t.Context(), second)
	wantFault(t, err, fault.NotFound, "checkpoint_not_found")
	_, err = ada.Checkpoint(t.Context(), "j1.c99")
	wantFault(t, err, fault.NotFound, "checkpoint_not_found")
	_, err = ada.DownloadCheckpoint(t.Context(), first)
	wantFault(t, err, fault.Conflict, "checkpoint_state")

	body, err := ada.DownloadCheckpoint(t.Context(), second)
	y.must(err)
	files := untar(t, body)
	y.must(body.Close())

	if diff := cmp.Diff(map[string]string{"a/model": "abc", "b": "abcde", "c": "-> b"}, files); diff != "" {
		t.Errorf("downloaded (-want +got):\n%s", diff)
	}

	// Bytes that are not what was uploaded are not handed out as if they were.
	y.must(y.blobs.Delete(t.Context(), httpapi.ChunkBlob(digestOf("de"))))
	y.must(y.blobs.Put(t.Context(), httpapi.ChunkBlob(digestOf("de")), bytes.NewReader([]byte("xx"))))

	body, err = ada.DownloadCheckpoint(t.Context(), second)
	if err == nil {
		_, err = io.ReadAll(body)
		_ = body.Close()
	}

	if err == nil {
		t.Error("a corrupt checkpoint was downloaded whole")
	}
}

func untar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	in := tar.NewReader(r)

	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}

		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}

		files[head.Name] = string(content)
		if head.Linkname != "" {
			files[head.Name] = "-> " + head.Linkname
		}
	}
}
