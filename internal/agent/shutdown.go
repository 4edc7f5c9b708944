package agent

import (
	"context"
	"time"

	"trainyard/internal/contact"
	"trainyard/internal/job"
)

// contactTimeout is how long the server may be silent before nobody waits for it to take
// what is left of the output.
const contactTimeout = 3 * contact.MaxReportTimeout

// stopRuns stops everything, waits until all has ended and its ends and output
// are delivered, but no longer than the grace periods, of which none counts as
// longer than longest, and some seconds.
func (a *Agent) stopRuns(ctx context.Context, maxGrace time.Duration) {
	a.starting.Lock()
	a.closing = true
	a.starting.Unlock()
	timeout := 10 * time.Second
	a.mu.Lock()

	for _, w := range a.assignments.ranks {
		timeout = max(timeout, min(time.Duration(w.Launch.Grace), maxGrace)+10*time.Second)
	}

	a.mu.Unlock()

	for _, mode := range []job.StopMode{job.StopTerm, job.StopKill} {
		limited, cancel := context.WithTimeout(ctx, timeout)
		done := a.stopAll(limited, mode)
		cancel()

		if done {
			return
		}

		timeout = 10 * time.Second
	}

	a.log.Error("some runs were not stopped or their output was not uploaded in time")
}

// stopAll stops every run in this way and reports whether all is over and delivered.
func (a *Agent) stopAll(ctx context.Context, mode job.StopMode) bool {
	for {
		changed := a.rt.Watch()
		pending, running := 0, 0

		for _, st := range a.rt.List() {
			a.mu.Lock()
			s := a.uploaders[key{st.Run, st.Rank}]
			a.mu.Unlock()

			// The last metrics are waited for while everything goes well only.
			metricsDelivered := mode == job.StopKill || a.metricsDelivered(&st)
			k := key{st.Run, st.Rank}
			saved := mode == job.StopKill || a.checkpoints.saved(k) && a.outputs.kept(k)
			if st.State != job.RunEnded || s == nil || !s.delivered.Load() || !metricsDelivered || !saved {
				pending++
			}

			if st.State != job.RunEnded {
				running++
				a.noteProblem("stop of runs", a.rt.Stop(st.Run, st.Rank, mode))
			}
		}

		if pending == 0 && a.allEndsReported() {
			return true
		}
		if running == 0 && a.contactAge() > contactTimeout.Seconds() {
			return false // there is nobody to deliver to
		}

		pause(ctx, pollLog, changed)

		if ctx.Err() != nil {
			return false
		}
	}
}
