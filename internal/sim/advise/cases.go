package advise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place/rules"
	"trainyard/internal/provision"
)

// Kind is what sort of change an advice is about.
type Kind string

// The kinds of changes.
const (
	AsItWas          Kind = "as_it_was"
	AddNode          Kind = "add_node"
	DropNode         Kind = "drop_node"
	SwapNode         Kind = "other_gpu"             // of one of the yard's own nodes
	OtherProvisioned Kind = "other_provisioned_gpu" // of provisioned nodes
	UseSpot          Kind = "spot"
	NoSpot           Kind = "no_spot"
	IdleRelease      Kind = "idle_release"
	TimeValue        Kind = "value_of_time"
)

// variant is a yard to replay the period in.
type variant struct {
	kind   Kind
	what   string // for people: Reserve one more node with 8x A100:80GB
	policy string
	nodes  []Node
	tariff *fleet.Tariff
	offers []fleet.Offer
	idle   time.Duration
	// Of a variant with another node: the hourly price assumed for it, the source of that
	// price, and for how long the node would have been there. Of one without a node: those
	// of the removed node.
	price  money.PerHour
	priced string
	lasts  time.Duration
	node   string // what it is: 8x A100:80GB
}

// maxKinds is how many node types of each change are examined: those with the highest cost.
const maxKinds = 3

// byTariff is how a price is known that the tariff says.
const byTariff = "from the tariff"

// asItWas is the yard as it was.
func asItWas(h *History) *variant {
	return &variant{
		kind:   AsItWas,
		what:   "as it was",
		policy: h.Policy,
		nodes:  sortedNodes(h.Nodes),
		tariff: h.Tariff,
		offers: withLossRates(h.Offers, h.From),
		idle:   h.Idle,
	}
}

// withLossRates returns the offers with default loss rates of spot nodes where none is given.
func withLossRates(offers []fleet.Offer, now time.Time) []fleet.Offer {
	return slices.Clone(provision.NewCatalog(offers).Available(now))
}

// with returns a copy to be changed.
func (v *variant) with(kind Kind, format string, args ...any) *variant {
	c := *v
	c.kind, c.what = kind, fmt.Sprintf(format, args...)
	c.nodes, c.offers = slices.Clone(v.nodes), slices.Clone(v.offers)

	return &c
}

// changes lists the variants to compare with the baseline, and those left out with the reason.
func (q *Question) changes(base *variant, b *bill) (list []*variant, skipped []string) {
	for _, more := range []func(*variant, *bill) ([]*variant, []string){q.adds, q.drops, q.swaps, q.others, q.spots,
		q.idles, q.values} {
		v, s := more(base, b)
		list, skipped = append(list, v...), append(skipped, s...)
	}

	return list, skipped
}

// byCost returns the types of provisioned nodes, the most expensive first.
func byCost(b *bill) []*shape {
	keys := slices.Sorted(maps.Keys(b.shapes))
	slices.SortStableFunc(keys, func(x, y string) int { return cmp.Compare(b.shapes[y].cost, b.shapes[x].cost) })

	var list []*shape
	for _, k := range keys {
		list = append(list, b.shapes[k])
	}

	return list
}

// adds are one more reserved node of each kind that was provisioned, or of each kind there is
// if nothing was.
func (q *Question) adds(base *variant, b *bill) (list []*variant, skipped []string) {
	var kinds []fleet.Node
	for _, s := range byCost(b) {
		kinds = append(kinds, *s.offer.Node())
	}

	if len(kinds) == 0 {
		for _, g := range groups(base.nodes, fleet.Local, fleet.Reserved) {
			kinds = append(kinds, g[0].Node)
		}
	}

	for i, n := range kinds {
		name := describe(&n)
		if i >= maxKinds {
			skipped = append(
				skipped,
				fmt.Sprintf("one more node with %s was not examined: %d other node types cost more in total", name, maxKinds),
			)

			continue
		}

		n.ID, n.Class, n.Lease = "one-more", fleet.Reserved, ""

		v := base.with(AddNode, "Reserve one more node with %s", name)
		if !q.addReserved(v, n, base) {
			skipped = append(skipped, fmt.Sprintf("one more node with %s was not examined: its price is unknown", name))
			continue
		}

		list = append(list, v)
	}

	return list, skipped
}

// addReserved adds a reserved node to a variant. It returns false if its price is unknown.
func (q *Question) addReserved(v *variant, n fleet.Node, base *variant) bool {
	for i, g := range n.Inventory.GPUs {
		n.Inventory.GPUs[i] = gpuspec.Describe(g)
	}

	v.node = describe(&n)
	var ok bool
	v.price, v.priced, ok = q.priceOf(&n, base)
	if !ok {
		return false
	}

	added := Node{Node: n}
	if v.priced != byTariff {
		added.price = &fleet.NodePrice{Hourly: []money.PerHour{v.price}}
	}

	v.lasts = q.History.span()
	v.nodes = append(v.nodes, added)

	return true
}

// priceOf returns the hourly price of a reserved node and its source: the price given in
// the question, the tariff, the on-demand price with the discount of another reserved node,
// or the on-demand price itself, which is an upper bound.
func (q *Question) priceOf(n *fleet.Node, base *variant) (price money.PerHour, how string, ok bool) {
	kind := kindOf(n)

	for _, name := range slices.Sorted(maps.Keys(q.Prices)) {
		var k job.GPUKind
		if k.UnmarshalText([]byte(name)) != nil {
			k.Model = name
		}

		if len(n.Inventory.GPUs) > 0 && k.Matches(n.Inventory.GPUs[0].Model, n.Inventory.GPUs[0].Memory) {
			return q.Prices[name], "from --price", true
		}
	}

	same := slices.ContainsFunc(
		base.nodes,
		func(o Node) bool { return o.Class == fleet.Reserved && kindOf(&o.Node) == kind },
	)

	if p := base.tariff.Of(n); p != nil && (same || p.GPU != "" && p.Class == fleet.Reserved) {
		return base.tariff.Rate(p, 0), byTariff, true
	}

	demand, known := q.onDemand(kind, len(n.Inventory.GPUs))
	if !known {
		return 0, "", false
	}

	for _, g := range groups(base.nodes, fleet.Reserved) {
		o := &g[0].Node
		paid := base.tariff.Rate(base.tariff.Of(o), 0)
		if list, listed := q.onDemand(kindOf(o), len(o.Inventory.GPUs)); listed && paid > 0 && list > 0 {
			discount := float64(paid / list)
			return demand.Times(discount), fmt.Sprintf("on-demand price with the discount of the reserved %s", describe(o)), true
		}
	}

	return demand, "on-demand price", true
}

// onDemand returns the least that such a node costs on demand.
func (q *Question) onDemand(kind string, gpus int) (least money.PerHour, found bool) {
	for _, list := range [][]fleet.Offer{q.History.Offers, q.ExtraOffers} {
		for i := range list {
			o := &list[i]
			if price := o.PerHour(); !o.Spot && o.GPUs == gpus && offerKind(o) == kind && (!found || price < least) {
				least, found = price, true
			}
		}
	}

	return least, found
}

// groups divides nodes by class, kind and number of GPUs, those with most nodes first.
func groups(nodes []Node, classes ...fleet.Class) [][]Node {
	index := map[string]int{}
	var list [][]Node

	for i := range nodes {
		n := &nodes[i]
		if !slices.Contains(classes, n.Class) || len(n.Inventory.GPUs) == 0 || !n.Removed.IsZero() {
			continue
		}

		key := string(n.Class) + " " + describe(&n.Node)
		at, ok := index[key]
		if !ok {
			at = len(list)
			index[key] = at
			list = append(list, nil)
		}

		list[at] = append(list[at], *n)
	}

	slices.SortStableFunc(list, func(a, b []Node) int { return len(b) - len(a) })

	return list
}

// drops are one node less of each kind. The one that was used least goes.
func (q *Question) drops(base *variant, b *bill) (list []*variant, skipped []string) {
	for _, g := range groups(base.nodes, fleet.Local, fleet.Reserved) {
		least := slices.MinFunc(g, func(x, y Node) int {
			return cmp.Or(cmp.Compare(b.used[x.ID], b.used[y.ID]), strings.Compare(string(x.ID), string(y.ID)))
		})
		v := base.with(DropNode, "Drop one %s node with %s (%s)", least.Class, describe(&least.Node), least.ID)
		q.removeNode(v, &least, base)
		list = append(list, v)
	}

	return list, nil
}

// removeNode takes a node out of a variant.
func (q *Question) removeNode(v *variant, n *Node, base *variant) {
	from, to := q.History.stay(n)
	v.price, v.lasts = base.tariff.Rate(base.tariff.Of(&n.Node), 0), to-from
	v.priced = byTariff
	if base.tariff.Of(&n.Node) == nil {
		v.priced = noPrice
	}

	v.node = describe(&n.Node)
	v.nodes = slices.DeleteFunc(v.nodes, func(o Node) bool { return o.ID == n.ID })
}

// swaps are a reserved node with another kind of GPU in place of one that there is.
func (q *Question) swaps(base *variant, b *bill) (list []*variant, skipped []string) {
	offered := q.shapes()
	for _, g := range groups(base.nodes, fleet.Reserved) {
		old := slices.MinFunc(g, func(x, y Node) int {
			return cmp.Or(cmp.Compare(b.used[x.ID], b.used[y.ID]), strings.Compare(string(x.ID), string(y.ID)))
		})
		tried := 0

		for _, o := range offered {
			n := *o.Node()
			if kindOf(&n) == kindOf(&old.Node) || o.GPUs < len(old.Inventory.GPUs) || tried == maxKinds {
				continue
			}

			tried++
			n.ID, n.Class = "another", fleet.Reserved
			v := base.with(SwapNode, "Reserve %s in place of %s (%s)", describe(&n), describe(&old.Node), old.ID)
			q.removeNode(v, &old, base)

			if q.addReserved(v, n, base) {
				list = append(list, v)
			}
		}
	}

	return list, nil
}

// shapes lists the kinds of nodes that are offered on demand, the cheapest of each,
// by price.
func (q *Question) shapes() []*fleet.Offer {
	best := map[string]*fleet.Offer{}
	for _, offers := range [][]fleet.Offer{q.History.Offers, q.ExtraOffers} {
		for i := range offers {
			o := &offers[i]
			if old := best[shapeKey(o)]; o.GPUs > 0 && !o.Spot && (old == nil || o.Hourly < old.Hourly) {
				best[shapeKey(o)] = o
			}
		}
	}

	var list []*fleet.Offer
	for _, k := range slices.Sorted(maps.Keys(best)) {
		list = append(list, best[k])
	}

	slices.SortStableFunc(list, func(a, b *fleet.Offer) int { return cmp.Compare(a.Hourly, b.Hourly) })

	return list
}

// others provision anything but the kind of GPU for which most is paid.
func (q *Question) others(base *variant, b *bill) (list []*variant, skipped []string) {
	kinds := slices.Sorted(maps.Keys(b.kinds))
	slices.SortStableFunc(kinds, func(x, y string) int { return cmp.Compare(b.kinds[y], b.kinds[x]) })
	for _, kind := range kinds[:min(len(kinds), maxKinds)] {
		if kind == "" {
			continue
		}

		v := base.with(OtherProvisioned, "Provision GPUs other than %s", kind)
		v.offers = merge(base.offers, withLossRates(q.ExtraOffers, q.History.From))
		v.offers = slices.DeleteFunc(
			v.offers,
			func(o fleet.Offer) bool { return offerKind(&o) == kind || o.Spot && !spotUsed(base) },
		)

		if !slices.ContainsFunc(v.offers, func(o fleet.Offer) bool { return o.GPUs > 0 }) {
			skipped = append(skipped, fmt.Sprintf("GPUs other than %s were not examined: no offer has any", kind))
			continue
		}

		list = append(list, v)
	}

	return list, skipped
}

func spotUsed(v *variant) bool {
	return slices.ContainsFunc(v.offers, func(o fleet.Offer) bool { return o.Spot })
}

// merge returns offers of both lists, each name once.
func merge(a, b []fleet.Offer) []fleet.Offer {
	list := slices.Clone(a)
	for i := range b {
		if !slices.ContainsFunc(a, func(o fleet.Offer) bool { return o.Name == b[i].Name }) {
			list = append(list, b[i])
		}
	}

	return list
}

// spots provision spot nodes where there are such instead of the same on demand, or none.
func (q *Question) spots(base *variant, b *bill) (list []*variant, skipped []string) {
	if b.spotCost > 0 {
		v := base.with(NoSpot, "Provision no spot nodes")
		v.offers = slices.DeleteFunc(v.offers, func(o fleet.Offer) bool { return o.Spot })
		list = append(list, v)
	}

	if b.onDemandCost == b.spotCost {
		return list, nil // nothing is provisioned on demand
	}

	v := base.with(UseSpot, "Provision spot nodes instead of on-demand ones")

	spots := map[string]bool{}
	for _, o := range merge(base.offers, withLossRates(q.ExtraOffers, q.History.From)) {
		if o.Spot {
			spots[shapeKey(&o)] = true

			if !slices.ContainsFunc(v.offers, func(p fleet.Offer) bool { return p.Name == o.Name }) {
				v.offers = append(v.offers, o)
			}
		}
	}

	v.offers = slices.DeleteFunc(v.offers, func(o fleet.Offer) bool { return !o.Spot && spots[shapeKey(&o)] })

	if len(spots) == 0 {
		return list, []string{
			"spot nodes were not examined: there are no spot offers (name a price file that has some with --offers)",
		}
	}

	return append(list, v), nil
}

// idles keep idle provisioned nodes for a shorter or longer time.
func (q *Question) idles(base *variant, b *bill) (list []*variant, skipped []string) {
	if b.onDemandCost == 0 {
		return nil, nil
	}

	for _, d := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour} {
		if d != base.idle {
			v := base.with(IdleRelease, "Release idle nodes after %s instead of %s", job.Duration(d), job.Duration(base.idle))
			v.idle = d
			list = append(list, v)
		}
	}

	return list, nil
}

// values let an hour of everyone's time be worth less or more.
func (q *Question) values(base *variant, b *bill) (list []*variant, skipped []string) {
	name, _, _ := strings.Cut(base.policy, ":")
	if name != "rules" || len(base.offers) == 0 && len(base.nodes) == 0 {
		return nil, nil
	}

	worth := Values(base.policy)
	for _, by := range []float64{0.5, 2} {
		v := base.with(TimeValue, "%s the value of an hour of job time", times(by))
		v.policy = withValues(base.policy, worth, by)
		list = append(list, v)
	}

	return list, nil
}

// times is the verb for changing a value by a factor.
func times(f float64) string {
	if f < 1 {
		return "Halve"
	}

	return "Double"
}

// Values returns what a job's time is worth by its objective, as the text of
// a policy says, and else as the policy rules has it.
func Values(policy string) map[job.Objective]money.PerHour {
	worth := maps.Clone(rules.Defaults().Value)
	parts := strings.Split(policy, ":")
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		if f, err := strconv.ParseFloat(value, 64); err == nil && parts[0] == "rules" {
			if _, known := worth[job.Objective(key)]; known {
				worth[job.Objective(key)] = money.PerHour(f)
			}
		}
	}

	return worth
}

// withValues writes the text of a policy with other values of time.
func withValues(policy string, worth map[job.Objective]money.PerHour, by float64) string {
	parts := slices.DeleteFunc(strings.Split(policy, ":"), func(part string) bool {
		key, _, _ := strings.Cut(part, "=")
		_, is := worth[job.Objective(key)]
		return is
	})

	for _, o := range slices.Sorted(maps.Keys(worth)) {
		parts = append(parts, string(o)+"="+strconv.FormatFloat(float64(worth[o].Times(by)), 'g', -1, 64))
	}

	return strings.Join(parts, ":")
}

// describe names what a node has: 8× A100 80GB.
func describe(n *fleet.Node) string { return nodeText(len(n.Inventory.GPUs), kindOf(n)) }

func nodeText(gpus int, kind string) string {
	if gpus == 0 {
		return "no GPU"
	}

	return humanize.Times(gpus, strings.ReplaceAll(kind, ":", " "))
}
