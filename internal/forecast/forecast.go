// Package forecast says when a job will be done and what it will have cost, and
// how far that can be trusted. It stands between watch and move on the path of a job:
// metrics and finished jobs go in, a job.Forecast comes out, which people are shown and
// policies plan by.
//
// Several methods answer, each from what it knows: the declared amount of work, the
// error curve so far (package curve), the jobs like it that have ended (package
// history), the researcher's own expectation. What each says is weighed by how well it has done on the yard's own
// finished jobs, which are replayed for that when they end (Score, Record); the interval
// is as wide as those replays were wrong. Nothing is made up: a job of which nothing is known
// gets a forecast that says so.
//
// It asks in units of work first, because work does not change when a job gets other
// GPUs (Ask), and turns work into seconds by how fast the job is where it runs now
// (Make). The package is pure and safe for concurrent use; a Record must not be added to meanwhile.
package forecast

import (
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

// Input is all that is known of a job when a forecast of it is made. Make changes
// nothing in it.
type Input struct {
	Job      *job.Job
	Now      time.Time
	Runs     []Stretch         // in order; empty before the first
	Series   []metric.Series   // all that the program measures of itself
	Progress Progress          // how far the program says it is
	Speed    *job.Speed        // rates told or learned, in units of their own; nil if nobody told
	Library  *Library          // finished jobs; nil if there are none
	Record   *calibrate.Record // of earlier forecasts; nil if there is none
	Wait     job.Band          // seconds in line, as far as the caller can tell; zero if the job runs
	Hourly   float64           // dollars for an hour where it runs, or will run
	Spent    float64           // dollars so far
	Places   []Place           // other GPUs to reckon with
}

// Stretch is a run as a stretch of time on one allocation.
type Stretch struct {
	Epoch  int
	GPU    string // model
	GPUs   int    // of all nodes together
	Nodes  int
	TFLOPS float64 // of one GPU; 0 if the model's data sheet shall tell
	From   time.Time
	To     time.Time // zero while it runs
	Setup  float64   // seconds of it before the program began or went on: set-up, start, restore
}

// Progress is how far a program says it is, in its own units: from a progress file, a
// status protocol or a progress bar.
type Progress struct {
	Done  float64
	Total float64   // 0 if it does not say
	At    time.Time // when it said so
	// Marks are what it said earlier, oldest first: Step is what was done, At when. They may be missing.
	Marks  []metric.Point
	Source string // where it was heard
}

// Place is a kind and number of GPUs where a job could run.
type Place struct {
	GPU    string
	GPUs   int
	TFLOPS float64 // of one GPU; 0 if the model's data sheet shall tell
	Hourly float64 // dollars for an hour of all of them
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
