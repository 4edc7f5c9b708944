package agent

import (
	"context"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/contact"
	"trainyard/internal/job"
)

const (
	minRetryWait = 100 * time.Millisecond
	maxRetryWait = 5 * time.Second

	// streamTimeout is how long the server may have newer assignments than the
	// stream brought before the stream is given up.
	streamTimeout = 3 * time.Second
)

// streamLoop keeps the stream of assignments open.
func (a *Agent) streamLoop(ctx context.Context) {
	for tries := 1; ctx.Err() == nil; tries++ {
		stream, cancel := context.WithCancel(ctx)
		a.mu.Lock()
		a.restream = cancel
		a.mu.Unlock()

		err := a.client.Load().Assignments(stream, func(as api.Assignments) error {
			tries = 0
			a.noteProblem("assignment stream", nil)
			a.applyAssignments(as)
			a.answerRequests(ctx, as.Outputs)
			a.answerTunnels(ctx, as.Tunnels)

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
			a.noteProblem("assignment stream", err)
		}

		clock.Sleep(ctx, job.Backoff(tries, minRetryWait, maxRetryWait))
	}
}

// newStream gives up the stream; the loop opens another at once.
func (a *Agent) newStream() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.behindSince = time.Time{}
	if a.restream != nil {
		a.restream()
	}
}

// applyAssignments takes new assignments over. Those of a generation that is already known
// are ignored.
func (a *Agent) applyAssignments(as api.Assignments) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.behindSince = time.Time{}
	w := &a.assignments
	if w.known && as.Server == w.server && as.Generation <= w.generation {
		return
	}

	ranks := make(map[key]api.Assignment, len(as.Runs))
	for _, r := range as.Runs {
		ranks[key{r.Run, r.Rank}] = r
	}

	*w = assignments{known: true, server: as.Server, generation: as.Generation, ranks: ranks}
	if as.Incarnation != nil {
		w.incarnation = *as.Incarnation
	}

	notify(a.reconcileSoon)
}

// streamHangs compares the server's newest generation with ours. A stream that stays
// behind hangs.
func (a *Agent) streamHangs(newest contact.Generation, now time.Time) (hangs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	switch {
	case a.assignments.known && a.assignments.generation == newest.Number && a.assignments.identity().Covers(newest):
		a.behindSince = time.Time{}
	case a.behindSince.IsZero():
		a.behindSince = now
	default:
		return now.Sub(a.behindSince) >= streamTimeout
	}

	return false
}
