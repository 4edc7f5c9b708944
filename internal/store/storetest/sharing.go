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
		{"only a writer may commit", needsWriter},
		{"a second writer waits for the first to go", waitsForWriter},
		{"a committed batch is there without a close", survivesWithoutClose},
		{"readers see whole commits while others are made", readsWhileCommitting},
		{"ping answers, and fails when its time is over", pings},
	}
}

func needsWriter(h *harness) {
	s := h.store()
	h.fails(s.Commit(h.context(), everything()), fault.Conflict, "not_writer")
	h.fails(s.Commit(h.context()), fault.Conflict, "not_writer")
	h.must(s.Acquire(h.context(), "server-1"))
	h.must(s.Commit(h.context()))
	h.must(s.Commit(h.context(), everything()))
	h.must(s.Acquire(h.context(), "server-1")) // again by the same one
	h.must(s.Commit(h.context(), everything()))
	h.fails(h.store().Commit(h.context(), everything()), fault.Conflict, "not_writer")
}

func waitsForWriter(h *harness) {
	first, second := h.writer(), h.store()
	short, cancel := context.WithTimeout(h.context(), 200*time.Millisecond)
	defer cancel()

	err := second.Acquire(short, "server-2")
	if fault.KindOf(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		h.Errorf("error = %v, want it to wait until its time is over", err)
	}

	h.fails(second.Commit(h.context(), everything()), fault.Conflict, "not_writer")
	h.must(first.Commit(h.context(), everything()))

	acquired := make(chan error, 1)
	go func() { acquired <- second.Acquire(h.context(), "server-2") }()
	h.must(first.Close())
	h.must(<-acquired)
	h.must(second.Commit(h.context(), everything()))

	if err := first.Commit(h.context(), everything()); err == nil {
		h.Error("a closed store took a commit")
	}
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
