// Package forecast estimates when a job will finish and what it will cost, with a prediction interval. It stands
// between
// watch and move on the path of a job: metrics and finished jobs go in, a job.Forecast comes out, which people are
// shown
// and policies plan by.
//
// Several estimators contribute: the declared amount of work, the job's own learning curve (package curve), similar
// finished jobs (package match), a regression of durations (package duration), and the researcher's own estimate.
// Package
// calibrate weighs them and computes the interval from replays of the yard's finished jobs (Score). A job of which
// nothing is known gets a forecast that says so.
//
// Estimates are made in units of work first, because work does not change when a job gets other GPUs (Ask), and
// converted to seconds by how fast the job is where it runs now (Make). The package is pure and safe for concurrent
// use; a calibrate.Record must not be added to meanwhile.
package forecast

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/money"
)

// Input is all that is known of a job when a forecast of it is made. Make does not change it.
type Input struct {
	Job       *job.Job
	Now       time.Time
	Runs      []Stretch         // in order; empty before the first
	Series    []metric.Series   // metrics of the job
	Progress  Progress          // as the program reports it
	Speed     *job.Speed        // declared or learned rates, in units of their own; nil if there are none
	Library   *Library          // finished jobs; nil if there are none
	Record    *calibrate.Record // of earlier forecasts; nil if there is none
	Wait      job.Band          // seconds in the queue, if known; zero if the job runs
	Hourly    money.PerHour     // where it runs, or will run
	Rent      Rent              // of nodes that are provisioned for it
	CostSoFar money.Amount
	Places    []Place // other GPUs to estimate for
}

// Stretch is a run as a stretch of time on one allocation.
type Stretch struct {
	Epoch  int
	GPU    string // model
	GPUs   int    // of all nodes together
	Nodes  int
	TFLOPS float64 // of one GPU; 0 to look the model up
	From   time.Time
	To     time.Time // zero while it runs
	Setup  float64   // seconds of it before the program began or went on: set-up, start, restore
}

// Progress is the progress that a program reports, in its own units: by a progress file, a status protocol or a
// progress
// bar.
type Progress struct {
	Done  float64
	Total float64   // 0 if unknown
	At    time.Time // when it was reported
	// Marks are earlier reports, oldest first: Step is what was done, At when. They may be missing.
	Marks  []metric.Point
	Source string // of the report
}

// Rent is how provisioned nodes are billed. The zero value is for nodes of the yard, which are
// paid for by the time of use.
type Rent struct {
	Offer *fleet.Offer  // nil for nodes of the yard
	Kept  time.Duration // for how long they have been paid already
}

// cost returns what a job costs from now on if it goes on for some seconds at a price: of
// provisioned nodes the boot and the whole billing increments too.
func (r *Rent) cost(hourly money.PerHour, seconds float64) money.Amount {
	if r.Offer == nil {
		return hourly.PerSecond().For(seconds)
	}

	kept := r.Kept + job.Seconds(seconds)
	if r.Kept == 0 {
		kept += time.Duration(r.Offer.Boot)
	}

	return hourly.For(time.Duration(r.Offer.BilledDuration(job.Duration(kept))) - r.Kept)
}

// Place is a kind and number of GPUs where a job could run.
type Place struct {
	Offer  *fleet.Offer // that would have to be provisioned; nil for nodes of the yard
	GPU    string
	GPUs   int
	TFLOPS float64       // of one GPU; 0 to look the model up
	Hourly money.PerHour // of all of them
}

// running returns the stretch that has not ended, and nil if the job waits.
func (in *Input) running() *Stretch {
	if n := len(in.Runs); n > 0 && in.Runs[n-1].To.IsZero() {
		return &in.Runs[n-1]
	}

	return nil
}

// elapsed returns the seconds that the job's runs have taken so far.
func (in *Input) elapsed() float64 {
	sum := 0.0
	for i := range in.Runs {
		sum += in.Runs[i].seconds(in.Now)
	}

	return sum
}

// seconds returns how long a stretch has lasted.
func (s *Stretch) seconds(now time.Time) float64 {
	until := s.To
	if until.IsZero() {
		until = now
	}

	return max(until.Sub(s.From).Seconds(), 0)
}
