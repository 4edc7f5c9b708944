package storetest

import (
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func forgetting() []contract {
	return []contract{
		{"a job is forgotten with all that is its own", forgetsJobs},
		{"events are forgotten", forgetsEvents},
		{"only the leader forgets", refusesToForget},
	}
}

func forgetsJobs(h *harness) {
	q := sampleQuestion("j1", 1, inbox.Open)
	b := &yardmaster.Batch{
		Jobs:        []job.Job{sampleJob(1, job.Succeeded), sampleJob(2, job.Failed)},
		Runs:        []job.Run{sampleRun("j1", 1, job.RunEnded, "n1"), sampleRun("j1", 2, job.RunEnded, "n1")},
		Checkpoints: []checkpoint.Checkpoint{sampleCheckpoint("j1", 1, checkpoint.Removed)},
		Questions:   []inbox.Question{q},
	}
	s := h.with(b)

	forgotten, kept := b.Jobs[0].ID, b.Jobs[1].ID
	docs := []store.Document{
		document(store.CurveDocument, string(forgotten)+"/loss", 1, "a"),
		document(store.CurveDocument, string(kept)+"/loss", 1, "b"),
		document(store.ForecastDocument, string(forgotten), 1, "c"),
		document(store.PastDocument, string(forgotten), 1, "d"),
	}
	h.must(s.Keep(h.context(), docs...))
	h.must(s.ForgetJobs(h.context(), forgotten))
	h.must(s.ForgetJobs(h.context(), forgotten, "j999")) // one that is not there is ignored

	_, err := s.Job(h.context(), forgotten)
	h.fails(err, fault.NotFound, "job_not_found")

	_, err = s.Question(h.context(), q.ID)
	h.fails(err, fault.NotFound, "question_not_found")

	runs, err := s.Runs(h.context(), forgotten)
	h.must(err)
	h.same("runs", len(runs), 0)

	saved, err := s.Checkpoints(h.context(), store.CheckpointFilter{Job: forgotten, Removed: true, Limit: 10})
	h.must(err)
	h.same("checkpoints", len(saved), 0)

	left, err := s.Jobs(h.context(), store.JobFilter{Limit: 100})
	h.must(err)
	h.same("jobs that are left", len(left), len(b.Jobs)-1)

	for _, kind := range []store.DocumentKind{store.CurveDocument, store.ForecastDocument, store.PastDocument} {
		var want []string
		if kind == store.CurveDocument {
			want = []string{string(kept) + "/loss"}
		}
		if kind == store.PastDocument {
			want = []string{string(forgotten)}
		}

		h.same("documents of kind "+string(kind), h.ids(s, store.DocumentFilter{Kind: kind, Limit: 10}), want)
	}
}

func forgetsEvents(h *harness) {
	b := &yardmaster.Batch{}
	for seq := range uint64(5) {
		b.Events = append(b.Events, yardmaster.Event{Seq: seq + 1, At: time.Unix(int64(seq), 0).UTC(), Kind: "job.submitted"})
	}

	s := h.with(b)
	h.must(s.ForgetEvents(h.context(), 1, 3))

	events, err := s.Events(h.context(), store.EventFilter{Limit: 10})
	h.must(err)

	var seqs []uint64
	for i := range events {
		seqs = append(seqs, events[i].Seq)
	}

	h.same("events that are left", seqs, []uint64{2, 4, 5})
	h.same("the last event", h.load(s, time.Time{}).LastEvent, uint64(5))
}

func refusesToForget(h *harness) {
	s := h.store()
	h.refused(s.ForgetJobs(h.context(), id.Job("j1")))
	h.refused(s.ForgetEvents(h.context(), 1))
}
