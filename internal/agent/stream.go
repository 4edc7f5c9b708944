package agent

import (
	"context"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second

	// hangAfter is how long the server may have newer assignments than the
	// stream brought before the stream is given up.
	hangAfter = 3 * time.Second
)

// streamLoop keeps the stream of assignments open.
func (a *Agent) streamLoop(ctx context.Context) {
	for tries := 1; ctx.Err() == nil; tries++ {
		stream, cancel := context.WithCancel(ctx)
		a.mu.Lock()
		a.restream = cancel
		a.mu.Unlock()
		err := a.yard.Load().Assignments(stream, func(as api.Assignments) error {
			tries = 0
			a.trouble("stream of assignments", nil)
			a.obey(as)
			return nil
		})
		ended := stream.Err() != nil // by newStream, which is no trouble
		cancel()
		if ctx.Err() != nil {
			return
		}
		if ended {
			continue
		}
		if err != nil {
			a.trouble("stream of assignments", err)
		}
		clock.Sleep(ctx, job.Backoff(tries, retryFirst, retryMost))
	}
}

// newStream gives up the stream; the loop opens another at once.
func (a *Agent) newStream() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.behind = time.Time{}
	if a.restream != nil {
		a.restream()
	}
}

// obey takes assignments over, unless they are no newer than what is known.
func (a *Agent) obey(as api.Assignments) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.behind = time.Time{}
	w := &a.wanted
	if w.known && as.Server == w.server && as.Generation <= w.generation {
		return
	}
	ranks := make(map[key]api.Assignment, len(as.Runs))
	for _, r := range as.Runs {
		ranks[key{r.Run, r.Rank}] = r
	}
	*w = wanted{known: true, server: as.Server, generation: as.Generation, ranks: ranks}
	wake(a.reconcileSoon)
}

// heard compares the server's newest generation with ours. A stream that stays
// behind hangs.
func (a *Agent) heard(generation uint64, now time.Time) (hangs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.wanted.known && a.wanted.generation == generation:
		a.behind = time.Time{}
	case a.behind.IsZero():
		a.behind = now
	default:
		return now.Sub(a.behind) >= hangAfter
	}
	return false
}
