package server

import (
	"context"
	"sync"
	"sync/atomic"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// testStore is a store that counts commits, and fails or hangs when it is told to.
type testStore struct {
	store.Store
	clock   *handClock // stands still during a commit: a slow disk is not taken for one that hangs
	commits atomic.Int64
	rows    atomic.Int64 // jobs committed
	lookups atomic.Int64 // of a job or a run
	mu      sync.Mutex
	err     error         // of every commit
	gate    chan struct{} // commits and pings wait until it is closed
	arrived chan struct{} // gets one for each commit that begins to wait
	pings   atomic.Int64  // that wait
}

// fail makes every commit fail with an error, nil for none.
func (s *testStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.err = err
}

// hang makes commits and pings wait until mend. The channel tells of each commit.
func (s *testStore) hang() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.gate, s.arrived = make(chan struct{}), make(chan struct{}, 1000)

	return s.arrived
}

// mend ends fail and hang.
func (s *testStore) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.err = nil
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

func (s *testStore) wait(commit bool) error {
	s.mu.Lock()
	gate, arrived, err := s.gate, s.arrived, s.err
	s.mu.Unlock()

	if gate != nil {
		if commit {
			arrived <- struct{}{}
		} else {
			s.pings.Add(1)
			defer s.pings.Add(-1)
		}

		<-gate
	}

	return err
}

func (s *testStore) Job(ctx context.Context, j id.Job) (job.Job, error) {
	s.lookups.Add(1)
	return s.Store.Job(ctx, j)
}

func (s *testStore) Run(ctx context.Context, r id.Run) (job.Run, error) {
	s.lookups.Add(1)
	return s.Store.Run(ctx, r)
}

func (s *testStore) Commit(ctx context.Context, batches ...*yardmaster.Batch) error {
	if err := s.wait(true); err != nil {
		return err
	}

	s.commits.Add(1)

	for _, b := range batches {
		s.rows.Add(int64(len(b.Jobs)))
	}

	defer s.clock.hold()()

	return s.Store.Commit(ctx, batches...)
}

func (s *testStore) Ping(ctx context.Context) error {
	if err := s.wait(false); err != nil {
		return err
	}

	return s.Store.Ping(ctx)
}
