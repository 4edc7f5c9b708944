package burst

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/queue"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/yardmaster"
)

// yardRun is the production policy on a cluster whose own nodes cost nothing, with as
// many nodes to provision as it wants.
type yardRun struct {
	worth float64 // of an hour of waiting, in GPU-hours of the cloud
	never bool    // nothing can be provisioned
	knows runTimes
	// bare switches off what the product does beside the rule that is measured: ageing, patience, and keeping a node
	// that has no job for a while.
	bare bool
}

// slot is a node of the yard that a task ran on.
type slot struct {
	task, node, gpus int
	start            time.Duration
}

// beyond is longer than any wait: the times after which a job goes first, or is provisioned
// for, by other rules than the one that is measured.
const beyond = 90_000 * time.Hour

// policy names the policy with its parameters. Only the value of waiting differs from the defaults, unless it is bare.
func (y yardRun) policy() string {
	name := "rules:balanced=" + strconv.FormatFloat(y.worth, 'f', -1, 64)
	if y.bare {
		name += fmt.Sprintf(":ageing=%dh:patience=%[1]dh", int(beyond.Hours()))
	}

	return name
}

// run simulates a window. It also returns what ran on the yard's own nodes.
func (y yardRun) run(w *window) (outcome, []slot, error) {
	newPolicy, err := catalogue.All(nil).Make(y.policy())
	if err != nil {
		return outcome{}, nil, err
	}

	policy := newPolicy()

	var memory *queue.Past // fed here, not by the yard; nil if it is the yard's own
	if y.knows == forecast || y.knows == unknown {
		m, err := remembering(policy, w, y.knows)
		if err != nil {
			return outcome{}, nil, err
		}

		policy = m
		if y.knows == forecast {
			memory = m.past
		}
	}

	e := newEnds(w)

	numbers := make(map[string]int, len(w.tasks))
	for i := range w.tasks {
		numbers[w.tasks[i].name] = i
	}

	cfg := sim.Config{
		Policy: policy, Nodes: Local(w.nodes), Jobs: trace.List(y.jobs(w.tasks)), Keep: mostSpans,
		OnEnd: func(o *sim.Outcome) {
			t := &w.tasks[numbers[o.Job.Name]]
			e.add(t, (o.Ended - t.duration).Hours())

			if memory != nil {
				memory.Add(queue.Kin{User: id.User(t.owner), GPUs: t.gpus}, t.duration)
			}
		},
	}

	if y.bare {
		cfg.Yard = func(c *yardmaster.Config) { c.Keep.MaxIdle, c.Keep.ReleaseMargin = idle, 0 }
	}

	if !y.never {
		cfg.Cloud = &sim.Cloud{Offers: Offers()}
	}

	r, err := sim.Run(cfg)
	switch {
	case err != nil:
		return outcome{}, nil, err
	case r.Succeeded != len(w.tasks) || r.Runs != len(w.tasks):
		return outcome{}, nil, fmt.Errorf("%d of %d jobs succeeded, in %d runs", r.Succeeded, len(w.tasks), r.Runs)
	case len(r.Spans) == mostSpans:
		return outcome{}, nil, fmt.Errorf("more than %d slots", mostSpans)
	}

	var seats []slot

	for _, s := range r.Spans {
		node, own := strings.CutPrefix(s.Node, localName)
		if !own {
			continue
		}

		n, err := strconv.Atoi(node)
		if err != nil {
			return outcome{}, nil, err
		}

		seats = append(seats, slot{numbers[s.Job], n, s.GPUs, time.Duration(math.Round(s.From*1e6)) * time.Microsecond})
		e.local(s.GPUs, s.From/3600, s.To/3600)
	}

	e.cloud = r.ByClass[fleet.OnDemand] // at one a GPU-hour

	return e.outcome(), seats, nil
}

const (
	// idle is for how long a provisioned node of a bare yard may be without a job. It is not quite nothing:
	// a node that joins before its job is ordered to start there would be released at once.
	idle      = time.Millisecond
	mostSpans = 1 << 20
	localName = "local-"
)

// Local returns the yard's own nodes, of eight GPUs each.
func Local(count int) []fleet.Node {
	list := make([]fleet.Node, count)
	for i := range list {
		list[i] = fleet.Node{
			ID:        id.Node(fmt.Sprintf("%s%03d", localName, i)),
			Class:     fleet.Local,
			Inventory: fleet.Inventory{CPUs: 1 << 30, Memory: 1 << 50},
		}

		for g := range perNode {
			list[i].Inventory.GPUs = append(list[i].Inventory.GPUs, fleet.GPU{Index: g, Model: "P100", Memory: 16 << 30})
		}
	}

	return list
}

// Offers returns nodes of one to eight GPUs at one an hour for each GPU, there at once and paid by the second.
func Offers() []fleet.Offer {
	var list []fleet.Offer
	for gpus := 1; gpus <= perNode; gpus *= 2 {
		o := fleet.Offer{
			Provider: "cloud", Type: fmt.Sprintf("p100x%d", gpus), GPU: "P100", GPUs: gpus, GPUMemory: 16 << 30,
			CPUs: 1 << 30, Memory: 1 << 50, Hourly: job.Money(gpus) * 1e6,
		}

		o.Name = o.NameOf()
		list = append(list, o)
	}

	return list
}

// Resources is what a job with so many GPUs asks for: the same of each of its nodes, of which it has as few as
// possible.
func Resources(gpus int) job.Resources {
	nodes := (gpus + perNode - 1) / perNode
	for gpus%nodes != 0 {
		nodes++
	}

	each := gpus / nodes

	return job.Resources{Nodes: job.Range{Min: nodes, Max: nodes}, GPUs: job.Range{Min: each, Max: each}}
}

// jobs are the tasks as people would submit them: balanced, anywhere, without
// checkpoints, so that nothing is ever moved.
func (y yardRun) jobs(tasks []task) []*sim.Job {
	list := make([]*sim.Job, len(tasks))

	for i := range tasks {
		t := &tasks[i]
		spec := &job.Spec{Place: job.PlaceAny, Objective: job.ObjectiveBalanced, Resources: Resources(t.gpus)}
		if y.knows == declared {
			spec.Expect = job.Duration(t.duration)
		}

		list[i] = &sim.Job{Name: t.name, At: t.arrives, Owner: id.User(t.owner), Duration: t.duration, Spec: spec}
	}

	return list
}
