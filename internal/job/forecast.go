package job

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/money"
)

// Forecast is the forecast of an unfinished job: its remaining time, its waiting time and its
// total cost, each with an 80 % prediction interval, which is calibrated unless Guess is set.
type Forecast struct {
	At        time.Time `json:"at"`              // when it was made
	Remaining Band      `json:"remaining"`       // seconds of run time, from At, or from its start if it is queued
	Wait      Band      `json:"wait"`            // seconds until it runs: queued, being set up, restoring; zero if it runs
	Cost      Band      `json:"cost"`            // of the whole job, in dollars; zero if nodes cost nothing
	Basis     Basis     `json:"basis"`           // what it is based on
	Why       string    `json:"why"`             // the basis as a sentence
	Guess     bool      `json:"guess,omitempty"` // the interval is not backed by enough finished jobs
	// Starting says that its program has just been started and has reported nothing yet, and that nothing but its
	// expect is known of how long it takes.
	Starting bool    `json:"starting,omitempty"`
	Records  int     `json:"records,omitempty"` // forecasts of finished jobs that back it
	Covered  float64 `json:"covered,omitempty"` // coverage of such intervals: the fraction that contained the actual finish
	Checked  int     `json:"checked,omitempty"` // number of intervals that Covered is computed from
	// Never is the probability that the target is not reached before the program ends.
	Never     float64          `json:"never,omitempty"`
	Metric    string           `json:"metric,omitempty"` // whose curve it is based on
	Source    string           `json:"source,omitempty"` // of the metric
	Done      float64          `json:"done,omitempty"`   // fraction of the work that is done, 0 to 1
	Methods   []MethodForecast `json:"methods,omitempty"`
	Path      []id.Job         `json:"path,omitempty"` // the critical path: of the jobs it needs, those that finish last
	Elsewhere []Elsewhere      `json:"elsewhere,omitempty"`
	Notices   []string         `json:"notices,omitempty"` // codes of the notices that its owner received and that still apply
	// Remarks says by code what its owner should know as long as the notice applies.
	Remarks map[string]string `json:"remarks,omitempty"`
}

// Codes of notices that are shown with the job as long as they apply.
const (
	NoticeNotNumber = "metric_not_number" // a loss is NaN or infinite
	NoticeStalled   = "progress_stalled"  // nothing was reported for long
)

// Band is an estimate with its prediction interval.
type Band struct {
	Low  float64 `json:"low"`
	Mid  float64 `json:"mid"`
	High float64 `json:"high"`
}

// Basis is what a forecast is based on.
type Basis string

// The bases.
const (
	BasisNone    Basis = ""        // nothing is known yet
	BasisSteps   Basis = "steps"   // the program reports its total work and its progress
	BasisCurve   Basis = "curve"   // the error curve so far
	BasisHistory Basis = "history" // similar jobs that have finished
	BasisBoth    Basis = "both"    // curve and history
	BasisExpect  Basis = "expect"  // what the researcher expects

	BasisReported Basis = "reported" // what the program itself estimates
)

// MethodForecast is the estimate of one method, with its weight.
type MethodForecast struct {
	Method    string  `json:"method"`
	Remaining float64 `json:"remaining"` // seconds; negative if it gives no estimate
	Weight    float64 `json:"weight"`    // of the blend, 0 to 1
	Error     float64 `json:"error"`     // its median relative error on finished jobs; negative if there were none
}

// Elsewhere is the forecast of a job on other GPUs.
type Elsewhere struct {
	GPU       string       `json:"gpu"`
	GPUs      int          `json:"gpus"`
	Remaining float64      `json:"remaining"` // seconds
	Cost      money.Amount `json:"cost"`      // of what remains
	Why       string       `json:"why"`       // basis: observed speeds, declared speeds, or TFLOPS
}

// Informed reports whether it is based on more than the job's expect.
func (f *Forecast) Informed() bool { return f.Basis != BasisNone && f.Basis != BasisExpect }

// Timed reports whether its estimated finish means a time of day: not if too little is known of jobs like it, nor while
// its program is starting.
func (f *Forecast) Timed() bool {
	return f.Basis != BasisNone && !f.Starting && (!f.Guess || f.Basis != BasisHistory)
}

// End returns the estimated finish.
func (f *Forecast) End() time.Time { return f.At.Add(Seconds(f.Wait.Mid + f.Remaining.Mid)) }

// Ends returns the prediction interval of the estimated finish.
func (f *Forecast) Ends() (early, late time.Time) {
	return f.At.Add(Seconds(f.Wait.Low + f.Remaining.Low)), f.At.Add(Seconds(f.Wait.High + f.Remaining.High))
}
