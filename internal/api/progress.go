package api

import (
	"math"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/scaling"
)

// The limits on what a program may tell of itself.
const (
	maxRates     = 64
	maxRateKinds = 8 // kinds of GPU among the rates
	maxKind      = 100
	maxUnits     = 1e18
)

// SetDone says how much of its work a job has done.
func (j *Job) SetDone(done float64) {
	j.Done, j.Percent = &done, nil
	if j.Work > 0 {
		percent := math.Floor(1000*min(done/j.Work, 1)) / 10 // 100 only when all is done
		j.Percent = &percent
	}
}

// Check says what is wrong with a report.
func (r *Report) Check() error {
	for i := range r.Ranks {
		if p := r.Ranks[i].Progress; p != nil {
			if err := CheckProgress(p); err != nil {
				return err
			}
		}
	}

	return nil
}

// CheckProgress says what is wrong with what a program tells of itself. Both sides
// ask: the agent, so that one program's mistake costs its node nothing, and the
// server, because it trusts nobody.
func CheckProgress(p *job.Progress) error {
	if !units(p.Done) {
		return badProgress("done must be a number between 0 and %v, got %v", float64(maxUnits), p.Done)
	}
	if !units(p.Work) {
		return badProgress("work must be a number between 0 and %v, got %v", float64(maxUnits), p.Work)
	}
	if len(p.Rates) > maxRates {
		return badProgress("at most %d rates are allowed, got %d", maxRates, len(p.Rates))
	}

	kinds := map[string]bool{}
	for i, r := range p.Rates {
		kinds[r.GPU] = true

		switch {
		case len(r.GPU) > maxKind:
			return badProgress("gpu of rate %d must not be longer than %d bytes, got %d", i, maxKind, len(r.GPU))
		case r.GPUs < 0 || r.GPUs > job.MaxCount:
			return badProgress("gpus of rate %d must be between 0 and %d, got %d", i, job.MaxCount, r.GPUs)
		case r.Share != 0 && (!(r.Share >= 0.01 && r.Share < 1) || r.GPUs != 1 || r.Spread):
			return badProgress("share of rate %d must be between 0.01 and 0.99 of one GPU, got %v of %d", i, r.Share, r.GPUs)
		case !units(r.PerSecond) || r.PerSecond == 0:
			return badProgress("per_second of rate %d must be greater than 0, got %v", i, r.PerSecond)
		}
	}

	if len(kinds) > maxRateKinds {
		return badProgress("rates for at most %d GPU types are allowed, got %d", maxRateKinds, len(kinds))
	}

	if p.Training != nil {
		return checkTraining(p.Training)
	}

	return nil
}

// checkTraining says what is wrong with what a program tells of its batch.
func checkTraining(t *scaling.Training) error {
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"batch", t.Batch}, {"step_seconds", t.StepSeconds}, {"base_batch", t.BaseBatch}, {"max_batch", t.MaxBatch},
		{"min_per_gpu", t.MinPerGPU}, {"max_per_gpu", t.MaxPerGPU},
	} {
		if !units(f.value) || f.value == 0 {
			return badProgress("%s of training must be greater than 0, got %v", f.name, f.value)
		}
	}

	switch {
	case !units(t.NoiseScale):
		return badProgress(
			"noise_scale of training must be a number between 0 and %v, got %v", float64(maxUnits), t.NoiseScale,
		)
	case t.Passes < 0 || t.Passes > job.MaxCount:
		return badProgress("passes of training must be between 0 and %d, got %d", job.MaxCount, t.Passes)
	case t.BaseBatch > t.MaxBatch || t.MinPerGPU > t.MaxPerGPU:
		return badProgress("the smallest batch of training must not be larger than the largest, got %v to %v and %v to %v "+
			"per GPU", t.BaseBatch, t.MaxBatch, t.MinPerGPU, t.MaxPerGPU)
	}

	return nil
}

// units reports whether f can be an amount of work.
func units(f float64) bool { return !math.IsNaN(f) && f >= 0 && f <= maxUnits }

func badProgress(format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_progress", format, args...).WithField("progress")
}
