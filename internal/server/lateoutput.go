package server

import (
	"context"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// lateOutput is for how long after the end of a job its last lines are waited for. A node reports the end first and
// sends what is left of the output then, which takes moments unless it is much.
const lateOutput = 5 * time.Second

// awaitOutput waits until all output of a job that has just ended is here, so that whoever reads it after its end gets
// all of it. It waits for one run, or for all if that is nil, and for one rank, or for all if that is -1. It does not
// wait for nodes that are lost, nor for long: what is read may lack lines then, as it says.
func (s *Server) awaitOutput(ctx context.Context, j *job.Job, run *job.Run, rank int) error {
	if !j.State.Final() || s.outputIsLate(j) <= 0 {
		return nil
	}

	var runs []job.Run
	if run != nil {
		runs = append(runs, *run)
	} else {
		var err error

		runs, err = s.Store.Runs(ctx, j.ID)
		if err != nil {
			return err
		}
	}

	for _, one := range runs {
		r := &logReader{s: s, job: *j, run: one}
		for k := range one.Ranks {
			if rank >= 0 && rank != k {
				continue
			}
			if err := r.awaitRank(ctx, k); err != nil {
				return err
			}
		}
	}

	return nil
}

// outputIsLate returns for how long the output of a job that has ended is still waited for.
func (s *Server) outputIsLate(j *job.Job) time.Duration {
	return j.Ended.Add(lateOutput).Sub(s.Clock.Now())
}

// awaitRank waits until all output of a rank is here, or it is too late.
func (r *logReader) awaitRank(ctx context.Context, rank int) error {
	for {
		lost := r.s.agents.WaitLost() // before looking, so that nothing is missed

		st, err := r.s.Logbook.State(ctx, r.log(rank))
		if err != nil || r.complete(rank, st) {
			return err
		}

		left := r.s.outputIsLate(&r.job)
		if left <= 0 {
			return nil
		}
		if clock.Wait(ctx, left, st.Changed, lost) == clock.Ended {
			return ctx.Err()
		}
	}
}
