package storetest

import (
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func checkpoints() []contract {
	return []contract{
		{"checkpoints are listed by job and number", listsCheckpoints},
		{"checkpoints that may be restored or are counted on are loaded", loadsCheckpoints},
		{"an older state of a checkpoint does not replace a newer one", refusesOlderCheckpoint},
	}
}

func checkpointIDs(list []checkpoint.Checkpoint) []id.Checkpoint {
	var ids []id.Checkpoint
	for i := range list {
		ids = append(ids, list[i].ID)
	}

	return ids
}

func listsCheckpoints(h *harness) {
	s := h.with(&yardmaster.Batch{Checkpoints: []checkpoint.Checkpoint{
		sampleCheckpoint("j10", 1, checkpoint.Stored),
		sampleCheckpoint("j9", 10, checkpoint.Stored),
		sampleCheckpoint("j9", 2, checkpoint.Removed),
		sampleCheckpoint("j9", 3, checkpoint.Corrupt),
	}})

	for name, tc := range map[string]struct {
		filter store.CheckpointFilter
		want   []id.Checkpoint
	}{
		"all that are not removed": {store.CheckpointFilter{Limit: 10}, []id.Checkpoint{"j9.c3", "j9.c10", "j10.c1"}},
		"of a job":                 {store.CheckpointFilter{Job: "j10", Limit: 10}, []id.Checkpoint{"j10.c1"}},
		"of a job that has none":   {store.CheckpointFilter{Job: "j11", Limit: 10}, nil},
		"removed ones too": {store.CheckpointFilter{Job: "j9", Removed: true, Limit: 10},
			[]id.Checkpoint{"j9.c2", "j9.c3", "j9.c10"}},
		"a page": {store.CheckpointFilter{After: "j9.c3", Limit: 1}, []id.Checkpoint{"j9.c10"}},
		"the page after the last of a job": {store.CheckpointFilter{After: "j9.c10", Limit: 2},
			[]id.Checkpoint{"j10.c1"}},
	} {
		list, err := s.Checkpoints(h.context(), tc.filter)
		h.must(err)
		h.same(name, checkpointIDs(list), tc.want)
	}

	got, err := s.Checkpoint(h.context(), "j9.c2")
	h.must(err)
	h.same("one", got, sampleCheckpoint("j9", 2, checkpoint.Removed))

	for _, unknown := range []id.Checkpoint{"j9.c4", "j9", "nonsense"} {
		_, err = s.Checkpoint(h.context(), unknown)
		h.fails(err, fault.NotFound, "checkpoint_not_found")
	}

	if _, err := s.Checkpoints(h.context(), store.CheckpointFilter{}); err == nil {
		h.Error("a list without a limit was answered")
	}
}

func loadsCheckpoints(h *harness) {
	at := func(c checkpoint.Checkpoint, added time.Time) checkpoint.Checkpoint {
		c.Added = added
		return c
	}
	long, recent := dayOne.Add(-time.Hour), dayOne.Add(time.Hour)

	live, ended := plainJob(1, "ada", "live", job.Running), plainJob(2, "ada", "ended", job.Succeeded)
	ended.Ended = long
	s := h.with(&yardmaster.Batch{
		Jobs: []job.Job{live, ended},
		Checkpoints: []checkpoint.Checkpoint{
			at(sampleCheckpoint("j1", 1, checkpoint.Stored), long),
			at(sampleCheckpoint("j1", 2, checkpoint.Removed), long),
			at(sampleCheckpoint("j1", 3, checkpoint.Removed), recent),
			at(sampleCheckpoint("j1", 4, checkpoint.Partial), long),
			at(sampleCheckpoint("j1", 5, checkpoint.Removed), long), // its number must not be used again
			at(sampleCheckpoint("j2", 1, checkpoint.Stored), long),
			at(sampleCheckpoint("j2", 2, checkpoint.Removed), long),
		},
	})

	h.same("loaded", checkpointIDs(h.load(s, dayOne).Checkpoints),
		[]id.Checkpoint{"j1.c1", "j1.c3", "j1.c4", "j1.c5", "j2.c1"})
}

func refusesOlderCheckpoint(h *harness) {
	first := sampleCheckpoint("j1", 1, checkpoint.Stored)
	removed := first
	removed.Seq, removed.State = 2, checkpoint.Removed

	s := h.with(&yardmaster.Batch{Checkpoints: []checkpoint.Checkpoint{removed, first}})
	h.must(s.Commit(h.context(), &yardmaster.Batch{Checkpoints: []checkpoint.Checkpoint{first}}))

	got, err := s.Checkpoint(h.context(), "j1.c1")
	h.must(err)
	h.same("the newer", got, removed)
}
