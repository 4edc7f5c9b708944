package queue

import (
	"math"
	"time"
)

// HalfLife is how long it takes until half of a user's past use is forgotten.
const HalfLife = 7 * 24 * time.Hour

// Decayed returns what use of so many GPU-seconds counts after some time, with
// rate GPUs in use all the while.
func Decayed(use, rate float64, passed time.Duration) float64 {
	if passed <= 0 {
		return use
	}
	// Expm1, because over a short time almost nothing is forgotten.
	forgotten := -math.Expm1(-passed.Seconds() / HalfLife.Seconds() * math.Ln2)
	return use*(1-forgotten) + rate*HalfLife.Seconds()/math.Ln2*forgotten
}

// Weight is how much a job counts for fair share while it runs, in GPUs. A CPU
// counts a sixteenth of a GPU, the usual ratio in GPU machines.
func Weight(gpus float64, nodes int, cpus float64) float64 {
	return float64(nodes) * (gpus + cpus/16)
}
