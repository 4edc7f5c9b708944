// Package history describes jobs that have finished: what was known of each before it ran (Features), how
// long it took and how its metric went (Past). Forecasts are made from these records: package match
// compares curves, package duration learns how long jobs take, package importer reads records from
// tables. The package only describes; it predicts nothing and stores nothing.
package history

import (
	"cmp"
	"encoding/json"
	"time"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/id"
)

// Features is what is known of a job before it runs. Empty and zero mean unknown.
type Features struct {
	Name    string `json:"name,omitempty"` // of the job, as the researcher calls it
	Owner   string `json:"owner,omitempty"`
	Command string `json:"command,omitempty"` // that it runs
	// Identity is the same for jobs that repeat each other: in command, parameters, files and resources.
	Identity  string             `json:"identity,omitempty"`
	Task      string             `json:"task,omitempty"`
	Model     string             `json:"model,omitempty"` // kind of model
	Params    float64            `json:"params,omitempty"`
	Framework string             `json:"framework,omitempty"`
	Metric    string             `json:"metric,omitempty"` // of the target
	Target    float64            `json:"target,omitempty"`
	Batch     float64            `json:"batch,omitempty"`
	Rate      float64            `json:"rate,omitempty"`   // of learning
	Amount    float64            `json:"amount,omitempty"` // of steps or epochs that were asked for
	Hyper     map[string]float64 `json:"hyper,omitempty"`  // further hyper-parameters that are numbers
	GPU       string             `json:"gpu,omitempty"`    // model
	TFLOPS    float64            `json:"tflops,omitempty"` // of one
	GPUs      float64            `json:"gpus,omitempty"`   // in all
	Nodes     float64            `json:"nodes,omitempty"`
}

// Past is a job that has ended well.
type Past struct {
	Job      id.Job      `json:"job"`
	Group    string      `json:"group,omitempty"` // those that are not independent of each other: a family of runs, an organisation
	Features Features    `json:"features"`
	Finished time.Time   `json:"finished"`
	Seconds  float64     `json:"seconds"` // that its runs took in all
	Wait     float64     `json:"wait"`    // seconds from submission to its first run's start
	Start    float64     `json:"start"`   // seconds of set-up and start of its last run
	Curve    curve.Curve `json:"curve"`   // whole, thinned out; empty if it had none
	End      float64     `json:"end"`     // work at which it was done: on the axis of its curve
	// At is how many seconds of running each point of the curve came at; empty if that is not known.
	At []float64 `json:"at,omitempty"`
	// Reported is what the program itself estimated to remain, oldest first; empty if it did not.
	Reported []Reported `json:"reported,omitempty"`
}

// Reported is a program's own estimate of its remaining time.
type Reported struct {
	At        float64 `json:"at"`        // seconds of running
	Remaining float64 `json:"remaining"` // seconds
}

// Compare puts past jobs in order: the newest first.
func Compare(a, b *Past) int {
	if c := cmp.Or(
		b.Finished.Compare(a.Finished),
		cmp.Compare(a.Job, b.Job),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Seconds, b.Seconds),
	); c != 0 {
		return c
	}

	// Two records of one name: whatever tells them apart. Marshal cannot fail for finite numbers, and
	// others compare as equal.
	x, errX := json.Marshal(a.Features)

	y, errY := json.Marshal(b.Features)
	if errX != nil || errY != nil {
		return 0
	}

	return cmp.Compare(string(x), string(y))
}

// Kind names the sort of a job: its model, else its task.
func Kind(f *Features) string {
	if f.Model != "" {
		return "model " + Normalize(f.Model)
	}

	return "task " + Normalize(f.Task)
}
