package elastic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/information"
)

// draw describes generated elastic jobs.
type draw struct {
	seed  uint64
	jobs  int
	load  float64 // work that comes a second, of what all GPUs do if each job has one
	kinds []string
}

// median and sigma are of the time that a job takes on one GPU: a tenth of the
// jobs take less than five minutes, a tenth more than three and a half hours.
const (
	median = 1800.0
	sigma  = 1.5
)

// list draws the jobs. Each scales with a power of its number of GPUs between 0.5
// and 0.95, loses up to 40 % when it is spread over nodes, needs 10 s to 2 min to
// start, and is faster on some kinds than on others.
func (d draw) list(cluster []fleet.Node) []*sim.Job {
	r := rand.New(rand.NewPCG(d.seed, 7))
	gpus := 0
	for i := range cluster {
		gpus += len(cluster[i].Inventory.GPUs)
	}

	gap := median * math.Exp(sigma*sigma/2) / (d.load * float64(gpus))
	next := trace.Poisson(r, job.Seconds(gap))

	jobs := make([]*sim.Job, d.jobs)
	for i := range jobs {
		speed := d.speed(r)
		jobs[i] = &sim.Job{Name: fmt.Sprintf("job-%d", i+1), At: next(), Spec: &job.Spec{
			Run:        "simulated",
			Place:      job.PlaceAny,
			Objective:  job.ObjectiveTime,
			Speed:      speed,
			Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
			Resources:  job.Resources{Nodes: job.Range{Min: 1, Max: 16}, GPUs: job.Range{Min: 1, Max: 8}},
		}}
	}

	return jobs
}

// most is with how many GPUs a generated job is measured at most.
const most = 32

func (d draw) speed(r *rand.Rand) *job.Speed {
	power, spread := 0.5+0.45*r.Float64(), 0.6+0.4*r.Float64()
	start := time.Duration(10+110*r.Float64()) * time.Second
	work := median * math.Exp(sigma*r.NormFloat64())

	var rates []job.Rate
	for _, k := range d.kinds {
		faster := 1.0
		if len(d.kinds) > 1 {
			faster = math.Exp(0.7 * r.NormFloat64())
		}

		for n := 1; n <= most; n++ {
			rate := faster * math.Pow(float64(n), power)
			rates = append(rates, job.Rate{GPU: k, GPUs: n, PerSecond: rate})
			if n > 1 {
				rates = append(rates, job.Rate{GPU: k, GPUs: n, PerSecond: rate * spread, Spread: true})
			}
		}
	}

	return job.NewSpeed(work, start, 0, rates...)
}

// generated compares the policies on workloads of several loads and seeds.
func generated(o Options) *section {
	loads := []float64{0.4, 0.7, 1, 1.4}
	seeds := uint64(3)

	jobs := 200
	if o.Quick {
		loads, seeds, jobs = []float64{1}, 2, 30
	}

	s := &section{
		title: fmt.Sprintf(
			"Generated: %d elastic jobs, seeds 1 to %d, 8 nodes of 8 T4 (one kind), or 16 V100, 16 P100 and 32 K80 (three "+
				"kinds)",
			jobs,
			seeds,
		),
		notes: []string{
			"Load is the work that comes a second of what the GPUs do if each job has one. On one GPU jobs take half an hour " +
				"(median; 2 min to 9 h for nine in ten).",
			"Speed goes with the number of GPUs to the power of 0.5 to 0.95, less up to 40 % over several nodes. Each start " +
				"costs 10 s to 2 min.",
		},
		knowledge: []information.Comparison{generatedKnowledge()},
	}

	for _, load := range loads {
		for kinds, cluster := range [][]fleet.Node{nodes("T4", 8, 8), threeKinds()} {
			for seed := uint64(1); seed <= seeds; seed++ {
				d := draw{seed: seed, jobs: jobs, load: load, kinds: [][]string{{"T4"}, {"V100", "P100", "K80"}}[kinds]}
				for _, policy := range elasticPolicies(o) {
					s.rows = append(s.rows, &row{
						input: fmt.Sprintf(
							"load %.1f, %s, seed %d",
							load,
							[]string{"one kind", "three kinds"}[kinds],
							seed,
						),
						policy: policy,
						config: func() (sim.Config, error) {
							return sim.Config{Nodes: cluster, Jobs: trace.List(d.list(cluster))}, nil
						},
					})
				}
			}
		}
	}

	s.figures = againstOthers

	return s
}

func threeKinds() []fleet.Node {
	return append(append(nodes("V100", 2, 8), nodes("P100", 4, 4)...), nodes("K80", 4, 8)...)
}

// againstOthers compares goodput with the best of the others on each workload.
func againstOthers(rows []*row, out map[string]float64) {
	best, ours := map[string]float64{}, map[string]float64{}
	var order []string
	for _, r := range rows {
		if r.policy == "goodput" {
			ours[r.input] = r.mean
			order = append(order, r.input)
			continue
		}

		if b, known := best[r.input]; !known || r.mean < b {
			best[r.input] = r.mean
		}
	}

	ratios := make([]float64, len(order))

	worst := 0.0
	for i, in := range order {
		ratios[i] = ours[in] / best[in]
		worst = math.Max(worst, ratios[i])
	}

	out["generated_vs_best_other"], out["generated_vs_best_other_ci"] = estimate(ratios)
	out["generated_vs_best_other_worst"] = worst
}

// estimate returns the mean of values and half of its 95 % confidence interval.
func estimate(values []float64) (mean, half float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}

	if len(values) < 2 {
		return mean, 0
	}

	sum := 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}

	// Student's t for up to ten values; beyond that the normal distribution is near enough.
	t := []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26}

	factor := 1.96
	if len(values)-2 < len(t) {
		factor = t[len(values)-2]
	}

	return mean, factor * math.Sqrt(sum/(n-1)/n)
}
