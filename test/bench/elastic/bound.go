package elastic

import (
	"math"

	"trainyard/internal/fleet"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// bound returns a time, in seconds, before which no plan can end all jobs that are
// there from the beginning and cannot change their number of GPUs. For any prices
// of the kinds, at which all GPUs together cost one a second, the jobs cannot cost
// less than each on the kind that is cheapest for it; the prices are driven to
// where that is most.
func bound(cluster []fleet.Node, jobs sim.Jobs) (float64, error) {
	all, err := trace.Collect(jobs)
	if err != nil {
		return 0, err
	}

	gpus := map[string]float64{}

	var kinds []string
	for i := range cluster {
		g := cluster[i].Inventory.GPUs
		if _, known := gpus[g[0].Model]; !known {
			kinds = append(kinds, g[0].Model)
		}

		gpus[g[0].Model] += float64(len(g))
	}

	price := make([]float64, len(kinds)) // of all GPUs of the kind together
	for k := range price {
		price[k] = 1 / float64(len(price))
	}

	best := 0.0

	for try := range 2000 {
		busy := make([]float64, len(kinds)) // seconds that all GPUs of the kind work
		sum, norm := 0.0, 0.0
		for _, j := range all {
			at, least := 0, math.Inf(1)
			for k := range kinds {
				if cost := price[k] * alone(j, kinds[k], gpus[kinds[k]]); cost < least {
					at, least = k, cost
				}
			}

			busy[at] += alone(j, kinds[at], gpus[kinds[at]])
			sum += least
		}

		best = math.Max(best, sum)

		for k := range price {
			price[k] *= math.Exp((busy[k]/sum - 1) / (3 + float64(try)/10))
			norm += price[k]
		}

		for k := range price {
			price[k] /= norm
		}
	}

	return best, nil
}

// alone is for how long a job keeps all GPUs of a kind busy.
func alone(j *sim.Job, kind string, gpus float64) float64 {
	n := j.Spec.Resources.Nodes.Min * j.Spec.Resources.GPUs.Min
	rate := j.Spec.Speed.On(kind, 0).Rate(n, 1)
	if rate <= 0 {
		return math.Inf(1)
	}

	return j.Spec.Speed.Work / rate * float64(n) / gpus
}
