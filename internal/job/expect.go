package job

import (
	"math"
	"time"
)

// Reference is the GPU that a job's expected run time is for: the model that the job asks for, or, if it
// asks for none, the one that was usual among those that could run it when it was submitted. It is
// recorded with the job, so that nodes that come and go later do not change how long the job is. The zero
// value is unknown: then the job is expected to take equally long everywhere.
type Reference struct {
	GPU    string  `json:"gpu,omitempty"`    // model, as its node or its offer reports it
	TFLOPS float64 `json:"tflops,omitempty"` // of one; 0 if unknown
}

// Hardware is what a job runs on, or could.
type Hardware struct {
	GPU    string  // model; of the slowest if there are several
	TFLOPS float64 // of one; 0 if unknown
	GPUs   int     // of all nodes together
}

// gpuExponent is how a job of unknown speed gains from more GPUs: twice as many are not quite twice as fast.
const gpuExponent = 0.9

// Pace returns how many seconds of its expected run time a job gets done in a second on hardware: 1 with
// as many GPUs as it asks for of the reference, 2 where it takes half as long. A GPU of another model
// counts by the ratio of the TFLOPS, and another number of GPUs than asked for by its 0.9th power. A job
// without GPUs, for which asked is 0, is equally fast everywhere.
func (r Reference) Pace(asked int, on Hardware) float64 {
	if asked <= 0 {
		return 1
	}

	pace := 1.0
	if r.TFLOPS > 0 && on.TFLOPS > 0 && r.GPU != on.GPU {
		pace = on.TFLOPS / r.TFLOPS
	}

	if on.GPUs > 0 && on.GPUs != asked {
		pace *= math.Pow(float64(on.GPUs)/float64(asked), gpuExponent)
	}

	return pace
}

// RunTime returns how long a job runs on hardware if it lasts so long on its reference: the one rule by
// which policies, the simulator and forecasts convert an expected run time. It is never more than
// max_duration, which is a limit on wall time and does not scale. A job of which only that limit is known
// is assumed to use it up wherever it runs.
func (o *Outlook) RunTime(s *Spec, lasts time.Duration, asked int, on Hardware) time.Duration {
	if lasts <= 0 || o == nil || s.onlyLimited() {
		return lasts
	}

	return s.Capped(scale(lasts, o.Reference.Pace(asked, on)))
}

// scale returns how long something takes at a pace.
func scale(d time.Duration, pace float64) time.Duration {
	if pace == 1 { // the usual case, and exact
		return d
	}

	return Seconds(d.Seconds() / pace)
}

// Capped returns a run time, or max_duration if that is shorter: no run takes longer.
func (s *Spec) Capped(d time.Duration) time.Duration {
	if s != nil && s.MaxDuration > 0 {
		return min(d, time.Duration(s.MaxDuration))
	}

	return d
}

// onlyLimited reports whether max_duration is all that the owner says about the run time.
func (s *Spec) onlyLimited() bool { return s != nil && s.Expect == 0 && s.MaxDuration > 0 }

// DeclaredDuration returns how long a job runs on its reference as its owner declared: as expected, or
// else as long as it may. 0 if they did not. What is expected may be more than max_duration allows: on
// faster GPUs it may still be less.
func (s *Spec) DeclaredDuration() time.Duration {
	if s.Expect > 0 {
		return time.Duration(s.Expect)
	}

	return time.Duration(s.MaxDuration)
}
