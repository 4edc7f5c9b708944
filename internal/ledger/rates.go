package ledger

import (
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Units in which accrued amounts are computed.
const (
	msPerHour = int64(time.Hour / time.Millisecond) // node cost is by the hour
	perJoule  = 1000                                // milliwatts for a millisecond are microjoules
	perKWh    = 1_000_000 * msPerHour               // a million milliwatts for an hour, in microjoules
)

// Upper bounds of prices. Larger values are mistakes in a price file, and are cut off so that
// products fit into 64 bits: $100,000 per hour, 100 kW, $50 per kWh.
const (
	maxHourly      = 100_000_000_000_000 // nanodollars an hour
	maxWatts       = 100_000_000         // milliwatts
	maxEnergyPrice = 50_000_000_000      // nanodollars
)

// rates is what a node costs, in whole numbers.
type rates struct {
	Hourly      []int64 `json:"hourly,omitempty"`       // nanodollars an hour with 0, 1, 2, … GPUs in use
	Watts       []int64 `json:"watts,omitempty"`        // milliwatts with 0, 1, 2, … GPUs in use, with the building's share
	EnergyPrice int64   `json:"price,omitempty"`        // nanodollars for a kWh
	OffWhenIdle bool    `json:"off,omitempty"`          // costs nothing while it is unused
	OnDemand    bool    `json:"on_demand,omitempty"`    // its users pay for all of it
	BillingUnit int64   `json:"billing_unit,omitempty"` // billed in whole units of so many milliseconds
	MinBilled   int64   `json:"min_billed,omitempty"`   // and at least for so many
}

// ratesOf returns the rates of a node from its lease, or else from the tariff. The price of an
// on-demand node includes energy, so its energy is counted but not charged.
func ratesOf(n *fleet.Node, t *fleet.Tariff, l *fleet.Lease) rates {
	var r rates
	p := t.Of(n)
	if p != nil {
		on := *p
		on.Off = false // the rates are those of a node that is switched on
		for used := range max(len(n.Inventory.GPUs), 1) + 1 {
			r.Hourly = append(r.Hourly, whole(t.HourlyPrice(&on, used), 1e9, maxHourly))
			r.Watts = append(r.Watts, whole(t.Power(&on, used), 1e3, maxWatts))
		}

		r.EnergyPrice = whole(t.Energy, 1e9, maxEnergyPrice)
		r.OffWhenIdle, r.BillingUnit = p.Off, millis(time.Duration(p.BillingIncrement))
	}

	if l != nil {
		o := &l.Offer
		r.Hourly = []int64{min(max(int64(o.Hourly)*1000, 0), maxHourly)}
		r.EnergyPrice, r.OffWhenIdle, r.OnDemand = 0, false, true
		r.BillingUnit, r.MinBilled = millis(time.Duration(o.BillingIncrement)), millis(time.Duration(o.MinBilling))
	}

	return r
}

// priceInputs is everything that rates depend on, so that they are computed only when it changes.
type priceInputs struct {
	tariff      *fleet.Tariff
	class       fleet.Class
	model       string // of the first GPU
	memory      job.Bytes
	gpus        int
	onDemand    bool
	hourly      job.Money
	billingUnit job.Duration
	minBilled   job.Duration
}

func priceInputsOf(n *fleet.Node, t *fleet.Tariff, l *fleet.Lease) priceInputs {
	p := priceInputs{tariff: t, class: n.Class, gpus: len(n.Inventory.GPUs)}
	if p.gpus > 0 {
		p.model, p.memory = n.Inventory.GPUs[0].Model, n.Inventory.GPUs[0].Memory
	}

	if l != nil {
		p.onDemand = true
		p.hourly = l.Offer.Hourly
		p.billingUnit = l.Offer.BillingIncrement
		p.minBilled = l.Offer.MinBilling
	}

	return p
}

func (r *rates) equal(s *rates) bool {
	return slices.Equal(r.Hourly, s.Hourly) && slices.Equal(r.Watts, s.Watts) &&
		r.EnergyPrice == s.EnergyPrice && r.OffWhenIdle == s.OffWhenIdle && r.OnDemand == s.OnDemand &&
		r.BillingUnit == s.BillingUnit && r.MinBilled == s.MinBilled
}

// at returns the entry for a count, the last if there are fewer.
func at(list []int64, n int) int64 {
	if len(list) == 0 {
		return 0
	}

	return list[min(n, len(list)-1)]
}

// carry is the remainder of node cost, energy cost and energy below a whole unit. It is carried
// into the next interval, so that nothing is lost however often an interval is closed.
type carry [3]int64

// sound reports whether the carry is valid: less than a unit of each.
func (c *carry) sound() bool {
	for i, unit := range [...]int64{msPerHour, perKWh, perJoule} {
		if c[i] < 0 || c[i] >= unit {
			return false
		}
	}

	return true
}

// sound reports whether all rates are within the bounds of prices.
func (r *rates) sound() bool {
	within := func(list []int64, limit int64) bool {
		return !slices.ContainsFunc(list, func(x int64) bool { return x < 0 || x > limit })
	}

	return within(r.Hourly, maxHourly) && within(r.Watts, maxWatts) && within([]int64{r.EnergyPrice}, maxEnergyPrice) &&
		r.BillingUnit >= 0 &&
		r.MinBilled >= 0
}

// cost returns node cost, energy cost and energy of ms milliseconds at these rates: the total,
// and the base that the node costs whether it is used or not.
func (r *rates) cost(ms int64, l *allocation, c *carry) (total, base vector) {
	hourly, watts := at(r.Hourly, l.gpusUsed), at(r.Watts, l.gpusUsed)
	idleHourly, idleWatts := min(at(r.Hourly, 0), hourly), min(at(r.Watts, 0), watts)
	if r.OffWhenIdle {
		idleHourly, idleWatts = 0, 0

		if !l.busy {
			hourly, watts = 0, 0
		}
	}

	if r.OnDemand && l.busy {
		idleHourly, idleWatts = 0, 0
	}

	if l.powerOff {
		watts, idleWatts = 0, 0
	}

	total[inNodeCost], c[0] = accrue(hourly, ms, c[0], msPerHour)
	total[inEnergyCost], c[1] = accrue(watts*r.EnergyPrice, ms, c[1], perKWh)
	total[inEnergy], c[2] = accrue(watts, ms, c[2], perJoule)
	base[inNodeCost], _ = accrue(idleHourly, ms, 0, msPerHour)
	base[inEnergyCost], _ = accrue(idleWatts*r.EnergyPrice, ms, 0, perKWh)
	base[inEnergy], _ = accrue(idleWatts, ms, 0, perJoule)
	if hourly == idleHourly { // then all is base, with what was carried over
		base[inNodeCost] = total[inNodeCost]
	}

	if watts == idleWatts {
		base[inEnergyCost], base[inEnergy] = total[inEnergyCost], total[inEnergy]
	}

	for i := range base {
		base[i] = min(base[i], total[i])
	}

	return total, base
}

// unusedPaid returns for how many milliseconds a node is billed beyond the time it was kept.
func (r *rates) unusedPaid(kept int64) int64 {
	paid := max(kept, r.MinBilled)
	if r.BillingUnit > 0 && paid%r.BillingUnit != 0 {
		paid += r.BillingUnit - paid%r.BillingUnit
	}

	return paid - kept
}

// Estimate returns the cost of a lease by now, with the billing unit that was begun:
// what its node's meter posts if the lease ends now, and what its provider should bill.
func Estimate(l *fleet.Lease, now time.Time) Nanos {
	if l.Granted.IsZero() {
		return 0
	}

	ms := millis(wholeMillis(l.Granted.Add(l.PaidTime(now))).Sub(wholeMillis(l.Granted)))
	r := ratesOf(l.Offer.Node(), nil, l)
	cost, _ := accrue(at(r.Hourly, 0), ms+r.unusedPaid(ms), 0, msPerHour)

	return Nanos(cost)
}

// Hourly returns what a holder pays for a node that nobody else holds: what the node's meter
// would post for an hour. It is for forecasts that agree with the ledger.
func Hourly(n *fleet.Node, t *fleet.Tariff, l *fleet.Lease, h Holder) money.PerHour {
	r := ratesOf(n, t, l)

	return r.paidBy(h, &n.Inventory)
}

// paidBy returns what the only holder of a node pays in an hour at these rates.
func (r *rates) paidBy(h Holder, inv *fleet.Inventory) money.PerHour {
	var (
		few   [2]share // of the holder and of the yard
		parts [len(few)]vector
		none  carry
	)

	l := allocation{shares: few[:0]}
	l.compute(gpuSet(inv), max(inv.CPUs, 0), &Status{Rest: Idle}, []Holder{h})

	total, base := r.cost(msPerHour, &l, &none)
	l.divide(total, base, parts[:len(l.shares)])

	var sum Nanos
	for i := range l.shares {
		if l.shares[i].account == Use {
			sum += parts[i].amounts().Cost()
		}
	}

	return money.PerHour(sum.Amount())
}

// wholeMillis returns the time in whole milliseconds.
func wholeMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func millis(d time.Duration) int64 { return max(d.Milliseconds(), 0) }

// milli returns how many thousandths of a GPU a share is, at least one.
func milli(share float64) int64 { return max(whole(share, 1000, 1000), 1) }

func count(set uint64) int64 { return int64(bits.OnesCount64(set)) }

// kind is what is known of the kind of a node's GPUs.
type kind struct {
	model  string
	memory job.Bytes
	mixed  bool
	known  bool // has been computed; a node without GPUs has no kind
}

func kindOf(inv *fleet.Inventory) kind {
	k := kind{known: true}
	for i := range inv.GPUs {
		switch g := &inv.GPUs[i]; {
		case i == 0:
			k.model, k.memory = g.Model, g.Memory
		case g.Model != k.model:
			return kind{mixed: true, known: true}
		}
	}

	return k
}

// name returns one name for a kind, whatever its driver or its cloud calls it. Without
// its memory it cannot be told from similar models and keeps the name it came with.
func (k *kind) name() string {
	if k.mixed {
		return "mixed"
	}
	if spec, ok := gpuspec.Find(k.model, k.memory); ok && k.memory > 0 {
		return spec.Name
	}

	return k.model
}

// gpuSet returns the indices of a node's GPUs.
func gpuSet(inv *fleet.Inventory) uint64 {
	set := uint64(0)
	for i := range inv.GPUs {
		if at := inv.GPUs[i].Index; at >= 0 && at < fleet.MaxGPUs {
			set |= 1 << at
		}
	}

	return set
}
