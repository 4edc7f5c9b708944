package job

import "time"

// Interactive says how a job that a person works in is looked after.
type Interactive struct {
	// Idle is for how long nobody and nothing may use the job before it is stopped.
	Idle Duration `json:"idle"`
}

// maxIdleWarning is the longest time between the warning that an idle job is going to be stopped and the stop.
const maxIdleWarning = 5 * time.Minute

// Warning is how long before the end of an idle job its owner is warned: a fifth of the time that it may be idle, and
// five minutes at most.
func (i *Interactive) Warning() time.Duration { return min(time.Duration(i.Idle)/5, maxIdleWarning) }
