// Package shareplace measures what it saves that jobs share GPUs: on Alibaba's trace of 2023, whose pods ask for parts
// of GPUs, and on Philly's with such parts, beside whole GPUs for all and beside packing by best fit.
package shareplace

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place/rules"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/sim/trace/nodes"
	"trainyard/test/bench/information"
	"trainyard/test/bench/target"
)

// side is one way to place the jobs.
type side struct {
	name    string
	whole   bool // every job gets whole GPUs
	bestFit bool
}

// sides are the policy rules without shares, with those packed by best fit, and as it is.
func sides() [3]side {
	return [3]side{
		{name: "whole GPUs", whole: true}, {name: "shares, best fit", bestFit: true}, {name: "shares, rules"},
	}
}

// The indices of the sides.
const (
	whole = iota
	bestFit
	ours
)

func (s side) policy() *rules.Policy {
	cfg := rules.Defaults()
	cfg.BestFit = s.bestFit

	return rules.New(cfg)
}

// files of the traces, below the folder of the data.
const (
	podsFile   = "alibaba-openb-2023/openb_pod_list_default.csv.gz"
	nodesFile  = "alibaba-openb-2023/openb_node_list_all_node.csv.gz"
	phillyFile = "philly/philly_jobs.csv.gz"
	phillyPart = "6c71a0" // the virtual cluster that other benchmarks use, too
)

// Run measures all of it and prints the tables.
func Run(w io.Writer, o target.Options) (map[string]float64, error) {
	name := filepath.Join(o.Data, podsFile)

	if _, missing := os.Stat(name); missing != nil {
		_, err := fmt.Fprintf(w, "the traces are not here (%s): nothing is measured\n", name)

		return map[string]float64{}, err
	}

	cluster, err := trace.OpenbNodes(filepath.Join(o.Data, nodesFile))
	if err != nil {
		return nil, err
	}

	cluster = slices.DeleteFunc(cluster, func(n fleet.Node) bool { return len(n.Inventory.GPUs) == 0 })

	pods, err := read(name, "openb", trace.Options{CPUs: true, Sort: true})
	if err != nil {
		return nil, err
	}

	philly, err := read(filepath.Join(o.Data, phillyFile), "philly", trace.Options{Cluster: phillyPart, PerNode: 8})
	if err != nil {
		return nil, err
	}

	seeds := 3
	if o.Quick {
		seeds = 1
		cluster = part(cluster, 0.1)
		pods, philly = pods[:min(len(pods), 600)], philly[:min(len(philly), 600)]
	}

	figures := map[string]float64{}
	if err := measureFill(w, figures, cluster, pods, seeds); err != nil {
		return nil, err
	}

	if err := measureNeeded(w, figures, cluster, pods); err != nil {
		return nil, err
	}

	if err := measureReplay(w, figures, "openb", cluster, pods); err != nil {
		return nil, err
	}

	return figures, measureReplay(w, figures, "philly", phillyNodes(len(philly)), phillyShares(philly, pods))
}

// read reads a trace.
func read(name, format string, opts trace.Options) ([]*sim.Job, error) {
	r, err := trace.Open(name, format, opts)
	if err != nil {
		return nil, err
	}

	var list []*sim.Job

	for {
		j, err := r.Next()
		switch {
		case err == nil:
			list = append(list, j)
		case errors.Is(err, io.EOF):
			return list, nil
		default:
			return nil, err
		}
	}
}

// some returns nodes of a cluster with at least so many GPUs together: the one with the most GPUs and CPUs, so that
// every job can run, and then others drawn at random.
func some(list []fleet.Node, gpus float64) []fleet.Node {
	list = slices.Clone(list)
	rng := rand.New(rand.NewPCG(20, 4))
	rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })

	size := func(n *fleet.Node) float64 { return float64(len(n.Inventory.GPUs))*1e9 + float64(n.Inventory.CPUs) }
	largest := 0

	for i := range list {
		if size(&list[i]) > size(&list[largest]) {
			largest = i
		}
	}

	list[0], list[largest] = list[largest], list[0]

	for i := range list {
		gpus -= float64(len(list[i].Inventory.GPUs))
		if gpus <= 0 {
			return list[:i+1]
		}
	}

	return list
}

// part returns a part of a cluster: the same of each model, at least one node.
func part(list []fleet.Node, fraction float64) []fleet.Node {
	models := map[string][]fleet.Node{}
	var names []string

	for _, n := range list {
		m := fmt.Sprint(n.Inventory.GPUs[0].Model, " ", len(n.Inventory.GPUs))
		if models[m] == nil {
			names = append(names, m)
		}

		models[m] = append(models[m], n)
	}

	var some []fleet.Node
	for _, m := range names {
		count := max(int(fraction*float64(len(models[m]))+0.5), 1)
		some = append(some, models[m][:min(count, len(models[m]))]...)
	}

	return some
}

func gpusOf(list []fleet.Node) int {
	sum := 0
	for i := range list {
		sum += len(list[i].Inventory.GPUs)
	}

	return sum
}

// phillyNodes are nodes of eight GPUs, more than the jobs ever use at once.
func phillyNodes(jobs int) []fleet.Node {
	count := min(jobs, 250)
	list := make([]fleet.Node, count)
	for i := range list {
		list[i] = nodes.New(nodes.Name("n", i, count), "P100", 8, 16<<30)
	}

	return list
}

// phillyShares gives each of Philly's jobs with one GPU a part of it: Philly's jobs ask for whole GPUs, so the
// parts are those of pods of Alibaba's with at most one GPU, drawn at random and the same for all sides.
func phillyShares(philly, pods []*sim.Job) []*sim.Job {
	var parts []float64
	for _, p := range pods {
		if r := &p.Spec.Resources; r.GPUs.Min == 1 {
			parts = append(parts, r.GPUShare)
		}
	}

	rng := rand.New(rand.NewPCG(20, 3))
	list := make([]*sim.Job, len(philly))

	for i, j := range philly {
		drawn := parts[rng.IntN(len(parts))]
		if r := &j.Spec.Resources; r.GPUs.Min == 1 && r.Nodes.Min == 1 {
			j = with(j, drawn)
		}

		list[i] = j
	}

	return list
}

// with returns a job that asks for another part of its GPU, 0 for the whole.
func with(j *sim.Job, part float64) *sim.Job {
	other, spec := *j, *j.Spec
	spec.Resources.GPUShare = part
	other.Spec = &spec

	return &other
}

// asked returns how many GPUs a job asks for.
func asked(s *job.Spec) float64 {
	r := &s.Resources
	if r.GPUShare > 0 {
		return r.GPUShare
	}

	return float64(r.GPUs.Min * max(r.Nodes.Min, 1))
}

// as returns the jobs as a side gets them.
func (s side) as(jobs []*sim.Job) []*sim.Job {
	if !s.whole {
		return jobs
	}

	list := make([]*sim.Job, len(jobs))
	for i, j := range jobs {
		list[i] = with(j, 0)
	}

	return list
}

// each does something for every side, side by side.
func each[T any](do func(s side) (T, error)) ([3]T, error) {
	var (
		results [3]T
		faults  [3]error
		all     sync.WaitGroup
	)

	for i, s := range sides() {
		all.Go(func() { results[i], faults[i] = do(s) })
	}

	all.Wait()

	return results, errors.Join(faults[:]...)
}

// Comparisons says what each side knows: all have the same policy, which learns run times from jobs that have ended.
func Comparisons() []information.Comparison {
	knows := information.Knowledge{RunTimes: information.Forecast}
	const objective = "least cost of time and money (rules)"

	return []information.Comparison{{Name: "bench-share-place", Sides: []information.Side{
		{Name: "shares, rules", Role: information.Headline, Knowledge: knows, Objective: objective},
		{Name: "whole GPUs", Role: information.Opponent, Knowledge: knows, Objective: objective},
		{Name: "shares, best fit", Knowledge: knows, Objective: objective},
	}}}
}
