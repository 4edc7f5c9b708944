package fidelity

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/quantile"
	"trainyard/internal/sim"
	"trainyard/internal/spec"
	"trainyard/internal/yardmaster"
)

// simulate runs a stream in the simulator: the same job files, nodes, prices and policy.
func simulate(policy func() place.Policy, s *stream, p *probe) (*outcome, error) {
	var prices fleet.Tariff
	if err := yaml.Unmarshal([]byte(tariff), &prices); err != nil {
		return nil, err
	}

	jobs, err := simulatedJobs(s, p)
	if err != nil {
		return nil, err
	}

	nodes, err := simulatedNodes(s, p.suspends)
	if err != nil {
		return nil, err
	}

	cfg := sim.Config{
		Policy: policy(), Nodes: nodes, Jobs: &queue{jobs}, Tariff: &prices, FairShare: true, Suspending: p.stop(),
	}

	if s.saves {
		cfg.Network = &sim.Network{Inside: p.way(), Across: p.way()}
	}

	if s.cloud {
		cfg.Cloud, err = simulatedCloud(p)
		if err != nil {
			return nil, err
		}

		cfg.Yard = func(y *yardmaster.Config) {
			y.Keep = provision.IdlePolicy{MaxIdle: idle, ReleaseMargin: y.Keep.ReleaseMargin}
			y.Provision.MaxNodes = maxNodes
		}
	}

	r, err := sim.Run(cfg)
	if err != nil {
		return nil, err
	}
	if r.Succeeded != len(s.tasks) {
		return nil, fmt.Errorf("%d of %d jobs of %s succeeded in the simulator", r.Succeeded, len(s.tasks), s.name)
	}

	return &outcome{
		cost: r.Money + r.IdleMoney, energyCost: (r.Energy + r.IdleEnergy) * float64(prices.Energy),
		completion: r.Completion.Mean, p95: r.Completion.P95, lateness: r.Lateness.Seconds(),
		makespan: r.Makespan.Seconds(), nodes: r.Provisioned, stops: r.Stops, suspended: r.Suspensions,
		movement: movement{moves: r.Moves, resizes: r.Rescales},
	}, nil
}

// variations is how many times a stream is simulated to find its spread.
const variations = 16

// spread is how far cost and mean completion of a stream change in the simulator, in percent of their medians, when
// jobs arrive up to 60 ms later, take up to 0.15 s or 1 % longer and machines boot up to 0.2 s later, each by chance:
// about what differs between two runs on real processes. Jobs that save also take up to 0.1 s longer to stop.
type spread struct{ cost, completion float64 }

// spreadOf simulates the variations of a stream.
func spreadOf(policy func() place.Policy, s *stream, p *probe) (spread, error) {
	var cost, completion []float64

	for k := range variations {
		r := rand.New(rand.NewPCG(uint64(k), 5))
		later := *p
		later.boot += job.Seconds(0.2 * r.Float64())

		varied := *s
		varied.tasks = slices.Clone(s.tasks)

		for i := range varied.tasks {
			t := &varied.tasks[i]
			t.at += job.Seconds(0.06 * r.Float64())
			if s.trains {
				t.work *= 1 + 0.01*r.Float64()
			} else {
				t.work += 0.15 * r.Float64()
			}
		}

		if s.saves {
			later.save += job.Seconds(0.1 * r.Float64())
		}

		slices.SortStableFunc(varied.tasks, func(a, b task) int { return cmp.Compare(a.at, b.at) })

		o, err := simulate(policy, &varied, &later)
		if err != nil {
			return spread{}, err
		}

		cost, completion = append(cost, o.cost), append(completion, o.completion)
	}

	return spread{furthest(cost), furthest(completion)}, nil
}

// furthest returns how far the values are from their median at most, in percent of it.
func furthest(values []float64) float64 {
	slices.Sort(values)
	middle := quantile.NearestRank(values, 0.5)

	return 100 * max(values[len(values)-1]-middle, middle-values[0]) / middle
}

// queue yields jobs that are in memory.
type queue struct{ jobs []*sim.Job }

// Next returns the next job.
func (q *queue) Next() (*sim.Job, error) {
	if len(q.jobs) == 0 {
		return nil, io.EOF
	}

	j := q.jobs[0]
	q.jobs = q.jobs[1:]

	return j, nil
}

// simulatedJobs reads the job files as the server does.
func simulatedJobs(s *stream, p *probe) ([]*sim.Job, error) {
	list := make([]*sim.Job, 0, len(s.tasks))

	for i := range s.tasks {
		t := &s.tasks[i]

		f, err := spec.Parse([]byte(t.file(s, p, "python3 train.py", sim.Epoch().Add(t.at))), spec.Options{})
		if err != nil {
			return nil, fmt.Errorf("read the file of %s: %w", t.name, err)
		}

		j := &sim.Job{Name: t.name, At: t.at, Owner: "admin", Spec: &f.Jobs[0].Spec}
		if s.saves {
			j.CheckpointSize = savedSize
		}

		list = append(list, j)
	}

	return list, nil
}

// simulatedNodes makes the team's own nodes.
func simulatedNodes(s *stream, suspends bool) ([]fleet.Node, error) {
	var list []fleet.Node

	for _, m := range s.machines {
		count, kind, _ := strings.Cut(m.gpus, "x")

		var gpus int
		if _, err := fmt.Sscan(count, &gpus); err != nil {
			return nil, fmt.Errorf("read the GPUs of %s: %w", m.name, err)
		}

		var k job.GPUKind
		if err := k.UnmarshalText([]byte(kind)); err != nil {
			return nil, err
		}

		n := fleet.Node{ID: id.Node(m.name), Class: fleet.Local, Inventory: fleet.Inventory{
			CPUs: 8000, Memory: 16 << 30, Suspends: suspends,
			Snapshots: &fleet.Snapshots{Suspend: fleet.Ability{OK: suspends}},
		}}
		for i := range gpus {
			n.Inventory.GPUs = append(n.Inventory.GPUs, gpuspec.Describe(fleet.GPU{
				Index: i, UUID: fmt.Sprintf("%s-%d", m.name, i), Model: k.Model, Memory: k.Memory,
			}))
		}

		list = append(list, n)
	}

	slices.SortFunc(list, func(a, b fleet.Node) int { return strings.Compare(string(a.ID), string(b.ID)) })

	return list, nil
}

// simulatedCloud is what can be provisioned.
func simulatedCloud(p *probe) (*sim.Cloud, error) {
	hourly, err := job.ParseMoney(rent)
	if err != nil {
		return nil, err
	}

	o := fleet.Offer{
		Provider: "lab", Type: "t4", GPU: "T4", GPUs: 1, GPUMemory: 16 << 30, CPUs: 4000, Memory: 8 << 30, Hourly: hourly,
		Boot: job.Duration(p.boot.Round(100 * time.Millisecond)),
	}
	o.Name = o.NameOf()
	o.TFLOPS = gpuspec.Describe(fleet.GPU{Model: o.GPU, Memory: o.GPUMemory}).Peak

	return &sim.Cloud{Offers: []fleet.Offer{o}}, nil
}
