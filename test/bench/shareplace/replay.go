package shareplace

import (
	"fmt"
	"io"
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// scarce is how many of the GPUs that whole placement uses at its peak there are in the second experiment.
const scarce = 0.8

// replayed is a trace that was replayed.
type replayed struct {
	*sim.Result
	peak int // most GPUs in use at once
}

// measureReplay replays a trace twice: on so many GPUs that hardly anybody waits, which says how many are needed, and
// on fewer than whole placement needs, which says how long jobs wait and what energy that takes.
func measureReplay(w io.Writer, figures map[string]float64, name string, cluster []fleet.Node, jobs []*sim.Job) error {
	roomy, err := each(func(s side) (replayed, error) { return replay(s, cluster, jobs) })
	if err != nil {
		return err
	}

	fewer := some(cluster, scarce*float64(roomy[whole].peak))

	tight, err := each(func(s side) (replayed, error) { return replay(s, fewer, jobs) })
	if err != nil {
		return err
	}

	if _, err := fmt.Fprintf(w, "%s in its own time: %d jobs. Peak: most GPUs in use at once of %d. Then on %d GPUs.\n\n"+
		"%-20s %8s %12s %14s %14s %12s\n", name, len(jobs), gpusOf(cluster), gpusOf(fewer),
		"", "peak", "mean wait", "99th pct wait", "GPU-hours", "kWh"); err != nil {
		return err
	}

	for i, s := range sides() {
		r := &tight[i]
		if _, err := fmt.Fprintf(w, "%-20s %8d %12s %14s %14.0f %12.0f\n", s.name, roomy[i].peak,
			seconds(r.Waiting.Mean), seconds(r.Waiting.P99), r.GPUSeconds/time.Hour.Seconds(), r.Energy); err != nil {
			return err
		}
	}

	suffix := ""
	if name != "openb" {
		suffix = "_" + name
	}

	figures["peak_saved_pct_"+name] = 100 * (1 - float64(roomy[ours].peak)/float64(roomy[whole].peak))
	figures["peak_saved_bestfit_pct_"+name] = 100 * (1 - float64(roomy[bestFit].peak)/float64(roomy[whole].peak))
	figures["wait_ratio"+suffix] = ratio(tight[ours].Waiting.Mean, tight[whole].Waiting.Mean)
	figures["wait_ratio_bestfit"+suffix] = ratio(tight[bestFit].Waiting.Mean, tight[whole].Waiting.Mean)
	figures["energy_ratio"+suffix] = tight[ours].Energy / tight[whole].Energy

	_, err = fmt.Fprintln(w)

	return err
}

// ratio compares two waits. Less than a second is none.
func ratio(a, b float64) float64 { return max(a, 1) / max(b, 1) }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// replay simulates the jobs on a cluster.
func replay(s side, cluster []fleet.Node, jobs []*sim.Job) (replayed, error) {
	p := &counting{Policy: s.policy()}
	r, err := sim.Run(sim.Config{Policy: p, Nodes: cluster, Jobs: trace.List(s.as(jobs)), Tariff: tariff()})

	return replayed{r, p.peak}, err
}

// counting is a policy that counts how many GPUs are in use after each of its plans.
type counting struct {
	place.Policy
	peak int
}

// Shares reports whether jobs share GPUs under the policy.
func (c *counting) Shares() bool { return place.Shares(c.Policy) }

// Plan is the plan of the policy.
func (c *counting) Plan(v *place.View) place.Plan {
	p := c.Policy.Plan(v)

	used := 0
	for i := range v.Rooms {
		used += bits.OnesCount64(v.Rooms[i].Sound &^ v.Rooms[i].Free)
	}

	taken := map[id.Node]uint64{}
	for i := range p.Starts {
		for _, a := range p.Starts[i].Allocations {
			if r := v.RoomOf(a.Node); r != nil {
				fresh := a.GPUs & r.Free &^ taken[a.Node]
				taken[a.Node] |= fresh
				used += bits.OnesCount64(fresh)
			}
		}
	}

	c.peak = max(c.peak, used)

	return p
}

// tariff says what nodes draw: 200 W and the board power of the GPUs in use; what G2 and G3 are is not published.
// Unused nodes are off, so that it is seen what packing saves.
func tariff() *fleet.Tariff {
	t := &fleet.Tariff{Energy: 0.2}

	for _, gpu := range []struct {
		model string
		watts float64
	}{{"P100", 250}, {"T4", 70}, {"V100M16", 300}, {"V100M32", 300}, {"A10", 150}, {"G2", 150}, {"G3", 300}} {
		price := fleet.NodePrice{GPU: gpu.model, Off: true}
		for used := range 9 {
			price.Watts = append(price.Watts, 200+float64(used)*gpu.watts)
		}

		t.Nodes = append(t.Nodes, price)
	}

	return t
}
