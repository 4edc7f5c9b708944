package forecast

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

// Scored is how wrong the yard would have been about a job that has ended.
type Scored struct {
	Job      id.Job    `json:"job"`
	Group    string    `json:"group,omitempty"` // those that are not independent of each other
	Kind     string    `json:"kind,omitempty"`  // those that are alike
	Finished time.Time `json:"finished,omitzero"`
	Marks    []Mark    `json:"marks"`
}

// Mark is how wrong each method was when a job had come so far.
type Mark struct {
	Part  float64            `json:"part"` // of its work that was done, 0 to 1
	Class Class              `json:"class"`
	Logs  map[string]float64 `json:"logs"`            // by method: logarithm of what was left over what it said
	Blind []string           `json:"blind,omitempty"` // methods that saw no end
	Few   bool               `json:"few,omitempty"`   // it had hardly begun: fewer than three points were there
	Wide  float64            `json:"wide,omitempty"`  // how far apart the methods' own bounds were, as a logarithm
	// Held tells whether the interval that was shown then held; it is missing if that was a guess.
	Held *bool `json:"held,omitempty"`
}

// Record is how well forecasts of finished jobs have done. It tells what each method's
// word counts and how wide intervals must be. Its zero value is empty. It may be written as JSON,
// and what it says does not depend on the order in which jobs were added.
type Record struct {
	jobs []Scored // by time of their end, then by name; each job once
	rule *rule
}

// Jobs returns how many finished jobs it goes by.
func (r *Record) Jobs() int {
	if r == nil {
		return 0
	}
	return len(r.jobs)
}

// Add takes finished jobs. A job that is there already is replaced.
func (r *Record) Add(jobs ...Scored) {
	for _, s := range jobs {
		if len(s.Marks) == 0 {
			continue
		}
		r.jobs = slices.DeleteFunc(r.jobs, func(o Scored) bool { return o.Job == s.Job })
		at, _ := slices.BinarySearchFunc(r.jobs, s, inOrder)
		r.jobs = slices.Insert(r.jobs, at, s)
	}
	if over := len(r.jobs) - MaxJobs; over > 0 {
		r.jobs = slices.Delete(r.jobs, 0, over)
	}
	r.rule = newRule(r.jobs)
}

// With returns a record that has finished jobs too. The one it is made from does not change,
// so that others may go by it meanwhile.
func (r *Record) With(jobs ...Scored) *Record {
	c := &Record{jobs: slices.Clone(r.jobs)}
	c.Add(jobs...)
	return c
}

func inOrder(a, b Scored) int {
	return cmp.Or(a.Finished.Compare(b.Finished), cmp.Compare(a.Job, b.Job))
}

// MarshalJSON writes the jobs; the rest follows from them.
func (r *Record) MarshalJSON() ([]byte, error) { return json.Marshal(r.jobs) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Record) UnmarshalJSON(text []byte) error {
	var jobs []Scored
	if err := json.Unmarshal(text, &jobs); err != nil {
		return err
	}
	*r = Record{}
	r.Add(jobs...)
	return nil
}

// rules returns what the record says; an empty one says what was known before the first job.
func (r *Record) rules() *rule {
	if r == nil || r.rule == nil {
		return newRule(nil)
	}
	return r.rule
}

// Coverage returns in which part of the forecasts the job's end fell into the interval
// that was shown at that time, and how many forecasts that were. Guesses do not count.
func (r *Record) Coverage() (share float64, forecasts int) {
	if r == nil || r.rule == nil {
		return 0, 0
	}
	all := r.rule.held[len(classes)]
	return all.share(), all.n
}

// Line is how well a method has done on finished jobs.
type Line struct {
	Method   string  `json:"method"`
	Quarter  int     `json:"quarter"` // of the progress that was predicted, 1 to 4; 0 for all
	Median   float64 `json:"median"`  // relative error of what was left
	P80      float64 `json:"p80"`
	Failed   int     `json:"failed"` // it saw no end
	Forecast int     `json:"forecasts"`
}

// Table returns how well each method and the blend have done, over all and by
// quarter of predicted progress.
func (r *Record) Table() []Line {
	if r == nil || r.rule == nil {
		return nil
	}
	return r.rule.table()
}
