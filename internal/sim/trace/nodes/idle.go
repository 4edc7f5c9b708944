package nodes

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/sim"
)

// IdleOptions say which idle nodes to generate.
type IdleOptions struct {
	Nodes  int           // the first so many of Summit's; 0 for all
	Length time.Duration // of the trace
	Seed   uint64
}

// Idle generates idle nodes like those of Summit: when the batch system leaves
// which nodes idle, and when it takes them back. It is fitted to the published
// statistics of 358 hours (share of idle nodes, lengths of idle times, sizes of
// batches that come and go, events an hour, sizes of the pool); the fit is in the
// tests. The nodes are those of SummitNodes. Like in the log, each of a sample of
// the nodes is as often idle as each of all.
//
// The model is a pool. At each event nodes come, go, or both. How many come is
// drawn from the published sizes, scaled by how large the pool is: it lingers when
// it is nearly empty and grows fast once it has left that state. How many go is
// drawn from the same sizes, scaled down more in loose times, which build up the
// pool, than in tight ones; or it is a large share of the pool, when a large job
// starts. Those go that came one after the other, mostly the last that came. Some
// of the batches that come are reclaimed soon, as a whole: the next job takes the
// nodes that the last one left.
func Idle(o IdleOptions) sim.Changes {
	return idle(o, fitted)
}

// idleModel are the parameters of the generator that were fitted.
type idleModel struct {
	arrivalShare   float64    // share of events at which nodes come
	exchangeShare  float64    // share of events at which nodes come and go
	largeShare     float64    // share of goings for a large job
	largeMin       float64    // of the pool that a large job takes at least
	skew           float64    // towards the whole pool
	departureScale [2]float64 // scale of other goings in loose and in tight times
	regimeHours    [2]float64 // mean hours of these times
	arrivalScale   [3]float64 // scale of comings while the pool is below each level
	gapScale       [3]float64 // scale of the gap to the next event while it is
	gapAbove       float64    // scale of the gap above all levels
	newestShare    float64    // share of other goings that take who came last
	reclaimShare   float64    // share of arrivals that are reclaimed soon, as a whole
	reclaimSeconds float64    // mean seconds until then, beyond the shortest
}

// levels are sizes of the pool below which it behaves in another way.
var levels = [3]int{5, 20, 80}

// fitted is what fits the published statistics, found by a random search over these
// numbers and then by hand.
var fitted = idleModel{
	arrivalShare:   0.64,
	exchangeShare:  0.062,
	largeShare:     0.055,
	largeMin:       0.43,
	skew:           0.094,
	departureScale: [2]float64{0.1, 0.95},
	regimeHours:    [2]float64{1.8, 3.4},
	arrivalScale: [3]float64{
		0.545,
		0.25,
		1.5,
	},
	gapScale:       [3]float64{1.1, 1.9, 1.65},
	gapAbove:       0.87,
	newestShare:    0.735,
	reclaimShare:   0.26,
	reclaimSeconds: 60,
}

// quantiles is a distribution by its published quantiles, with straight lines
// between their logarithms.
type quantiles []struct{ share, value float64 }

// draw draws a number.
func (q quantiles) draw(r *rand.Rand) float64 {
	u := r.Float64()
	for i := 1; i < len(q); i++ {
		if u <= q[i].share {
			a, b := q[i-1], q[i]
			return a.value * math.Pow(b.value/a.value, (u-a.share)/(b.share-a.share))
		}
	}

	return q[len(q)-1].value
}

var (
	// batchSizes are the sizes of batches that come, somewhat above the published
	// ones because they are scaled down while the pool is small. The last but one
	// point bends the tail so that the mean is as published.
	batchSizes = quantiles{
		{0, 0.6},
		{0.25, 1.2},
		{0.5, 4.3},
		{0.75, 17.5},
		{0.9, 53},
		{0.95, 115},
		{0.99, 540},
		{0.9985, 860},
		{1, 2780},
	}
	// eventGaps are the seconds between events, with a tail that is shorter than
	// published because the gaps are stretched while the pool is small.
	eventGaps = quantiles{{0, 8}, {0.25, 12}, {0.5, 30}, {0.75, 61}, {0.9, 111}, {0.95, 162}, {0.99, 310}, {1, 1400}}
)

const (
	sampling = 10 * time.Second // of the log
	shortest = 70 * time.Second // idle time that the log knows
	warmUp   = 48 * time.Hour   // before the beginning, so that it does not begin empty
)

// idling is a generator at work.
type idling struct {
	model     idleModel
	rand      *rand.Rand
	next      time.Duration // event, since the beginning; less than 0 while it warms up
	regular   time.Duration // event that is no taking back
	until     time.Duration
	names     []id.Node     // of the nodes that changes name
	pool      []idleNode    // the oldest first
	busy      []int         // nodes that are not in the pool, in no order
	departing []bool        // of the pool, at this event
	tight     int           // 1 in tight times, 0 in loose ones
	turns     time.Duration // to the other
	reclaims  []comeback    // batches that will be reclaimed, the next first
	pending   []sim.Change
}

type idleNode struct {
	node  int
	since time.Duration
}

// comeback is when a batch is reclaimed, and when it arrived.
type comeback struct{ at, since time.Duration }

func idle(o IdleOptions, m idleModel) *idling {
	g := &idling{model: m, rand: rand.New(rand.NewPCG(o.Seed, 3)), next: -warmUp, until: o.Length}
	g.names = summitNames(o.Nodes)
	g.busy = g.rand.Perm(SummitSize)
	g.regular, g.turns = g.next, g.next
	for g.next <= 0 {
		g.step()
	}

	open := make([]bool, SummitSize)
	for _, n := range g.pool {
		open[n.node] = true
	}

	g.pending = nil
	for n, name := range g.names {
		kind := sim.NodeReclaimed
		if open[n] {
			kind = sim.NodeUncordoned
		}

		g.pending = append(g.pending, sim.Change{Kind: kind, ID: name})
	}

	return g
}

// Next returns the next change.
func (g *idling) Next() (sim.Change, error) {
	for len(g.pending) == 0 {
		if g.next >= g.until {
			return sim.Change{}, io.EOF
		}

		g.step()
	}

	c := g.pending[0]
	g.pending = g.pending[1:]

	return c, nil
}

// step lets the next event happen, and finds the one after it.
func (g *idling) step() {
	if g.next == g.regular {
		g.event()
		g.regular += g.gap()
	}

	for len(g.reclaims) > 0 && g.reclaims[0].at <= g.next {
		since := g.reclaims[0].since
		g.reclaims = g.reclaims[1:]
		g.depart(func(i int) bool { return g.pool[i].since == since })
	}

	g.next = g.regular
	if len(g.reclaims) > 0 {
		g.next = min(g.next, g.reclaims[0].at)
	}
}

// level returns which level the pool is below, len(levels) if none.
func (g *idling) level() int {
	i := 0
	for i < len(levels) && len(g.pool) >= levels[i] {
		i++
	}

	return i
}

// gap draws the time to the next event.
func (g *idling) gap() time.Duration {
	slow := g.model.gapAbove
	if i := g.level(); i < len(levels) {
		slow = g.model.gapScale[i]
	}

	ticks := math.Round(eventGaps.draw(g.rand) * slow / sampling.Seconds())

	return time.Duration(max(ticks, 1)) * sampling
}

// event lets nodes go and come.
func (g *idling) event() {
	for g.next >= g.turns {
		g.tight = 1 - g.tight
		g.turns += time.Duration(g.rand.ExpFloat64() * g.model.regimeHours[g.tight] * float64(time.Hour))
	}

	comes := g.rand.Float64() < g.model.arrivalShare
	goes := !comes || g.rand.Float64() < g.model.exchangeShare/g.model.arrivalShare

	small := 1.0
	if i := g.level(); i < len(levels) {
		small = g.model.arrivalScale[i]
	}

	if goes {
		g.leave()
	}

	if comes {
		g.join(whole(batchSizes.draw(g.rand) * small))

		if g.rand.Float64() < g.model.reclaimShare {
			g.comeBack()
		}
	}
}

// comeBack schedules an early reclaim of the batch that arrived now.
func (g *idling) comeBack() {
	at := g.next + shortest + time.Duration(g.rand.ExpFloat64()*g.model.reclaimSeconds*float64(time.Second)).
		Round(sampling)
	i := len(g.reclaims)
	for i > 0 && g.reclaims[i-1].at > at {
		i--
	}

	g.reclaims = slices.Insert(g.reclaims, i, comeback{at, g.next})
}

// leave lets some of the pool go: who has been idle long enough for the log.
func (g *idling) leave() {
	ripe := 0
	for ripe < len(g.pool) && g.pool[ripe].since <= g.next-shortest {
		ripe++
	}

	if ripe == 0 {
		return
	}

	n := whole(batchSizes.draw(g.rand) * g.model.departureScale[g.tight])
	if g.rand.Float64() < g.model.largeShare {
		rest := (1 - g.model.largeMin) * math.Pow(g.rand.Float64(), g.model.skew)
		n = whole(float64(ripe) * (g.model.largeMin + rest))
	}

	g.departing = append(g.departing[:0], make([]bool, len(g.pool))...)

	at := ripe - 1
	if g.rand.Float64() >= g.model.newestShare {
		at = g.rand.IntN(ripe)
	}

	for range min(n, ripe) {
		g.departing[at] = true
		at = (at + ripe - 1) % ripe
	}

	g.depart(func(i int) bool { return g.departing[i] })
}

// take takes nodes from the pool.
func (g *idling) depart(goes func(i int) bool) {
	kept := g.pool[:0]
	for i, n := range g.pool {
		if !goes(i) {
			kept = append(kept, n)
			continue
		}

		g.busy = append(g.busy, n.node)
		g.emit(n.node, sim.NodeReclaimed)
	}

	g.pool = kept
}

// join lets busy nodes fall idle, any of them.
func (g *idling) join(n int) {
	for range min(n, len(g.busy)) {
		at, last := g.rand.IntN(len(g.busy)), len(g.busy)-1
		node := g.busy[at]
		g.busy[at] = g.busy[last]
		g.busy = g.busy[:last]
		g.pool = append(g.pool, idleNode{node, g.next})
		g.emit(node, sim.NodeUncordoned)
	}
}

func (g *idling) emit(node int, kind sim.ChangeKind) {
	if node < len(g.names) {
		g.pending = append(g.pending, sim.Change{At: g.next, Kind: kind, ID: g.names[node]})
	}
}

// whole makes a number of nodes of a draw.
func whole(x float64) int { return max(int(math.Round(x)), 1) }
