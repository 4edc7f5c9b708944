package server

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/retention"
	"trainyard/internal/server/collector"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

// pruned lets a day pass and collects blobs, twice: what was used lately outlives the first time.
func (y *yard) pruned(limits retention.Limits) []string {
	y.t.Helper()
	c := collector.New(collector.Deps{
		Guard: y.guard, Store: y.store, Logs: y.srv.Logbook, Loop: y.loop, Yard: y.ca.Hash(), Limits: limits, Clock: y.clock,
		Log: slog.New(slog.DiscardHandler),
	})

	var reports []string
	for range 2 {
		y.clock.advance(25 * time.Hour)

		report, err := c.Collect(y.t.Context())
		y.must(err)

		reports = append(reports, report.String())
	}

	return reports
}

func (y *yard) wantBlobs(there bool, names ...string) {
	y.t.Helper()
	for _, name := range names {
		if has, err := y.blobs.Has(y.t.Context(), name); has != there || err != nil {
			y.t.Errorf("%s is there: %v (%v), want %v", name, has, err, there)
		}
	}
}

func TestOnlyWhatNobodyNeedsIsCollected(t *testing.T) {
	t.Parallel()
	limits := retention.Limits{
		Unused: 24 * time.Hour, Workdirs: time.Hour, Output: time.Hour, Checkpoints: time.Hour,
	}
	y := newYard(t, withConfig(func(c *Config) { c.Limits = limits }))
	ada := y.researcher("ada")

	put := func(content string) string {
		y.must(ada.PutFile(t.Context(), digestOf(content), "", strings.NewReader(content)))
		return digestOf(content)
	}

	text, err := json.Marshal(api.Manifest{Files: []api.ManifestFile{{Path: "train.py", Size: 5, Digest: put("train")}}})
	y.must(err)

	workdir := put(string(text))
	abandoned := put("never submitted")

	n := y.join("node")
	n.listen()

	reply, err := ada.Submit(t.Context(), api.SubmitRequest{File: "run: train", Workdir: workdir}, "")
	y.must(err)

	j := reply.Jobs[0].ID
	run := n.awaitRun(j, 1)
	n.starts(run, 0)
	n.saves(run)
	y.must(n.PutChunk(t.Context(), run, digestOf("left"), []byte("left")))
	n.upload(run, 0, 0, output(t, "o:hello"), true)

	manifest, chunks := twoFiles()
	needed := []string{
		httpapi.FileBlob(workdir), httpapi.FileBlob(digestOf("train")), httpapi.ChunkBlob(digestOf(manifest)),
	}
	for _, c := range chunks {
		needed = append(needed, httpapi.ChunkBlob(digestOf(c)))
	}

	y.wantBlobs(true, httpapi.FileBlob(abandoned), httpapi.ChunkBlob(digestOf("left")))

	if got := y.pruned(limits); got[0] != "" || got[1] != "removed 1 unused file and 1 unused chunk, 19 B in total" {
		t.Errorf("removed %q", got)
	}

	y.wantBlobs(true, needed...)
	y.wantBlobs(false, httpapi.FileBlob(abandoned), httpapi.ChunkBlob(digestOf("left")))

	// When the job has ended nothing of it is kept for longer than the limits say.
	y.do(yardmaster.Cancel{Job: j, By: "ada", Kill: true})
	n.ends(run, 0, 1)
	eventually(t, "the end of the job", func() bool {
		now, err := y.store.Job(t.Context(), j)
		return err == nil && now.State.Final()
	})

	_, err = ada.Logs(t.Context(), j, api.LogFilter{})
	y.must(err)
	y.pruned(limits)
	y.wantBlobs(false, needed...)

	removed := y.eventsOf("checkpoint.removed")
	if len(removed) != 1 || !strings.Contains(removed[0], "ended more than 1h ago") {
		t.Errorf("removed for %q", removed)
	}

	_, err = ada.Logs(t.Context(), j, api.LogFilter{})
	wantFault(t, err, fault.NotFound, "output_removed")
}
