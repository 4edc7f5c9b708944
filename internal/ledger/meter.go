package ledger

import (
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Meter reads what one node takes and says whose it was. It is told of every change
// and answers with the postings of the stretch that ended by it. Time never goes back:
// a change told with an earlier time counts from the last one.
//
// What a node costs at rest is shared out by seats, and idle seats are the yard's: a
// run with one GPU of eight pays an eighth of it, whoever else is there. What a node
// costs more because it is used is paid by those who use it. A hired node was hired
// for them: while runs hold it they pay for all of it, and otherwise for whom it was hired.
type Meter struct {
	s      State
	load   load
	priced priced // what the rates were read from
	kind   kind   // what the name of the GPUs was read from
}

// State is all that a meter is. It is stored with the postings, so that a meter that
// is made from it goes on as if nothing had happened.
type State struct {
	Node    id.Node     `json:"node"`
	Class   fleet.Class `json:"class"`
	GPU     string      `json:"gpu,omitempty"`
	Lease   id.Lease    `json:"lease,omitempty"`
	Offer   string      `json:"offer,omitempty"`
	Owner   id.User     `json:"owner,omitempty"` // for whom it was hired
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
	Read    Amounts     `json:"read"` // in all, under this name
	Closed  bool        `json:"closed,omitempty"`
}

// NewMeter returns the meter of a node that nothing holds. It counts from now: when a node
// joined, or when a provider gave the machine of the lease. Until that joins, the node is
// the one of its offer. The tariff may be nil, and so may the lease.
func NewMeter(n *fleet.Node, t *fleet.Tariff, l *fleet.Lease, now time.Time) *Meter {
	m := &Meter{s: State{Opened: grid(now), Since: grid(now), Status: StatusOf(n, 0, l)}}
	m.describe(n, l)
	m.s.Rates, m.priced = ratesOf(n, t, l), pricedBy(n, t, l)
	m.settle()
	return m
}

// LoadMeter returns the meter of a stored state.
func LoadMeter(s State) (*Meter, error) {
	if s.Node == "" || s.Since.Before(s.Opened) || !slices.Contains(Accounts(), s.Status.Rest) || !s.Carry.sound() || !s.Rates.sound() {
		return nil, fault.New(fault.Internal, "meter_state", "the stored state of the meter of node %q is none", s.Node).
			WithRemedy("restore the store from a copy, or remove the node and let it join again")
	}
	s.Holders = slices.Clone(s.Holders)
	s.Opened, s.Since = grid(s.Opened), grid(s.Since)
	m := &Meter{s: s}
	m.settle()
	return m, nil
}

// Save returns the state to be stored.
func (m *Meter) Save() State {
	s := m.s
	s.Holders = slices.Clone(s.Holders)
	return s
}

// Since returns until when everything is posted.
func (m *Meter) Since() time.Time { return m.s.Since }

// Read returns what the meter has read since it was opened, or since the node has the
// name it has. It is reckoned from rates and time alone, apart from who held the node:
// the other side of the books.
func (m *Meter) Read() Amounts { return m.s.Read }

// Set tells how the node stands and who holds it from now on. If that is news, the
// postings of the stretch that ended are appended to dst. Holders are copied.
func (m *Meter) Set(dst []Posting, now time.Time, s Status, holders []Holder) []Posting {
	if s == m.s.Status && sameHolders(m.s.Holders, holders) {
		return dst
	}
	dst = m.post(dst, grid(now))
	m.s.Status = s
	m.s.Holders = append(m.s.Holders[:0], holders...)
	m.settle()
	return dst
}

// Change tells that the node itself, its prices or its lease are others from now on:
// the machine that was hired has joined and has a name, a GPU is gone, a tariff was
// changed. If that is news, the postings of the stretch that ended are appended to dst.
// A node that has another name from now on has an account of its own from now on: Read
// starts from nothing. What it was paid for so far still counts for its lease. A tariff
// is not changed in place: other prices are another tariff.
func (m *Meter) Change(dst []Posting, now time.Time, n *fleet.Node, t *fleet.Tariff, l *fleet.Lease) []Posting {
	next := Meter{s: m.s, kind: m.kind}
	next.describe(n, l)
	if by := pricedBy(n, t, l); by != m.priced {
		next.s.Rates, m.priced = ratesOf(n, t, l), by
	}
	m.kind = next.kind
	if m.s.alike(&next.s) {
		return dst
	}
	dst = m.post(dst, grid(now))
	if n.ID != m.s.Node {
		m.s.Read = Amounts{}
	}
	m.describe(n, l)
	m.s.GPU, m.s.Rates = next.s.GPU, next.s.Rates
	m.settle()
	return dst
}

// Roll posts what has run up until the last full hour, so that whatever period is asked
// for begins and ends between two postings. It is called once an hour or more often.
// After a jump of the clock it posts once.
func (m *Meter) Roll(dst []Posting, now time.Time) []Posting {
	return m.post(dst, grid(now).Truncate(time.Hour))
}

// Peek appends the postings that there would be if the stretch ended now, and changes nothing.
func (m *Meter) Peek(dst []Posting, now time.Time) []Posting {
	peek := *m
	return peek.post(dst, grid(now))
}

// Close ends the meter: the node is gone. The rest of the stretch for which its rent
// is paid is posted as waste.
func (m *Meter) Close(dst []Posting, now time.Time) []Posting {
	if m.s.Closed {
		return dst
	}
	dst = m.post(dst, grid(now))
	m.s.Closed = true
	over := m.s.Rates.unused(millis(m.s.Since.Sub(m.s.Opened)))
	if over == 0 {
		return dst
	}
	var rent vector
	rent[inRent], m.s.Carry[0] = accrue(at(m.s.Rates.Rent, 0), over, m.s.Carry[0], msPerHour)
	if rent == (vector{}) {
		return dst
	}
	m.read(rent)
	p := m.posting(&line{account: Waste, holder: -1}, m.s.Since)
	p.Amounts = rent.amounts()
	return append(dst, p)
}

// describe writes down what the node is.
func (m *Meter) describe(n *fleet.Node, l *fleet.Lease) {
	s := &m.s
	s.Node, s.Class = n.ID, n.Class
	if k := kindOf(&n.Inventory); k != m.kind {
		s.GPU, m.kind = k.name(), k
	}
	s.GPUs, s.CPUs = gpuSet(&n.Inventory), max(n.Inventory.CPUs, 0)
	s.Lease, s.Offer, s.Owner, s.Project, s.Job = "", "", "", "", ""
	if l != nil {
		s.Lease, s.Offer, s.Owner, s.Project, s.Job = l.ID, l.Offer.Name, l.Owner, l.Project, l.Job
	}
}

// alike reports whether two states are of the same node at the same prices.
func (s *State) alike(t *State) bool {
	return s.Node == t.Node && s.Class == t.Class && s.GPU == t.GPU && s.GPUs == t.GPUs && s.CPUs == t.CPUs &&
		s.Lease == t.Lease && s.Offer == t.Offer && s.Owner == t.Owner && s.Project == t.Project && s.Job == t.Job &&
		s.Rates.equal(&t.Rates)
}

// settle works out who has what from now on.
func (m *Meter) settle() {
	slices.SortFunc(m.s.Holders, byRun) // so that the same state gives the same postings
	m.load.spread(m.s.GPUs, m.s.CPUs, &m.s.Status, m.s.Holders)
}

// read counts what the node took.
func (m *Meter) read(v vector) {
	sum, _ := m.s.Read.vector().plus(v)
	m.s.Read = sum.amounts()
}

// post ends the stretch and appends its lines.
func (m *Meter) post(dst []Posting, to time.Time) []Posting {
	ms := millis(to.Sub(m.s.Since))
	if ms == 0 || m.s.Closed {
		return dst
	}
	total, base := m.s.Rates.cost(ms, &m.load, &m.s.Carry)
	total[inNode], total[inGPU] = ms, ms*count(m.s.GPUs)
	m.read(total)
	n := len(m.load.lines)
	var few [usual]vector
	parts := few[:min(n, usual)]
	if n > usual {
		parts = make([]vector, n)
	}
	m.load.divide(total, base, parts)
	for i := range parts {
		if parts[i] == (vector{}) {
			continue // too short to be anything
		}
		p := m.posting(&m.load.lines[i], to)
		p.Amounts = parts[i].amounts()
		dst = append(dst, p)
	}
	m.s.Since = to
	return dst
}

// divide divides what the node took among the lines.
func (l *load) divide(total, base vector, parts []vector) {
	n := len(l.lines)
	var few [5][usual]int64
	lists := [5][]int64{few[0][:], few[1][:], few[2][:], few[3][:], few[4][:]}
	if n > usual {
		for i := range lists {
			lists[i] = make([]int64, n)
		}
	}
	nodes, gpus, all, users, shares := lists[0][:n], lists[1][:n], lists[2][:n], lists[3][:n], lists[4][:n]
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
	give(inNode, total[inNode], nodes)
	give(inGPU, total[inGPU], gpus)
	for _, what := range [...]int{inRent, inPower, inEnergy} {
		give(what, base[what], all)
		give(what, total[what]-base[what], users)
	}
}

// posting returns a line of an entry that ends then, still without amounts.
func (m *Meter) posting(of *line, to time.Time) Posting {
	s := &m.s
	p := Posting{
		Node: s.Node, Class: s.Class, GPU: s.GPU, Lease: s.Lease, Offer: s.Offer, From: s.Since, To: to,
		Account: of.account, Owner: s.Owner, Project: s.Project, Job: s.Job, GPUs: of.gpus,
	}
	if of.holder >= 0 {
		h := &s.Holders[of.holder]
		p.Owner, p.Project, p.Job, p.Run = h.Owner, h.Project, h.Job, h.Run
	}
	return p
}
