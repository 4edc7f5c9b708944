package problem

import (
	"time"

	"trainyard/internal/place/ondemand"
)

// Assumptions are what the policies assume about restarts and lateness.
type Assumptions struct {
	// Margin is the factor by which the gain of stopping a job must exceed the cost of
	// its restart.
	Margin float64
	// Restart is the minimum time to stop a job and start it again, whatever is known
	// of it.
	Restart time.Duration
	// Rest is how long a job is left alone after its start, as a multiple of its
	// restart time.
	Rest float64
	// Late is the cost of being late for a job with a deadline and no late cost of its
	// own, as a multiple of the price of its GPUs. Wait is the same for a job without a
	// deadline, from its submission; it doubles with every Patience.
	Late, Wait float64
	Patience   time.Duration
	// Terms are those of the common rule of provisioning: what the time of jobs without a deadline is worth where
	// nodes are provisioned for them.
	Terms ondemand.Terms
}

// Standard returns the assumptions with which the policies are registered.
func Standard() Assumptions {
	return Assumptions{
		Margin: 1.25, Restart: 30 * time.Second, Rest: 2,
		Late: 10, Wait: 1, Patience: 12 * time.Hour,
		Terms: ondemand.Standard(),
	}
}
