package forecaster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/forecast"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
)

// market is the kinds of node that the yard has or could provision, with prices. There are few
// kinds however many nodes there are.
type market struct {
	made     time.Time
	tariff   *fleet.Tariff
	machines []machine
}

// machine is one kind of node: a node of the yard as an example, or an offer.
type machine struct {
	room  fleet.Room
	offer *fleet.Offer // nil for a node of the yard
	speed float64      // TFLOPS of one GPU
}

// marketFor is how long a survey of all nodes is used.
const marketFor = 30 * time.Second

// market surveys the nodes and offers, at most once per marketFor. The caller holds the lock.
func (f *Forecaster) market(now time.Time) *market {
	if f.marketView != nil && now.Sub(f.marketView.made) < marketFor {
		return f.marketView
	}

	m := &market{made: now, tariff: f.tariff}
	table := fleet.NewTable()
	seen := map[string]bool{}
	offers := map[*fleet.Node]*fleet.Offer{}

	for _, name := range sortedKeys(f.nodes) {
		n := f.nodes[name]
		if n.Lease != "" {
			continue // it is released when its job has ended; its offer is in the list
		}

		if key := kindOf(&n, f.tariff); !seen[key] {
			seen[key] = true
			table.Put(&n, 0)
		}
	}

	for i := range f.offers {
		n := f.offers[i].Node()
		offers[n] = &f.offers[i]
		table.Put(n, 0)
	}

	for _, r := range table.Rooms() {
		one := machine{room: r, offer: offers[r.Node]}
		if gpus := r.Node.Inventory.GPUs; len(gpus) > 0 {
			one.speed, _ = gpus[0].TFLOPS()
		}

		m.machines = append(m.machines, one)
	}

	f.marketView = m

	return m
}

// marketStale reports whether the next survey would be a new one.
func (f *Forecaster) marketStale(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.marketView == nil || now.Sub(f.marketView.made) >= marketFor
}

// setOffers sets the offers of the next survey: those that are open now.
func (f *Forecaster) setOffers(offers []fleet.Offer) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.offers, f.marketView = offers, nil
}

// kindOf identifies nodes on which a job fits alike and costs the same.
func kindOf(n *fleet.Node, t *fleet.Tariff) string {
	var b strings.Builder

	fmt.Fprint(&b, n.Class, n.Open(), n.Inventory.CPUs, " ", n.Inventory.Memory, " ", fmt.Sprintf("%p", t.Of(n)))

	for i := range n.Inventory.GPUs {
		g := &n.Inventory.GPUs[i]
		fmt.Fprintf(&b, "|%d %s %d %g %t", g.Index, g.Model, g.Memory, g.Peak, g.Error == "")
	}

	return b.String()
}

func less(yes bool) int {
	if yes {
		return -1
	}

	return 1
}

// demand is what a job asks for, as prices depend on it.
type demand struct {
	fleet.Need
	ownNodes bool // its quotas let it have no nodes provisioned
}

// matcher returns what tests machines against the demand. A price is that of a kind of node, so
// it does not matter which single nodes the job avoids.
func (d *demand) matcher() *fleet.Matcher {
	need := d.Need
	need.Avoid, need.Pools, need.Only, need.Except, need.Labels = "", "", "", "", ""

	return fleet.NewMatcher(need)
}

// fits reports whether machines of this kind could run the job.
func (k *machine) fits(d *demand, match *fleet.Matcher) bool {
	if k.offer != nil && (d.ownNodes || d.Pinned() || k.offer.MaxNodes > 0 && k.offer.MaxNodes < max(d.Nodes, 1)) {
		return false
	}

	_, ok := match.Fits(&k.room)

	return ok
}

// price returns what a number of GPUs on each of some nodes of this kind costs, as the ledger
// would post it: of a provisioned node all is paid.
func (k *machine) price(t *fleet.Tariff, d *demand, gpus, nodes int) money.PerHour {
	if k.offer != nil {
		return k.offer.PerHour().Times(float64(nodes))
	}

	hold := fleet.Hold{GPUs: fleet.LowestGPUs(k.room.Sound, gpus), CPUs: d.CPUs}

	return ledger.Hourly(k.room.Node, t, nil, ledger.HolderOf(&hold, "")).Times(float64(nodes))
}

// hourly returns the expected price of what a job asks for: on the cheapest nodes that could run
// it, and the offer if they would have to be provisioned. It is not known if none could.
func (m *market) hourly(d *demand) (least money.PerHour, offer *fleet.Offer, known bool) {
	match := d.matcher()
	for i := range m.machines {
		k := &m.machines[i]
		if !k.fits(d, match) {
			continue
		}

		price := k.price(m.tariff, d, d.GPUs, max(d.Nodes, 1))
		if !known || price < least || price == least && k.offer == nil { // at one price nodes that are there
			least, offer, known = price, k.offer, true
		}
	}

	return least, offer, known
}

// maxPlaces bounds the number of alternative GPUs in a forecast.
const maxPlaces = 6

// places lists alternative GPUs for a job: the cheapest of each model, in the numbers that the job
// may have, the fastest first.
func (m *market) places(d *demand) []forecast.Place {
	if d.MaxGPUs == 0 {
		return nil
	}

	match := d.matcher()
	var list []forecast.Place

	for i := range m.machines {
		k := &m.machines[i]
		if k.speed <= 0 || !k.fits(d, match) {
			continue
		}

		for _, p := range k.places(m.tariff, d) {
			at := slices.IndexFunc(list, func(q forecast.Place) bool { return q.GPU == p.GPU && q.GPUs == p.GPUs })

			switch {
			case at < 0:
				list = append(list, p)
			case p.Hourly < list[at].Hourly:
				list[at] = p
			}
		}
	}

	slices.SortStableFunc(list, func(a, b forecast.Place) int {
		x, y := a.TFLOPS*float64(a.GPUs), b.TFLOPS*float64(b.GPUs)

		if x == y {
			return strings.Compare(a.GPU, b.GPU)
		}

		return less(x > y)
	})

	return list[:min(len(list), maxPlaces)]
}

// places lists the numbers of GPUs that a job could have on machines of this kind: the least that
// it asks for, doubled up to the most.
func (k *machine) places(t *fleet.Tariff, d *demand) []forecast.Place {
	most := max(d.MaxNodes, d.Nodes, 1)
	if k.offer != nil && k.offer.MaxNodes > 0 {
		most = min(most, k.offer.MaxNodes)
	}

	size := min(len(k.room.Node.Inventory.GPUs), d.MaxGPUs)
	var list []forecast.Place

	for gpus := max(d.GPUs, 1) * max(d.Nodes, 1); len(list) < maxCounts; gpus *= 2 {
		nodes := max((gpus+size-1)/max(size, 1), d.Nodes, 1)
		if nodes > most || gpus%nodes != 0 {
			break
		}

		list = append(list, forecast.Place{
			GPU: k.room.Node.Inventory.GPUs[0].Model, GPUs: gpus, TFLOPS: k.speed, Offer: k.offer,
			Hourly: k.price(t, d, gpus/nodes, nodes),
		})
	}

	return list
}

// maxCounts bounds the numbers of GPUs of one model among the places.
const maxCounts = 3
