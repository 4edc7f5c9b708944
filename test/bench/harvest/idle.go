package harvest

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place/knapsack"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/sim/trace/nodes"
)

// Where the published replay begins in the log, and for how long it goes on.
const (
	begins = 72743 * time.Second
	week   = 168 * time.Hour
)

// idle is a sample of nodes, and when they are idle.
type idle struct {
	nodes   []fleet.Node
	changes []sim.Change
	length  time.Duration
	pool    []time.Duration // for how long so many of them are idle
}

// newScene reads or generates the idle nodes, and says which.
func newScene(o Options) (*scene, string, error) {
	size := 1024
	samples := 4
	length := week
	jobs := 1200

	if o.Quick {
		size = 512
		samples = 1
		length = time.Hour
		jobs = 45
	}

	s := &scene{jobs: jobs, quick: o.Quick}

	changes, about, err := readIdle(o.Data, size*samples, length)
	if err != nil {
		return nil, "", err
	}

	for k := range samples {
		s.idle = append(s.idle, sampleOf(changes, k*size, size, length))
	}

	return s, fmt.Sprintf(
		"%s; %d samples of %d nodes for %s; the first is that of the published replay",
		about,
		samples,
		size,
		length,
	), nil
}

// readIdle reads Summit's log, or generates one like it.
func readIdle(data string, size int, length time.Duration) ([]sim.Change, string, error) {
	path := filepath.Join(data, "bftrainer-summit", "idle_node_events.csv.gz")
	_, err := os.Stat(path)
	if data == "" || errors.Is(err, fs.ErrNotExist) {
		changes, err := nodes.Collect(nodes.Idle(nodes.IdleOptions{Nodes: size, Length: length, Seed: 1}))
		return changes, "nodes: generated like Summit's idle ones (seed 1)", err
	}

	r, err := nodes.Open(path, "summit-nodes", nodes.Options{Nodes: size, From: begins, Length: length})
	if err != nil {
		return nil, "", err
	}

	changes, err := nodes.Collect(r)

	return changes, fmt.Sprintf("nodes: Summit's log of idle nodes from %s on", begins), errors.Join(err, r.Close())
}

// sampleOf picks out a range of nodes.
func sampleOf(changes []sim.Change, from, size int, length time.Duration) *idle {
	in := &idle{length: length, pool: make([]time.Duration, size+1)}
	mine := map[id.Node]bool{}
	for i := range size {
		n := nodes.New(nodes.SummitNode(from+i), "V100", 1, 16<<30)
		mine[n.ID] = true
		in.nodes = append(in.nodes, n)
	}

	open := map[id.Node]bool{}
	var last time.Duration

	for _, c := range changes {
		if !mine[c.ID] {
			continue
		}

		in.changes = append(in.changes, c)
		in.pool[len(open)] += c.At - last
		last = c.At

		if c.Kind == sim.NodeUncordoned {
			open[c.ID] = true
		} else {
			delete(open, c.ID)
		}
	}

	in.pool[len(open)] += length - last

	return in
}

func (in *idle) replay() sim.Changes { return nodes.List(in.changes) }

// equivalent is how many nodes that stay offer the same node time.
func (in *idle) equivalent() int {
	total := 0.0
	for n, d := range in.pool {
		total += float64(n) * d.Seconds()
	}

	return max(1, int(math.Round(total/in.length.Seconds())))
}

// events is how often the pool changes.
func (in *idle) events() int {
	times := make([]time.Duration, 0, len(in.changes))
	for _, c := range in.changes {
		times = append(times, c.At)
	}

	return len(slices.Compact(times))
}

// best is how many samples so many ShuffleNet jobs do if at every moment they have
// the best sizes and no change costs anything.
func (in *idle) best(jobs int) float64 {
	m := trace.FreeTrainModels()[5]
	curve := m.Speed(trace.FreeTrainSamples, 0, 0).On("", 0)

	choices := make([]knapsack.Choice, 65)
	for n := range choices {
		choices[n] = knapsack.Choice{Count: n, Value: curve.Rate(n, n)}
	}

	all := slices.Repeat([][]knapsack.Choice{choices}, jobs)

	total := 0.0
	for n, d := range in.pool {
		if d <= 0 {
			continue
		}

		if a, ok := knapsack.Allocate(all, n); ok {
			total += a.Value * d.Seconds()
		}
	}

	return total
}
