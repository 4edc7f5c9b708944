package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/blob/blobtest"
	"trainyard/internal/blob/s3"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
)

// newBucket is a store in a bucket of a server that was started for a test.
func newBucket(t *testing.T) *s3.Store {
	t.Helper()
	server := blobtest.StartServer(t, "versitygw")
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})

	store, err := s3.New(s3.Config{
		Bucket: server.NewBucket(t), Endpoint: server.URL, PathStyle: true, Region: blobtest.Region,
		Credentials: credentials.NewStaticCredentialsProvider(blobtest.AccessKey, blobtest.SecretKey, ""),
	})
	if err != nil {
		t.Fatal(err)
	}

	return store
}

// transfer makes the request that a place names, and returns the answer.
func transfer(t *testing.T, method string, place api.ChunkPlace, content string) (int, string) {
	t.Helper()
	if place.URL == "" {
		t.Fatalf("chunk %s has no URL", place.Digest)
	}

	r, err := http.NewRequestWithContext(t.Context(), method, place.URL, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}

	for name, value := range place.Header {
		r.Header.Set(name, value)
	}

	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = res.Body.Close() }()

	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}

	return res.StatusCode, string(body)
}

func TestChunksTravelDirectlyToAndFromABucket(t *testing.T) {
	t.Parallel()
	y := startYardOn(t, t.TempDir(), newBucket(t))
	n := y.join("n")
	n.listen()
	j, run := n.started(y.researcher("ada"))
	manifest, chunks := twoFiles()
	texts := map[string]string{}
	var pieces []api.CheckpointChunk

	for _, text := range append(chunks, manifest) {
		texts[digestOf(text)] = text
		pieces = append(pieces, api.CheckpointChunk{Digest: digestOf(text), Size: int64(len(text))})
	}

	places, err := n.Chunks(t.Context(), api.ChunksRequest{Run: run, Chunks: pieces})
	y.must(err)

	if len(places.Chunks) != len(pieces) {
		t.Fatalf("to be uploaded: %+v", places.Chunks)
	}

	// The bucket takes only what was announced: neither other bytes nor more of them.
	for _, other := range []string{"abd", "abcd"} {
		if status, answer := transfer(t, http.MethodPut, places.Chunks[0], other); status < 400 {
			t.Errorf("%q was stored as abc: %d %s", other, status, answer)
		}
	}

	for _, p := range places.Chunks {
		if status, answer := transfer(t, http.MethodPut, p, texts[p.Digest]); status != http.StatusOK {
			t.Fatalf("upload of %s: %d %s", p.Digest, status, answer)
		}
	}

	places, err = n.Chunks(t.Context(), api.ChunksRequest{Run: run, Chunks: pieces})
	y.must(err)

	if len(places.Chunks) > 0 {
		t.Errorf("to be uploaded again: %+v", places.Chunks)
	}

	added, err := n.AddCheckpoint(t.Context(), n.newCheckpoint(run, manifest))
	y.must(err)

	n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), Signalled: true})
	next := n.awaitRun(j, 2)
	if r := n.assigned(next).Launch.Restore; r == nil || r.Checkpoint != added.ID {
		t.Fatalf("restore = %+v", r)
	}

	places, err = n.Chunks(t.Context(), api.ChunksRequest{Run: next, Chunks: pieces, Restore: true})
	y.must(err)

	if len(places.Chunks) != len(pieces) {
		t.Fatalf("to be downloaded: %+v", places.Chunks)
	}

	for _, p := range places.Chunks {
		if status, content := transfer(t, http.MethodGet, p, ""); status != http.StatusOK || content != texts[p.Digest] {
			t.Errorf("download of %s: %d %q", p.Digest, status, content)
		}
	}

	// A URL is for what it was signed for alone.
	if status, _ := transfer(t, http.MethodDelete, places.Chunks[0], ""); status < 400 {
		t.Errorf("a chunk was removed with a URL for reading: %d", status)
	}
}

func TestChunksGoThroughTheServerWhereTheStoreDoesNotSign(t *testing.T) {
	t.Parallel()
	y := startYardOn(t, t.TempDir(), struct{ blob.Store }{newBucket(t)}) // as with --s3-direct no
	n := y.join("n")
	n.listen()
	j, run := n.started(y.researcher("ada"))
	piece := []api.CheckpointChunk{{Digest: digestOf("abc"), Size: 3}}

	located := func(run id.Run, restore bool) {
		t.Helper()
		places, err := n.Chunks(t.Context(), api.ChunksRequest{Run: run, Chunks: piece, Restore: restore})
		y.must(err)

		if len(places.Chunks) != 1 || places.Chunks[0].URL != "" || len(places.Chunks[0].Header) > 0 {
			t.Errorf("located at %+v", places.Chunks)
		}
	}

	located(run, false)
	n.saves(run)
	n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), Signalled: true})
	next := n.awaitRun(j, 2)
	located(next, true)

	body, err := n.FetchChunk(t.Context(), next, digestOf("abc"))
	y.must(err)
	content, err := io.ReadAll(body)
	y.must(err)
	y.must(body.Close())

	if string(content) != "abc" {
		t.Errorf("fetched %q", content)
	}

	piece[0].Size = -1
	_, err = n.Chunks(t.Context(), api.ChunksRequest{Run: next, Chunks: piece})
	wantFault(t, err, fault.Invalid, "bad_size")
}

// callsCorrupt reports that a run could not restore its checkpoint, until the yard takes it.
func (n *node) callsCorrupt(run id.Run) {
	n.y.t.Helper()
	restored := n.assigned(run).Launch.Restore.Checkpoint
	rep := api.RankReport{
		Run: run, State: job.RunEnded, Ended: n.y.clock.Now(), Cause: job.CauseRestoreFailed, Reason: "a chunk is wrong",
		Restore: &job.RestoreFailure{Checkpoint: restored, Corrupt: true},
	}

	eventually(n.y.t, "the yard takes that the checkpoint is corrupt", func() bool {
		n.tell(rep)

		r, err := n.y.store.Run(n.y.t.Context(), run)
		n.y.must(err)

		return r.State == job.RunEnded
	})
}

// hasChunk reports whether the store has a chunk with this text.
func (y *yard) hasChunk(text string) bool {
	y.t.Helper()
	has, err := y.blobs.Has(y.t.Context(), httpapi.ChunkBlob(digestOf(text)))
	y.must(err)

	return has
}

func TestACheckpointIsCorruptOnlyIfTheServerFindsItSo(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()
	j, run := n.started(ada)
	c := n.saves(run).ID
	n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), Signalled: true})
	run = n.awaitRun(j, 2)

	// The node alone is wrong.
	n.callsCorrupt(run)

	stored, err := ada.Checkpoint(t.Context(), c)
	y.must(err)

	if stored.State != checkpoint.Stored || !stored.Next || !y.hasChunk("abc") || !y.hasChunk("de") {
		t.Errorf("a good checkpoint is %+v after a node called it corrupt", stored)
	}

	got, err := ada.Job(t.Context(), j)
	y.must(err)

	if got.State != job.Recovering || !strings.Contains(got.Reason, "did not find it corrupt") {
		t.Errorf("job is %s: %s", got.State, got.Reason)
	}
}

func TestWrongChunksAreRemovedSoThatLaterCheckpointsDoNotShareThem(t *testing.T) {
	t.Parallel()
	manifest, _ := twoFiles()

	for name, damage := range map[string]func(y *yard){
		"other bytes": func(y *yard) {
			chunk := httpapi.ChunkBlob(digestOf("de"))
			y.must(y.blobs.Delete(t.Context(), chunk))
			y.must(y.blobs.Put(t.Context(), chunk, strings.NewReader("xx")))
		},
		"too short": func(y *yard) {
			chunk := httpapi.ChunkBlob(digestOf("de"))
			y.must(y.blobs.Delete(t.Context(), chunk))
			y.must(y.blobs.Put(t.Context(), chunk, bytes.NewReader(nil)))
		},
		"gone": func(y *yard) { y.must(y.blobs.Delete(t.Context(), httpapi.ChunkBlob(digestOf("de")))) },
		"manifest": func(y *yard) {
			chunk := httpapi.ChunkBlob(digestOf(manifest))
			y.must(y.blobs.Delete(t.Context(), chunk))
			y.must(y.blobs.Put(t.Context(), chunk, strings.NewReader(`{"files":[]}`)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			ada := y.researcher("ada")
			n := y.join("n")
			n.listen()
			j, run := n.started(ada)
			bad := n.saves(run).ID
			n.tell(api.RankReport{
				Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), Signalled: true,
			})

			run = n.awaitRun(j, 2)
			damage(y)
			n.callsCorrupt(run)

			got, err := ada.Checkpoint(t.Context(), bad)
			y.must(err)

			if got.State != checkpoint.Corrupt || got.Next {
				t.Errorf("the checkpoint is %+v, want it corrupt", got)
			}

			if !y.hasChunk("abc") {
				t.Error("a chunk that is good was removed")
			}

			if y.hasChunk("de") && y.hasChunk(manifest) {
				t.Error("what is wrong is still there")
			}

			// The next run saves the same again: what was removed is asked for, and the checkpoint is good.
			run = n.awaitRun(j, 3)
			if r := n.assigned(run).Launch.Restore; r != nil {
				t.Fatalf("run 3 restores %+v", r)
			}

			n.starts(run, 0)
			wrong := []api.CheckpointChunk{{Digest: digestOf("de"), Size: 2}, {Digest: digestOf(manifest), Size: 9}}
			places, err := n.Chunks(t.Context(), api.ChunksRequest{Run: run, Chunks: wrong})
			y.must(err)

			if len(places.Chunks) != 1 {
				t.Errorf("to be uploaded again: %+v", places.Chunks)
			}

			good := n.saves(run).ID
			n.tell(api.RankReport{
				Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), Signalled: true,
			})
			run = n.awaitRun(j, 4)

			if r := n.assigned(run).Launch.Restore; r == nil || r.Checkpoint != good {
				t.Errorf("run 4 restores %+v, want %s", r, good)
			}
		})
	}
}
