package relocate

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/queue"
)

// Terms are what the decision to move a job depends on, apart from the yard and the job.
type Terms struct {
	// Value is what an hour of a job's time is worth in money, by objective.
	Value map[job.Objective]money.PerHour
	// Left is how much of a job must be left, by the lower bound of its forecast.
	Left time.Duration
	// Stay is how long a job that was moved stays where it is.
	Stay time.Duration
	// Margin is the share of the cost of staying that a move must save.
	Margin float64
	// Delay is by how much a move may delay a job, as a share of its remaining time. MinDelay is
	// allowed in any case.
	Delay    float64
	MinDelay time.Duration
	// Wait is how much earlier a queued job must start for which others move, and Gain how many times what the moves
	// cost that must be worth.
	Wait time.Duration
	Gain float64
}

// Standard returns the terms that are used where nothing is set.
func Standard() Terms {
	return Terms{
		Value: ondemand.Standard().Value, Left: time.Hour, Stay: time.Hour, Margin: 0.1,
		Delay: 0.1, MinDelay: 15 * time.Minute, Wait: 15 * time.Minute, Gain: 2,
	}
}

// valueOf returns what an hour of a job's time is worth.
func (t *Terms) valueOf(it *queue.Item) money.PerHour {
	terms := ondemand.Terms{Value: t.Value}

	return terms.ValueOf(it)
}

// maxDelay returns by how much a move may delay a job with so much left. A cost-sensitive job may
// be delayed by any time that is worth less than what is saved.
func (t *Terms) maxDelay(it *queue.Item, left time.Duration) time.Duration {
	if it.Spec != nil && it.Spec.Objective == job.ObjectiveCost {
		return 1<<63 - 1
	}

	return t.maxPause(left)
}

// maxPause returns by how much a job with so much left may be delayed that gains nothing by it.
func (t *Terms) maxPause(left time.Duration) time.Duration {
	return max(job.Seconds(left.Seconds()*t.Delay), t.MinDelay)
}
