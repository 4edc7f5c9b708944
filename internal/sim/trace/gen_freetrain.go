package trace

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// FreeTrainOptions say which jobs of the FreeTrain workloads to make. A node
// stands for one GPU in them.
//
// The published replay charges a job 17 to 19 s of its former speed when it grows
// and 11 to 13 s when it shrinks or loses a node. Here a job that grows or shrinks
// is stopped and started, so growing costs Save and Start, and losing a node costs
// Lost and Start; without options that is never less than published.
type FreeTrainOptions struct {
	Jobs     int
	Every    time.Duration // between submissions; 0 for 36 s
	First    time.Duration // submission
	Start    time.Duration // before the first sample of each run; 0 for what growing costs as published
	Save     time.Duration // what stopping costs
	MaxLoss  time.Duration // work that is lost with a node; 0 for what shrinking costs as published
	Free     bool          // starting, saving and losing a node cost nothing
	MaxNodes int           // of a job; 0 for 64, the greatest that was measured
	Seed     uint64        // of the costs of the mix
}

// HPO makes identical ShuffleNet jobs, the trials of a search for
// hyperparameters: growing costs 18 s and shrinking 12 s.
func HPO(o FreeTrainOptions) sim.Jobs {
	models := FreeTrainModels()
	start, lost := o.costs(18*time.Second, 12*time.Second)
	spec := elastic(models[5].Speed(FreeTrainSamples, start, o.save()), "hpo", o.most())

	return Generate(o.Jobs, o.arrivals(), func(n int, at time.Duration) *sim.Job {
		return &sim.Job{Name: fmt.Sprintf("trial-%d", n), At: at, Owner: "hpo", Spec: spec, MaxLoss: lost}
	})
}

// ImageNetMix makes jobs of the seven models in turn. What growing and shrinking
// cost is drawn for each job.
func ImageNetMix(o FreeTrainOptions) sim.Jobs {
	models := FreeTrainModels()
	r := NewRand(o.Seed, 2)

	return Generate(o.Jobs, o.arrivals(), func(n int, at time.Duration) *sim.Job {
		m := &models[(n-1)%len(models)]
		start, lost := o.costs(drawn(r, 17, 19), drawn(r, 11, 13))

		return &sim.Job{
			Name: fmt.Sprintf("%s-%d", m.Name, n), At: at, Owner: "mix", MaxLoss: lost,
			Spec: elastic(m.Speed(FreeTrainSamples, start, o.save()), "mix", o.most()),
		}
	})
}

// costs returns what a start costs and what is lost with a node, given what was published.
func (o FreeTrainOptions) costs(start, lost time.Duration) (time.Duration, time.Duration) {
	if o.Free {
		return 0, time.Nanosecond // nothing at all would mean everything since the last checkpoint
	}

	return cmp.Or(o.Start, start), cmp.Or(o.MaxLoss, lost)
}

func (o FreeTrainOptions) save() time.Duration {
	if o.Free {
		return 0
	}

	return o.Save
}

func (o FreeTrainOptions) most() int {
	if o.MaxNodes > 0 {
		return o.MaxNodes
	}

	return 64
}

func (o FreeTrainOptions) arrivals() Arrivals {
	every := o.Every
	if every == 0 {
		every = 36 * time.Second
	}

	next := o.First - every

	return func() time.Duration {
		next += every
		return next
	}
}

func drawn(r *rand.Rand, low, high float64) time.Duration {
	return job.Seconds(uniform(r, low, high)).Round(time.Millisecond)
}

// elastic returns the spec of a job that runs on 1 to so many nodes of one GPU.
func elastic(speed *job.Speed, name string, nodes int) *job.Spec {
	return &job.Spec{
		Name: name, Run: command, Place: job.PlaceAny, Objective: job.ObjectiveTime,
		Resources:  job.Resources{Nodes: job.Range{Min: 1, Max: nodes}, GPUs: exactly(1)},
		Speed:      speed,
		Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
	}
}
