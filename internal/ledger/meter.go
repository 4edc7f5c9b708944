package ledger

import (
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Meter measures what one node uses and who pays for it. It is called at every change and
// returns the postings of the interval that the change ends. Time never goes back: a change
// with an earlier time counts from the last one.
//
// The idle cost of a node is divided by GPUs, and the yard pays for idle ones: a run with one
// GPU of eight pays an eighth, whatever else runs there. What a node costs more when it is
// used is paid by those who use it. All of an on-demand node is paid by the runs that hold it,
// and while none does by the owner for whom it was provisioned.
type Meter struct {
	s          State
	allocation allocation
	inputs     priceInputs // from which the rates were computed
	kind       kind        // from which the name of the GPUs was computed
}

// State is the complete state of a meter. It is stored with the postings, so that a restored
// meter continues without a gap.
type State struct {
	Node    id.Node     `json:"node"`
	Class   fleet.Class `json:"class"`
	GPU     string      `json:"gpu,omitempty"`
	Lease   id.Lease    `json:"lease,omitempty"`
	Offer   string      `json:"offer,omitempty"`
	Owner   id.User     `json:"owner,omitempty"` // for whom it was provisioned
	Project id.Project  `json:"project,omitempty"`
	Job     id.Job      `json:"job,omitempty"`
	GPUs    uint64      `json:"gpus,omitempty"`
	CPUs    job.CPUs    `json:"cpus,omitempty"`
	Opened  time.Time   `json:"opened"`
	Since   time.Time   `json:"since"` // posted until then
	Status  Status      `json:"status"`
	Holders []Holder    `json:"holders,omitempty"`
	Rates   rates       `json:"rates"`
	Carry   carry       `json:"carry"`
	Read    Amounts     `json:"read"` // total under this node name
	Closed  bool        `json:"closed,omitempty"`
}

// NewMeter returns the meter of a node that nothing holds. It counts from now: when a node
// joined, or when a provider gave the machine of the lease. Until that joins, the node is
// the one of its offer. The tariff may be nil, and so may the lease.
func NewMeter(n *fleet.Node, t *fleet.Tariff, l *fleet.Lease, now time.Time) *Meter {
	m := &Meter{s: State{Opened: wholeMillis(now), Since: wholeMillis(now), Status: StatusOf(n, 0, l)}}
	m.describe(n, l)
	m.s.Rates, m.inputs = ratesOf(n, t, l), priceInputsOf(n, t, l)
	m.reallocate()

	return m
}

// LoadMeter returns the meter of a stored state.
func LoadMeter(s State) (*Meter, error) {
	if s.Node == "" || s.Since.Before(s.Opened) || !slices.Contains(Accounts(), s.Status.Rest) || !s.Carry.sound() ||
		!s.Rates.sound() {
		return nil, fault.New(fault.Internal, "meter_state", "the stored state of the meter of node %q is not valid", s.Node).
			WithRemedy("restore the database from a backup, or remove the node and let it join again")
	}

	s.Holders = slices.Clone(s.Holders)
	s.Opened, s.Since = wholeMillis(s.Opened), wholeMillis(s.Since)
	m := &Meter{s: s}
	m.reallocate()

	return m, nil
}

// Save returns the state to be stored.
func (m *Meter) Save() State {
	s := m.s
	s.Holders = slices.Clone(s.Holders)
	return s
}

// Peek returns what a meter with this state would post if the interval ended now.
func (s *State) Peek(now time.Time) []Posting {
	m := Meter{s: *s}
	m.s.Holders = slices.Clone(s.Holders)
	m.reallocate()

	return m.post(nil, wholeMillis(now))
}

// Since returns until when everything is posted.
func (m *Meter) Since() time.Time { return m.s.Since }

// Read returns the reading of the meter since it was opened, or since the node got its current
// name. It is computed from rates and time alone, independent of who held the node: the other
// side of the ledger.
func (m *Meter) Read() Amounts { return m.s.Read }

// Set sets the status and the holders of the node from now on. If they have changed, the
// postings of the interval that ended are appended to dst. Holders are copied.
func (m *Meter) Set(dst []Posting, now time.Time, s Status, holders []Holder) []Posting {
	if s == m.s.Status && equalHolders(m.s.Holders, holders) {
		return dst
	}

	dst = m.post(dst, wholeMillis(now))
	m.s.Status = s
	m.s.Holders = append(m.s.Holders[:0], holders...)
	m.reallocate()

	return dst
}

// Change sets the node, its prices and its lease from now on: a provisioned machine has joined
// and got a name, a GPU is gone, the tariff has changed. If something has changed, the postings
// of the interval that ended are appended to dst. If the node has another name, Read starts
// from zero; its time so far still counts for its lease. A tariff is never changed in place:
// other prices are another tariff.
func (m *Meter) Change(dst []Posting, now time.Time, n *fleet.Node, t *fleet.Tariff, l *fleet.Lease) []Posting {
	next := Meter{s: m.s, kind: m.kind}
	next.describe(n, l)

	if by := priceInputsOf(n, t, l); by != m.inputs {
		next.s.Rates, m.inputs = ratesOf(n, t, l), by
	}

	m.kind = next.kind
	if m.s.samePrices(&next.s) {
		return dst
	}

	dst = m.post(dst, wholeMillis(now))

	if n.ID != m.s.Node {
		m.s.Read = Amounts{}
	}

	m.describe(n, l)
	m.s.GPU, m.s.Rates = next.s.GPU, next.s.Rates
	m.reallocate()

	return dst
}

// Roll posts everything up to the last full hour, so that periods of whole hours begin and end
// between two postings. It is called at least once an hour. After a jump of the clock it posts
// once.
func (m *Meter) Roll(dst []Posting, now time.Time) []Posting {
	return m.post(dst, wholeMillis(now).Truncate(time.Hour))
}

// Peek appends the postings as if the interval ended now, and changes nothing.
func (m *Meter) Peek(dst []Posting, now time.Time) []Posting {
	peek := *m
	return peek.post(dst, wholeMillis(now))
}

// Close ends the meter: the node is gone. What is billed beyond that is posted as waste.
func (m *Meter) Close(dst []Posting, now time.Time) []Posting {
	if m.s.Closed {
		return dst
	}

	dst = m.post(dst, wholeMillis(now))
	m.s.Closed = true
	over := m.s.Rates.unusedPaid(millis(m.s.Since.Sub(m.s.Opened)))
	if over == 0 {
		return dst
	}

	var paid vector
	paid[inNodeCost], m.s.Carry[0] = accrue(at(m.s.Rates.Hourly, 0), over, m.s.Carry[0], msPerHour)
	if paid == (vector{}) {
		return dst
	}

	m.addReading(paid)
	p := m.posting(&share{account: Waste, holder: -1}, m.s.Since)
	p.Amounts = paid.amounts()

	return append(dst, p)
}

// describe records the node and its lease.
func (m *Meter) describe(n *fleet.Node, l *fleet.Lease) {
	s := &m.s
	s.Node, s.Class = n.ID, n.Class
	if k := kindOf(&n.Inventory); k != m.kind {
		s.GPU, m.kind = k.name(), k
	}

	s.GPUs, s.CPUs = gpuSet(&n.Inventory), max(n.Inventory.CPUs, 0)
	s.Lease = ""
	s.Offer = ""
	s.Owner = ""
	s.Project = ""
	s.Job = ""

	if l != nil {
		s.Lease = l.ID
		s.Offer = l.Offer.Name
		s.Owner = l.Owner
		s.Project = l.Project
		s.Job = l.Job
	}
}

// samePrices reports whether two states are of the same node at the same prices.
func (s *State) samePrices(t *State) bool {
	return s.Node == t.Node && s.Class == t.Class && s.GPU == t.GPU && s.GPUs == t.GPUs && s.CPUs == t.CPUs &&
		s.Lease == t.Lease && s.Offer == t.Offer && s.Owner == t.Owner && s.Project == t.Project && s.Job == t.Job &&
		s.Rates.equal(&t.Rates)
}

// reallocate computes who has what from now on.
func (m *Meter) reallocate() {
	slices.SortFunc(m.s.Holders, byRun) // so that the same state gives the same postings
	m.allocation.compute(m.s.GPUs, m.s.CPUs, &m.s.Status, m.s.Holders)
}

// addReading adds to the reading.
func (m *Meter) addReading(v vector) {
	sum, _ := m.s.Read.vector().plus(v)
	m.s.Read = sum.amounts()
}

// post ends the interval and appends its postings.
func (m *Meter) post(dst []Posting, to time.Time) []Posting {
	ms := millis(to.Sub(m.s.Since))
	if ms == 0 || m.s.Closed {
		return dst
	}

	total, base := m.s.Rates.cost(ms, &m.allocation, &m.s.Carry)
	total[inNodeTime], total[inGPUTime] = ms, ms*count(m.s.GPUs)
	m.addReading(total)
	n := len(m.allocation.shares)
	var few [smallEntry]vector
	parts := few[:min(n, smallEntry)]
	if n > smallEntry {
		parts = make([]vector, n)
	}

	m.allocation.divide(total, base, parts)

	for i := range parts {
		if parts[i] == (vector{}) {
			continue // too short to amount to a unit
		}

		p := m.posting(&m.allocation.shares[i], to)
		p.Amounts = parts[i].amounts()
		dst = append(dst, p)
	}

	m.s.Since = to

	return dst
}

// divide divides what the node used among the shares.
func (l *allocation) divide(total, base vector, parts []vector) {
	n := len(l.shares)
	var few [5][smallEntry]int64
	lists := [5][]int64{few[0][:], few[1][:], few[2][:], few[3][:], few[4][:]}
	if n > smallEntry {
		for i := range lists {
			lists[i] = make([]int64, n)
		}
	}

	nodes := lists[0][:n]
	gpus := lists[1][:n]
	all := lists[2][:n]
	users := lists[3][:n]
	shares := lists[4][:n]
	l.weights(nodes, gpus, all, users)

	give := func(what int, amount int64, weights []int64) {
		if amount == 0 {
			return
		}

		split(amount, weights, shares)

		for i := range parts {
			parts[i][what] += shares[i]
		}
	}

	give(inNodeTime, total[inNodeTime], nodes)
	give(inGPUTime, total[inGPUTime], gpus)

	for _, what := range [...]int{inNodeCost, inEnergyCost, inEnergy} {
		give(what, base[what], all)
		give(what, total[what]-base[what], users)
	}
}

// posting returns a posting that ends at a time, still without amounts.
func (m *Meter) posting(of *share, to time.Time) Posting {
	s := &m.s
	p := Posting{
		Node: s.Node, Class: s.Class, GPU: s.GPU, Lease: s.Lease, Offer: s.Offer, From: s.Since, To: to,
		Account: of.account, Owner: s.Owner, Project: s.Project, Job: s.Job, GPUs: of.gpus,
	}

	if of.holder >= 0 {
		h := &s.Holders[of.holder]
		p.Owner = h.Owner
		p.Project = h.Project
		p.Job = h.Job
		p.Run = h.Run
	}

	return p
}
