package job

import (
	"time"

	"trainyard/internal/id"
)

// SuspendOrder says whether the program of a rank is to be suspended in place. The orders of a rank are numbered from
// 1: it is to be suspended after an odd one, and to run after an even one.
type SuspendOrder struct {
	Number int `json:"number"`
	// Room is how much host memory its GPU memory may take. If that is too little the program goes on.
	Room Bytes `json:"room,omitempty" doc:"host memory that its GPU memory may take"`
	// For is the job that gets its GPUs, and Why the reason as a sentence. The agent does not need them.
	For id.Job `json:"for,omitempty"`
	Why string `json:"why,omitempty"`
}

// On reports whether the program is to be suspended.
func (o SuspendOrder) On() bool { return o.Number%2 == 1 }

// Suspension is what a node has made of the orders to suspend a rank.
type Suspension struct {
	Number int   `json:"number,omitempty" doc:"of the last order that was carried out, or cannot be"`
	On     bool  `json:"on,omitempty" doc:"the program is suspended"`
	Memory Bytes `json:"memory,omitempty" doc:"GPU memory that was moved to host memory"`
	// Error is why an order could not be carried out: the program goes on, or is still suspended.
	Error string `json:"error,omitempty" maxLength:"2000"`
}

// Lends reports whether the program of a rank is suspended, so that others have its GPUs.
func (k *Rank) Lends() bool { return !k.Suspended.IsZero() }

// Suspended reports whether the program of a run is suspended in place.
func (r *Run) Suspended() bool { return len(r.Ranks) == 1 && r.Ranks[0].Lends() }

// WorkingSince returns when a run would have started if it had never been suspended; zero if it has not started.
func (r *Run) WorkingSince() time.Time {
	if r.Started.IsZero() || len(r.Ranks) != 1 {
		return r.Started
	}

	return r.Started.Add(time.Duration(r.Ranks[0].Lent))
}

// Took returns how long the program of a run that has ended ran, by the clocks of its nodes: the report of its end may
// come long after it, as from a node that was cut off. Where its nodes do not say, it is what Worked returns.
func (r *Run) Took(now time.Time) time.Duration {
	longest := time.Duration(0)

	for i := range r.Ranks {
		k := &r.Ranks[i]
		if k.Started.IsZero() || k.Ended.IsZero() || k.Cause == CauseNodeLost || k.Lends() {
			return r.Worked(now)
		}

		longest = max(longest, k.Ended.Sub(k.Started)-time.Duration(k.Lent))
	}

	return min(longest, max(now.Sub(r.Ordered), 0))
}

// Worked returns how long a run has run by a time, without the time that it was suspended.
func (r *Run) Worked(at time.Time) time.Duration {
	if r.Suspended() && at.After(r.Ranks[0].Suspended) {
		at = r.Ranks[0].Suspended
	}

	since := r.WorkingSince()
	if since.IsZero() {
		return 0
	}

	return max(at.Sub(since), 0)
}
