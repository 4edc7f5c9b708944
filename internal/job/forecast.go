package job

import (
	"time"

	"trainyard/internal/id"
)

// Forecast is what the yard expects of a job that has not ended: how long its runs will
// still take, when it will be done and what it will have cost, each with an interval that
// holds in four of five cases if Guess is false.
type Forecast struct {
	At        time.Time `json:"at"`                // when it was made
	Remaining Band      `json:"remaining"`         // seconds of running, from At, or from its start if it waits
	Wait      Band      `json:"wait"`              // seconds until it runs: in line, being set up, being restored; zero if it runs
	Cost      Band      `json:"cost"`              // of the whole job when it is done, in dollars; zero if nothing is paid
	Basis     Basis     `json:"basis"`             // what it goes by
	Why       string    `json:"why"`               // the basis as a sentence
	Guess     bool      `json:"guess,omitempty"`   // the interval is not backed by enough finished jobs
	Records   int       `json:"records,omitempty"` // forecasts of finished jobs that back it
	Covered   float64   `json:"covered,omitempty"` // share of intervals like this one into which the end fell
	Checked   int       `json:"checked,omitempty"` // of how many that is a share
	// Never is how likely the target is not reached, before the program ends by itself if it says when.
	Never     float64          `json:"never,omitempty"`
	Metric    string           `json:"metric,omitempty"` // whose curve it goes by
	Source    string           `json:"source,omitempty"` // where that was heard
	Done      float64          `json:"done,omitempty"`   // part of the work that is done, 0 to 1
	Methods   []MethodForecast `json:"methods,omitempty"`
	Path      []id.Job         `json:"path,omitempty"` // of jobs that it needs, those that it waits for longest
	Elsewhere []Elsewhere      `json:"elsewhere,omitempty"`
	Notices   []string         `json:"notices,omitempty"` // codes of what its owner has been told and still holds
}

// Band is an estimate with its interval.
type Band struct {
	Low  float64 `json:"low"`
	Mid  float64 `json:"mid"`
	High float64 `json:"high"`
}

// Basis is what a forecast goes by.
type Basis string

// The bases.
const (
	BasisNone    Basis = ""        // nothing is known yet
	BasisSteps   Basis = "steps"   // the program says how much it has to do, and how far it is
	BasisCurve   Basis = "curve"   // the error curve so far
	BasisHistory Basis = "history" // jobs like this one that have ended
	BasisBoth    Basis = "both"    // curve and history
	BasisExpect  Basis = "expect"  // what the researcher expects
)

// MethodSay is what one method says of a job, and what its word counts.
type MethodForecast struct {
	Method    string  `json:"method"`
	Remaining float64 `json:"remaining"` // seconds; negative if it sees no end
	Weight    float64 `json:"weight"`    // of the blend, 0 to 1
	Error     float64 `json:"error"`     // its median relative error on finished jobs; negative if there were none
}

// Elsewhere is how a job would fare on other GPUs.
type Elsewhere struct {
	GPU       string  `json:"gpu"`
	GPUs      int     `json:"gpus"`
	Remaining float64 `json:"remaining"` // seconds
	Cost      float64 `json:"cost"`      // of what remains, in dollars
	Why       string  `json:"why"`       // seen speeds, speeds told, or TFLOPS
}

// Informed reports whether it goes by more than what the researcher expects.
func (f *Forecast) Informed() bool { return f.Basis != BasisNone && f.Basis != BasisExpect }

// End returns when the job is expected to be done.
func (f *Forecast) End() time.Time { return f.At.Add(Seconds(f.Wait.Mid + f.Remaining.Mid)) }

// Ends returns the interval of that: the earliest and the latest.
func (f *Forecast) Ends() (early, late time.Time) {
	return f.At.Add(Seconds(f.Wait.Low + f.Remaining.Low)), f.At.Add(Seconds(f.Wait.High + f.Remaining.High))
}
