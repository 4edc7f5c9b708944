package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func sharing() []contract {
	return []contract{
		{"only a leader may commit", needsLeader},
		{"a second server leads when the first resigns", waitsForLeader},
		{"a term is greater than all before", growsTerms},
		{"it is known which servers there are", listsServers},
		{"a committed batch is there without a close", survivesWithoutClose},
		{"readers see whole commits while others are made", readsWhileCommitting},
		{"ping answers, and fails when its time is over", pings},
	}
}

// refused checks that a server that does not lead cannot write.
func (h *harness) refused(err error) {
	h.Helper()

	if !errors.Is(err, store.ErrNotLeader) {
		h.Errorf("error = %v, want %v", err, store.ErrNotLeader)
	}
}

func needsLeader(h *harness) {
	s := h.store()
	h.refused(s.Commit(h.context(), everything()))
	h.refused(s.Commit(h.context()))
	h.refused(s.Renew(h.context()))
	h.lead(s, "server-1")
	h.must(s.Commit(h.context()))
	h.must(s.Commit(h.context(), everything()))
	h.must(s.Renew(h.context()))
	h.lead(s, "server-1") // again by the same one
	h.must(s.Commit(h.context(), everything()))

	other := h.store()
	h.refused(other.Commit(h.context(), everything()))
	h.refused(other.Keep(h.context(), store.Document{Kind: store.PastDocument, ID: "j1"}))
}

func waitsForLeader(h *harness) {
	first, second := h.writer(), h.store()
	short, cancel := context.WithTimeout(h.context(), 200*time.Millisecond)
	defer cancel()

	_, err := second.Lead(short, candidate("server-2"))
	if fault.KindOf(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		h.Errorf("error = %v, want it to wait until its time is over", err)
	}

	h.refused(second.Commit(h.context(), everything()))
	h.must(first.Commit(h.context(), everything()))
	h.must(first.Resign(h.context()))
	h.refused(first.Commit(h.context(), everything()))
	h.refused(first.Renew(h.context()))

	h.lead(second, "server-2")
	h.must(second.Commit(h.context(), everything()))
	h.refused(first.Commit(h.context(), everything()))
}

func growsTerms(h *harness) {
	first, second := h.writer(), h.store()
	before, err := second.Leader(h.context())
	h.must(err)
	h.same("leader", before.Server, candidate("server-1").Server)
	h.must(first.Close())

	h.lead(second, "server-2")
	after, err := second.Leader(h.context())
	h.must(err)
	h.same("leader", after.Server, candidate("server-2").Server)

	if after.Term <= before.Term {
		h.Errorf("term %d follows %d, want a greater one", after.Term, before.Term)
	}
}

func listsServers(h *harness) {
	s := h.store()
	one, two := candidate("server-1").Server, candidate("server-2").Server
	h.must(s.Attend(h.context(), two))
	h.must(s.Attend(h.context(), one))
	two.Address = "https://moved"
	h.must(s.Attend(h.context(), two))
	got, err := h.store().Servers(h.context(), time.Hour)
	h.must(err)
	h.same("servers", got, []store.Server{one, two})

	none, err := s.Servers(h.context(), -time.Hour)
	h.must(err)
	h.same("servers of the future", none, []store.Server{})
}

func survivesWithoutClose(h *harness) {
	h.with(everything())
	h.holds(h.store(), everything())
}

func readsWhileCommitting(h *harness) {
	const rounds, width = 40, 10
	s := h.writer()
	ctx := h.context()
	stop := make(chan struct{})

	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}

				jobs, err := s.Jobs(ctx, store.JobFilter{Limit: rounds * width})
				if err != nil || len(jobs)%width != 0 {
					h.Errorf("%d jobs and error %v, want whole commits of %d", len(jobs), err, width)
					return
				}

				state, err := s.Load(ctx, time.Time{})
				if err != nil || uint64(len(state.Jobs)) != state.LastJob || state.LastEvent != state.LastJob {
					h.Errorf("loaded %d jobs of %d and %d events (error %v), want one commit's view",
						len(state.Jobs), state.LastJob, state.LastEvent, err)
					return
				}
			}
		})
	}

	for round := range rounds {
		b := &yardmaster.Batch{}
		for i := range width {
			n := uint64(round*width + i + 1)
			b.Jobs = append(b.Jobs, plainJob(n, "ada", "reader", job.Pending))
			b.Events = append(b.Events, sampleEvent(n))
		}

		if err := s.Commit(ctx, b); err != nil {
			h.Errorf("commit %d: %v", round, err)
			break
		}
	}

	close(stop)
	readers.Wait()
	h.same("last job", h.load(s, time.Time{}).LastJob, uint64(rounds*width))
}

func pings(h *harness) {
	s := h.store()
	h.must(s.Ping(h.context()))
	h.must(s.Ping(h.context()))
	over, cancel := context.WithCancel(h.context())
	cancel()
	h.fails(s.Ping(over), fault.Unavailable, "store_unavailable")
	h.must(s.Ping(h.context()))
}
