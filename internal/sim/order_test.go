package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
)

// The agents of a yard join in any order, and a restarted server loads its nodes by name: neither may change what is
// decided. Jobs that end soon are worth the same to some policies wherever they run, so ties are common here.
func TestDecisionsDoNotDependOnTheOrderInWhichNodesJoined(t *testing.T) {
	t.Parallel()

	nodes := []fleet.Node{unlike("a", "A100", 40, 1), unlike("b", "V100", 16, 2), unlike("c", "T4", 16, 2)}
	turned := slices.Clone(nodes)
	slices.Reverse(turned)

	all := catalogue.All(nil)
	for _, e := range all {
		made, err := all.Make(e.Name)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}

		for seed := range uint64(3) {
			one, other := joined(t, made(), nodes, seed), joined(t, made(), turned, seed)
			if !slices.Equal(one, other) {
				t.Errorf("%s, seed %d: nodes that join in another order change what happens\n%s\n\n%s", e.Name, seed,
					strings.Join(one, "\n"), strings.Join(other, "\n"))
			}
		}
	}
}

// unlike is a node with GPUs of a model.
func unlike(name, model string, memory job.Bytes, gpus int) fleet.Node {
	n := box(name, gpus)
	for i := range n.Inventory.GPUs {
		n.Inventory.GPUs[i].Model, n.Inventory.GPUs[i].Memory = model, memory<<30
	}

	return n
}

// joined simulates short jobs on nodes that join in an order, and returns how the jobs went.
func joined(t *testing.T, p place.Policy, nodes []fleet.Node, seed uint64) []string {
	t.Helper()

	var joins []sim.Change
	for i := range nodes {
		joins = append(joins, sim.Change{Kind: sim.NodeJoins, ID: nodes[i].ID, Node: &nodes[i]})
	}

	r := rand.New(rand.NewPCG(seed, 1))
	at := time.Second
	var jobs []*sim.Job

	for i := range 12 {
		at += job.Seconds(r.ExpFloat64() * 4)
		gpus := 1 + r.IntN(2)
		jobs = append(jobs, &sim.Job{Name: fmt.Sprintf("j%d", i), At: at, Owner: id.User("ada"), Spec: &job.Spec{
			Run: "simulated", Place: job.PlaceAny, Resources: job.Resources{GPUs: job.Range{Min: gpus, Max: gpus}},
			Speed: job.NewSpeed(5+10*r.Float64(), 200*time.Millisecond, 0,
				job.Rate{GPU: "A100", GPUs: gpus, PerSecond: 2 * float64(gpus)},
				job.Rate{GPU: "V100", GPUs: gpus, PerSecond: float64(gpus)},
				job.Rate{GPU: "T4", GPUs: gpus, PerSecond: 0.5 * float64(gpus)}),
		}})
	}

	var ended []string
	run(t, sim.Config{
		Policy: p, Changes: &happenings{list: joins}, Jobs: &list{jobs: jobs}, FairShare: true,
		OnEnd: func(o *sim.Outcome) {
			ended = append(ended, fmt.Sprintf("%s %s %s to %s", o.Job.Name, o.State, o.Started, o.Ended))
		},
	})

	return ended
}
