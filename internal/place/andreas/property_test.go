package andreas_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas"
	"trainyard/internal/place/andreas/published"
	"trainyard/internal/share"
)

// all are the policies of the package, each with every search.
func all() []place.Policy {
	list := []place.Policy{
		published.NewFirstPrinciple(published.FIFO),
		published.NewFirstPrinciple(published.EDF),
		published.NewFirstPrinciple(published.Priority),
	}

	for _, rounds := range []int{-1, 20} {
		o := published.Defaults()
		o.Rounds = rounds
		list = append(list, published.New(o))
	}

	for _, s := range []andreas.Search{andreas.Greedy, andreas.Local, andreas.Random, andreas.Relink} {
		o := andreas.Defaults()
		o.Search, o.Rounds = s, 30
		list = append(list, andreas.New(o))
	}

	o := andreas.Defaults()
	o.Survival = []float64{0.9, 0.5, 0.2}

	return append(list, andreas.New(o))
}

// drawCluster draws a yard with nodes of several kinds, jobs that run and jobs that are queued.
func drawCluster(t *rapid.T) *cluster {
	c := newCluster()
	kinds := []string{"TESLA", "TURING", "K80", "V100"}
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		c.node(fmt.Sprintf("n%d", i), kind, rapid.IntRange(0, 8).Draw(t, "gpus"), func(n *fleet.Node) {
			n.Cordoned = rapid.IntRange(0, 5).Draw(t, "drained") == 0
			n.Class = rapid.SampledFrom(fleet.Classes()).Draw(t, "class")
			n.Inventory.CPUs = job.CPUs(rapid.IntRange(1, 16).Draw(t, "cpus") * 1000)
			if k := len(n.Inventory.GPUs); k > 0 && rapid.IntRange(0, 5).Draw(t, "mixed") == 0 {
				n.Inventory.GPUs[k-1].Model = "K80"
			}

			if k := len(n.Inventory.GPUs); k > 0 && rapid.IntRange(0, 5).Draw(t, "broken") == 0 {
				n.Inventory.GPUs[0].Error = "broken"
			}
		})
	}

	if rapid.Bool().Draw(t, "free") {
		c.tariff = nil
	}

	for range rapid.IntRange(0, 12).Draw(t, "jobs") {
		w := drawJob(t)
		if !rapid.Bool().Draw(t, "runs") || !c.start(w) {
			c.wait(w)
		}
	}

	return c
}

func drawJob(t *rapid.T) want {
	w := want{
		late:  money.PerHour(rapid.IntRange(0, 40).Draw(t, "late")),
		fixed: rapid.IntRange(0, 3).Draw(t, "fixed") == 0,
		user: rapid.SampledFrom([]id.User{"ada", "bob"}).
			Draw(t, "user"),
		place:  rapid.SampledFrom([]job.Place{job.PlaceAny, job.PlaceAny, job.PlaceLocal, job.PlaceCloud}).Draw(t, "place"),
		waited: time.Duration(rapid.IntRange(0, 100).Draw(t, "waited")) * time.Hour,
		lasts:  time.Duration(rapid.IntRange(0, 9).Draw(t, "lasts")) * time.Hour,
	}

	if rapid.Bool().Draw(t, "dated") {
		w.due = time.Duration(rapid.IntRange(-20, 60).Draw(t, "due"))*time.Hour + time.Minute
	}

	least := rapid.IntRange(0, 4).Draw(t, "least")
	w.spec = job.Resources{
		GPUs: job.Range{
			Min: least,
			Max: max(1, least+rapid.IntRange(0, 4).Draw(t, "more")),
		},
		CPUs:  job.CPUs(rapid.IntRange(0, 4).Draw(t, "cpu") * 1000),
		Nodes: job.Range{Min: 1, Max: rapid.IntRange(1, 3).Draw(t, "wide")},
	}

	if rapid.Bool().Draw(t, "known") {
		restart := time.Duration(rapid.IntRange(0, 20).Draw(t, "start")) * time.Minute
		rates := []job.Rate{
			{GPU: rapid.SampledFrom([]string{"", "TESLA", "K80"}).Draw(t, "first"), GPUs: max(1, least), PerSecond: 1},
		}
		for g := range rapid.IntRange(0, 8).Draw(t, "rates") {
			rates = append(
				rates,
				job.Rate{
					GPU:       rapid.SampledFrom([]string{"", "TESLA", "TURING", "K80"}).Draw(t, "on"),
					GPUs:      g + 1,
					PerSecond: rapid.Float64Range(0.1, 5).Draw(t, "rate"),
				},
			)
		}

		if rapid.Bool().Draw(t, "shares") {
			rates = append(
				rates,
				job.Rate{
					GPU:       rates[0].GPU,
					GPUs:      1,
					Share:     rapid.SampledFrom([]float64{0.25, 0.3, 0.5}).Draw(t, "share"),
					PerSecond: 0.5,
				},
			)
		}

		w.speed = job.NewSpeed(float64(rapid.IntRange(1, 50000).Draw(t, "work")), restart, restart/2, rates...)
		w.done = rapid.Float64Range(0, w.speed.Work).Draw(t, "done")
	}

	return w
}

// start lets a job run on the first node with GPUs for it, and reports whether there is one.
func (c *cluster) start(w want) bool {
	it, need := c.item(w)
	m := fleet.NewMatcher(need)

	for _, r := range c.table.Rooms() {
		seat := place.Allocation{Node: r.Node.ID}

		if part := partOf(w.speed, &r); part > 0 {
			shared, free, ok := m.FitsPart(&r, &share.Cut{Share: part})
			if !ok {
				continue
			}

			seat.GPUs, seat.Share = fleet.LowestGPUs(shared|free, 1), part
		} else if fits, ok := m.Fits(&r); ok {
			seat.GPUs = fleet.LowestGPUs(fits, need.GPUs)
		} else {
			continue
		}

		c.line.Add(it, need) // gives it its shape
		c.line.Remove(it)
		c.launch(it, c.now.Add(-time.Minute), []place.Allocation{seat})

		return true
	}

	c.jobs--

	return false
}

// partOf returns the part of a GPU of a room that a job can do with, 0 if it cannot.
func partOf(s *job.Speed, r *fleet.Room) float64 {
	if len(r.Node.Inventory.GPUs) == 0 || r.Kind < 0 {
		return 0
	}

	g := &r.Node.Inventory.GPUs[0]
	for _, p := range s.On(g.Model, g.Memory).Parts() {
		return p.Share
	}

	return 0
}

// startsOf writes the starts of a plan, with what they are compared with.
func startsOf(p place.Plan) string {
	var b strings.Builder
	for _, s := range p.Starts {
		fmt.Fprintln(&b, s.Item.Job, s.Allocations, s.Reason)

		if s.Counterfactual != nil {
			fmt.Fprintf(&b, "%+v\n", *s.Counterfactual)
		}
	}

	return b.String()
}

// TestPlansCanBeCarriedOut draws yards and asks every policy.
func TestPlansCanBeCarriedOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		for _, p := range all() {
			v := c.view()
			plan := p.Plan(v)
			if _, bad := place.Check(v, plan); len(bad) > 0 {
				t.Fatalf("%s: %v", p.Name(), bad)
			}

			if diff := cmp.Diff(c.table.Rooms(), v.Rooms); diff != "" {
				t.Fatalf("%s changed its view: %s", p.Name(), diff)
			}

			if !p.Revises() && len(plan.Stops) > 0 {
				t.Fatalf("%s stops %d jobs and says it would not", p.Name(), len(plan.Stops))
			}

			if diff := cmp.Diff(startsOf(plan), startsOf(p.Plan(c.view()))); diff != "" {
				t.Fatalf("%s decides otherwise when asked again: %s", p.Name(), diff)
			}
		}
	})
}

// TestAPlanIsStable carries a plan out and asks again at the same moment: nothing
// more is to be done.
func TestAPlanIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		p := andreas.New(andreas.Defaults())
		for range 5 {
			plan := p.Plan(c.view())
			if len(plan.Starts) == 0 && len(plan.Stops) == 0 {
				return
			}

			c.carryOut(plan)
		}

		t.Fatalf("after five plans it still wants %+v", p.Plan(c.view()))
	})
}

// carryOut lets a plan happen at once.
func (c *cluster) carryOut(p place.Plan) {
	for _, s := range p.Stops {
		for i, r := range c.running {
			if r == s.Running {
				c.running = append(c.running[:i:i], c.running[i+1:]...)
				break
			}
		}

		for _, seat := range s.Running.Allocations {
			c.table.Release(seat.Node, s.Running.Run)
		}

		need := s.Running.Shape.Need
		c.line.Add(s.Running.Item, need)
	}

	for _, s := range p.Starts {
		c.line.Remove(s.Item)
		c.launch(s.Item, c.now, s.Allocations)
	}
}
