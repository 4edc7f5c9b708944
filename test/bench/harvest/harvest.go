// Package harvest measures how much elastic jobs get done on the idle nodes of a
// supercomputer, against the best fixed assignment of the same jobs to as many nodes of their own.
//
// `make bench-harvest` runs it. The nodes are those of Summit that the batch system
// left idle (the real log where the data is, a generated one otherwise), the jobs
// those of FreeTrain, the policies run in the simulator. It decides nothing and
// asserts nothing.
package harvest

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place"
	policy "trainyard/internal/place/harvest"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/target"
)

// Options are those of every benchmark.
type Options = target.Options

// costs is what changes and losses cost a job.
type costs struct {
	suffix string // of the figures
	words  string
	stay   bool          // checkpoints stay on their nodes
	lost   time.Duration // work that goes with a node that is taken; 0 for all since the last checkpoint
}

// every is how often jobs save a checkpoint where that matters, as in the example of the documentation.
const every = 10 * time.Minute

// The costs that are measured. The first two are those of the product: it keeps checkpoints on the node of the first
// rank, carries none to another node, and its policies do not know that; a program can save elsewhere by itself. With
// the others the remaining nodes of a job still have its state.
var (
	product = costs{stay: true,
		words: "as the product has them: a checkpoint every 10 min on the first node of a run, found there alone"}
	shared = costs{suffix: "_shared",
		words: "as the product has them if the program saves every 10 min to a storage that all nodes share"}
	travel = costs{suffix: "_travel", lost: time.Second,
		words: "with checkpoints that travel (published assumption, 1 s lost)"}
	shrink = costs{suffix: "_travel_lost12", lost: 12 * time.Second,
		words: "with checkpoints that travel and 12 s lost, the published cost of shrinking, on top of the start"}
)

// load is a workload.
type load struct {
	name      string
	objective string
	jobs      func(trace.FreeTrainOptions) sim.Jobs
}

// loads are the workloads. With throughput as the objective fast models go first
// and slow ones pile up; by speed-up all kinds of jobs are served alike.
func loads() []load {
	return []load{
		{"hpo", "throughput", trace.HPO},
		{"mix", "throughput", trace.ImageNetMix},
		{"mix_speedup", "speedup", trace.ImageNetMix},
	}
}

// run is one simulation.
type run struct {
	load     load
	parallel int // jobs at once
	equal    bool
	costs    costs
	sample   int // of nodes
	result   *sim.Result
}

// scene is what all runs have in common.
type scene struct {
	idle  []*idle // samples of nodes
	jobs  int
	quick bool
}

// do simulates.
func (r *run) do(s *scene) (err error) {
	var p place.Policy = equalShare{r.parallel}

	if !r.equal {
		h, err := policy.New(policy.Params{MaxParallel: r.parallel, Objective: r.load.objective})
		if err != nil {
			return err
		}

		p = h
	}

	in := s.idle[r.sample]
	cfg := sim.Config{
		Policy:  p,
		Nodes:   in.nodes,
		Changes: in.replay(),
		Until:   in.length,
		Jobs:    r.load.jobs(trace.FreeTrainOptions{Jobs: s.jobs, MaxLoss: r.costs.lost, Seed: 1}),

		CheckpointsStay: r.costs.stay,
	}

	if r.costs.lost == 0 {
		cfg.Jobs = &saving{jobs: cfg.Jobs, specs: map[*job.Spec]*job.Spec{}}
	}

	r.result, err = sim.Run(cfg)

	return err
}

// saving are jobs that save checkpoints from time to time and lose what they did since.
type saving struct {
	jobs  sim.Jobs
	specs map[*job.Spec]*job.Spec
}

// Next returns the next job.
func (s *saving) Next() (*sim.Job, error) {
	j, err := s.jobs.Next()
	if err != nil {
		return nil, err
	}

	own := s.specs[j.Spec]
	if own == nil {
		spec := *j.Spec
		spec.Checkpoint = &job.Checkpoint{Dir: spec.Checkpoint.Dir, Every: job.Duration(every)}
		own = &spec
		s.specs[j.Spec] = own
	}

	j.Spec, j.MaxLoss = own, 0

	return j, nil
}

// Run measures and prints, and returns the figures by key.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	s, about, err := newScene(o)
	if err != nil {
		return nil, err
	}

	plan := newPlan(s)
	if err := plan.divide(s); err != nil {
		return nil, err
	}

	if err := plan.simulate(s, o.Parallel); err != nil {
		return nil, err
	}

	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := &printer{w: tw}
	p.line("%s", about)

	p.line(
		"jobs: %d of 130e6 samples, 1 to 64 nodes, one every 36 s; hpo: ShuffleNet; mix: the seven ImageNet models in "+
			"turn (seed 1)",
		s.jobs,
	)

	p.line("costs: every start, resize and restart after a loss takes 18 s (mix: 17 to 19 s) at the new size")

	p.line(
		"share: samples done, of those of the best fixed assignment of the same jobs to %d nodes that stay (the mean number "+
			"of idle ones)",
		s.idle[0].equivalent(),
	)

	p.line(
		"best fixed assignment: the nodes in as many parts as jobs at once, by hill climbing; each part takes one job " +
			"after the other; one for all policies and costs",
	)

	p.line("bound: the best sizes at every moment with no costs at all, of the same; no policy can pass it")
	p.line(
		"objective: throughput, for mix_speedup speed-up; look-ahead 2 min; fairness: Jain's index of the jobs' slowdown\n",
	)

	out := plan.report(p, s)

	if p.err != nil {
		return nil, fmt.Errorf("print: %w", p.err)
	}
	if err := tw.Flush(); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}

	return out, nil
}

// printer remembers what went wrong.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// meanCI returns the mean and half of its 95 % confidence interval (Student's t).
func meanCI(list []float64) (mean, half float64) {
	n := float64(len(list))
	for _, v := range list {
		mean += v / n
	}

	sum := 0.0
	for _, v := range list {
		sum += (v - mean) * (v - mean)
	}

	t := []float64{0, 0, 12.71, 4.30, 3.18, 2.78}
	if len(list) < 2 || len(list) >= len(t) {
		return mean, 0
	}

	return mean, t[len(list)] * math.Sqrt(sum/(n-1)/n)
}
