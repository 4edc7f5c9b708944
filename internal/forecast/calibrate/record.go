package calibrate

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"trainyard/internal/id"
)

// MaxJobs is how many finished jobs a record keeps: the newest. Four marks of each are
// far more than an interval needs, and what was long ago says little about today.
const MaxJobs = 1000

// JobScore is how wrong forecasts of a finished job would have been: it is replayed at each of ReplayPoints.
type JobScore struct {
	Job      id.Job    `json:"job"`
	Group    string    `json:"group,omitempty"` // those that are not independent of each other
	Kind     string    `json:"kind,omitempty"`  // those that are alike
	Finished time.Time `json:"finished,omitzero"`
	Marks    []Mark    `json:"marks"`
}

// Mark is how wrong each method was at one replay point.
type Mark struct {
	Progress  float64            `json:"part"` // fraction of its work that was done
	Class     Class              `json:"class"`
	Residuals map[string]float64 `json:"logs"`            // by method: log(actual/estimated) of what was left
	NoEnd     []string           `json:"blind,omitempty"` // methods that predicted no end
	FewPoints bool               `json:"few,omitempty"`   // it had fewer than three points
	Spread    float64            `json:"wide,omitempty"`  // log ratio of the methods' own bounds
	// Covered tells whether the interval shown at the time contained the outcome; nil if that was a guess.
	Covered *bool `json:"held,omitempty"`
}

// Record is how well forecasts of finished jobs have done: the calibration data. Its zero value is empty. It may
// be written as JSON, and its calibration does not depend on the order in which jobs were added.
type Record struct {
	jobs        []JobScore // by time of their end, then by name; each job once
	calibration *Calibration
}

// Jobs returns how many finished jobs it holds.
func (r *Record) Jobs() int {
	if r == nil {
		return 0
	}

	return len(r.jobs)
}

// Add adds finished jobs and recalibrates. A job that is there already is replaced.
func (r *Record) Add(jobs ...JobScore) {
	for _, s := range jobs {
		if len(s.Marks) == 0 {
			continue
		}

		r.jobs = slices.DeleteFunc(r.jobs, func(o JobScore) bool { return o.Job == s.Job })
		at, _ := slices.BinarySearchFunc(r.jobs, s, inOrder)
		r.jobs = slices.Insert(r.jobs, at, s)
	}

	if over := len(r.jobs) - MaxJobs; over > 0 {
		r.jobs = slices.Delete(r.jobs, 0, over)
	}

	r.calibration = newCalibration(r.jobs)
}

// With returns a record with further finished jobs. The original does not change, so that others may use it
// meanwhile.
func (r *Record) With(jobs ...JobScore) *Record {
	c := &Record{jobs: slices.Clone(r.jobs)}
	c.Add(jobs...)
	return c
}

func inOrder(a, b JobScore) int {
	return cmp.Or(a.Finished.Compare(b.Finished), cmp.Compare(a.Job, b.Job))
}

// MarshalJSON writes the jobs; the rest follows from them.
func (r *Record) MarshalJSON() ([]byte, error) { return json.Marshal(r.jobs) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Record) UnmarshalJSON(text []byte) error {
	var jobs []JobScore
	if err := json.Unmarshal(text, &jobs); err != nil {
		return err
	}

	*r = Record{}
	r.Add(jobs...)

	return nil
}

// Calibration returns the calibration; that of an empty record consists of priors.
func (r *Record) Calibration() *Calibration {
	if r == nil || r.calibration == nil {
		return newCalibration(nil)
	}

	return r.calibration
}

// Coverage returns how often the outcome fell into the interval that was shown at the time, and of how many
// forecasts. Guesses do not count.
func (r *Record) Coverage() (rate float64, forecasts int) {
	if r == nil || r.calibration == nil {
		return 0, 0
	}

	all := r.calibration.coverage[len(classes)]

	return all.rate(), all.n
}

// Accuracy is how wrong a method was about finished jobs.
type Accuracy struct {
	Method    string  `json:"method"`
	Quarter   int     `json:"quarter"` // of predicted progress, 1 to 4; 0 for all
	Median    float64 `json:"median"`  // relative error of what was left
	P80       float64 `json:"p80"`
	Failed    int     `json:"failed"` // forecasts without an end
	Forecasts int     `json:"forecasts"`
}

// Table returns the accuracy of each method and of the blend, over all and by quarter of predicted progress.
func (r *Record) Table() []Accuracy {
	if r == nil || r.calibration == nil {
		return nil
	}

	return r.calibration.table()
}
