package forecaster

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/forecast"
	"trainyard/internal/job"
)

// market is the kinds of GPU that the yard has or could provision, with prices. There are few kinds however many
// nodes there
// are.
type market struct {
	made  time.Time
	kinds []kind
}

// kind is one kind of GPU at one price.
type kind struct {
	fleet.GPU
	gpus   int     // per node
	hourly float64 // price per hour of a GPU, or of a node without GPUs
	speed  float64 // TFLOPS
}

// marketFor is how long a survey of all nodes is used.
const marketFor = 30 * time.Second

// market surveys the nodes and offers, at most once per marketFor. The caller holds the lock.
func (f *Forecaster) market(now time.Time) *market {
	if f.marketView != nil && now.Sub(f.marketView.made) < marketFor {
		return f.marketView
	}

	type key struct {
		model  string
		memory job.Bytes
		gpus   int
		hourly float64
	}

	all := map[key]kind{}

	for _, name := range sortedKeys(f.nodes) {
		n := f.nodes[name]
		if n.State != fleet.Ready || n.Lease != "" {
			continue // a provisioned node is released when its job has ended
		}

		k := kind{gpus: len(n.Inventory.GPUs), hourly: f.hourly(&n, 1)}
		if k.gpus > 0 {
			k.GPU = n.Inventory.GPUs[0]
			k.speed, _ = k.TFLOPS()
		}

		all[key{k.Model, k.Memory, k.gpus, k.hourly}] = k
	}

	for i := range f.offers {
		o := &f.offers[i]
		k := kind{GPU: fleet.GPU{Model: o.GPU, Memory: o.GPUMemory, Peak: o.TFLOPS}, gpus: o.GPUs, speed: o.Speed(),
			hourly: float64(o.Hourly) / 1e6 / float64(max(o.GPUs, 1))}
		all[key{k.Model, k.Memory, k.gpus, k.hourly}] = k
	}

	m := &market{made: now}
	for _, k := range all {
		m.kinds = append(m.kinds, k)
	}

	slices.SortFunc(m.kinds, func(a, b kind) int {
		switch {
		case a.hourly != b.hourly:
			return less(a.hourly < b.hourly)
		case a.Model != b.Model:
			return less(a.Model < b.Model)
		}

		return a.gpus - b.gpus
	})

	f.marketView = m

	return m
}

func less(yes bool) int {
	if yes {
		return -1
	}

	return 1
}

// hourly returns the price per hour of a number of GPUs of a node, for any user.
func (f *Forecaster) hourly(n *fleet.Node, gpus int) float64 {
	if l, provisioned := f.leases[n.Lease]; provisioned {
		return float64(l.Offer.Hourly) / 1e6
	}
	if f.tariff == nil {
		return 0
	}

	p := f.tariff.Of(n)
	if p == nil {
		return 0
	}

	all := len(n.Inventory.GPUs)
	if all == 0 {
		return f.tariff.Rate(p, 0) * 3600
	}

	return f.tariff.Rate(p, all) * 3600 * float64(gpus) / float64(all)
}

// serves reports whether nodes of this kind meet a need.
func (k *kind) serves(need *job.Resources) bool {
	return k.gpus >= need.GPUs.Min && (len(need.GPU) == 0 || need.GPUs.Min == 0 && need.GPUs.Max == 0 ||
		slices.ContainsFunc(need.GPU, func(want job.GPUKind) bool { return want.Matches(k.Model, k.Memory) }))
}

// hourly returns the expected price per hour of what a job asks for: on the cheapest suitable kind,
// 0 if none is suitable.
func (m *market) hourly(need *job.Resources) float64 {
	least := math.Inf(1)
	for i := range m.kinds {
		if k := &m.kinds[i]; k.serves(need) {
			least = min(least, k.hourly*float64(max(need.GPUs.Min, 1)*max(need.Nodes.Min, 1)))
		}
	}

	if math.IsInf(least, 1) {
		return 0
	}

	return least
}

// maxPlaces bounds the number of alternative GPUs in a forecast.
const maxPlaces = 6

// places lists alternative GPUs for a job: the cheapest of each kind, in the numbers that the job
// may have, the fastest first.
func (m *market) places(need *job.Resources) []forecast.Place {
	if need.GPUs.Min == 0 && need.GPUs.Max == 0 {
		return nil
	}

	var list []forecast.Place

	seen := map[string]bool{}
	for i := range m.kinds { // the cheapest first
		k := &m.kinds[i]
		if k.speed <= 0 || seen[k.Model] || !k.serves(need) {
			continue
		}

		seen[k.Model] = true

		for _, gpus := range counts(need) {
			list = append(list, forecast.Place{GPU: k.Model, GPUs: gpus, TFLOPS: k.speed, Hourly: k.hourly * float64(gpus)})
		}
	}

	slices.SortStableFunc(list, func(a, b forecast.Place) int {
		x, y := a.TFLOPS*float64(a.GPUs), b.TFLOPS*float64(b.GPUs)
		if x == y {
			return 0
		}

		return less(x > y)
	})

	return list[:min(len(list), maxPlaces)]
}

// counts returns the numbers of GPUs to consider: the minimum, doubled up to the maximum.
func counts(need *job.Resources) []int {
	low := max(need.GPUs.Min, 1) * max(need.Nodes.Min, 1)
	high := max(need.GPUs.Max, 1) * max(need.Nodes.Max, 1)

	list := []int{low}
	for n := 2 * low; n <= high && len(list) < 3; n *= 2 {
		list = append(list, n)
	}

	return list
}
