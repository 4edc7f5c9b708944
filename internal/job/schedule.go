package job

import (
	"time"

	"trainyard/internal/cron"
	"trainyard/internal/id"
)

// Overlap says what a schedule does when its time has come and jobs that it submitted before have not ended.
type Overlap string

// The ways. The zero value is OverlapSkip.
const (
	OverlapSkip  Overlap = "skip"  // nothing is submitted this time
	OverlapAllow Overlap = "allow" // jobs are submitted all the same
)

// Schedule submits the jobs of one file again and again.
type Schedule struct {
	ID      id.Schedule `json:"id"`
	Seq     uint64      `json:"seq"`
	Owner   id.User     `json:"owner"`
	Every   string      `json:"every"` // as in the job file
	Overlap Overlap     `json:"overlap,omitempty"`
	Jobs    []*Spec     `json:"jobs"`
	Workdir string      `json:"workdir,omitempty"`
	Key     string      `json:"key,omitempty"` // idempotency key of its submission
	KeyHash string      `json:"key_hash,omitempty"`
	Added   time.Time   `json:"added"`
	Next    time.Time   `json:"next,omitzero"` // zero if it was stopped
	Last    time.Time   `json:"last,omitzero"` // when it submitted last
	// LastJobs are what it submitted then.
	LastJobs []id.Job `json:"last_jobs,omitempty"`
	// Submitted, Skipped and Missed are how often it submitted, did not because jobs had not ended, and could not because
	// no server ran.
	Submitted int       `json:"submitted,omitempty"`
	Skipped   int       `json:"skipped,omitempty"`
	Missed    int       `json:"missed,omitempty"`
	Problem   string    `json:"problem,omitempty"` // why nothing could be submitted last time; "" if it could
	Stopped   time.Time `json:"stopped,omitzero"`
	StoppedBy id.User   `json:"stopped_by,omitempty"`
}

// Name returns the name of the first job, "" if it has none.
func (s *Schedule) Name() string { return s.Jobs[0].Name }

// ParseEvery reads how often something recurs: an interval such as 6h, or the five fields of a crontab.
func ParseEvery(text string) (cron.Recurrence, error) {
	if d, err := ParseDuration(text); err == nil {
		return cron.Every(time.Duration(d)), nil
	}

	return cron.Parse(text)
}
