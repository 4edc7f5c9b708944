package ledger_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
)

// history drives meters through random lives of nodes, and keeps a second account of
// what they took by simpler means: time as intervals, money as sums of price times time
// in numbers without end.
type history struct {
	t      *rapid.T
	now    time.Time
	tariff *fleet.Tariff
	slots  []*slot
	books  []ledger.Posting
	nodes  map[id.Node]*ledger.NodeRecord
	leases []*fleet.Lease
	runs   int
}

// slot is a place for a node, and the node that is there now.
type slot struct {
	meter   *ledger.Meter
	node    *fleet.Node
	lease   *fleet.Lease
	status  ledger.Status
	holders []ledger.Holder
	since   time.Time // present with these GPUs
	counted time.Time // rates are counted until then
	// In n$/h·ms, mW·n$/kWh·ms and mW·ms.
	rent, power, energy *big.Int
	read                ledger.Amounts // under earlier names
}

func (h *history) flip(label string) bool { return rapid.Bool().Draw(h.t, label) }

func (h *history) number(label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(h.t, label)
}

// pass lets time pass: nothing, moments, hours, or a day at once.
func (h *history) pass() {
	h.now = h.now.Add(rapid.OneOf(
		rapid.Just(time.Duration(0)),
		rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64Range(0, 5e6).Draw(t, "ns")) }),
		rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, 4*3600*1000).Draw(t, "ms")) * time.Millisecond
		}),
		rapid.Just(25*time.Hour),
	).Draw(h.t, "pass"))
}

// post takes postings into the books as the yardmaster would.
func (h *history) post(postings []ledger.Posting) {
	for i := range postings {
		postings[i].Seq = uint64(len(h.books) + i + 1)
	}

	h.books = append(h.books, postings...)
}

// prices draws a tariff.
func (h *history) prices() *fleet.Tariff {
	list := func(label string) []float64 { return rapid.SliceOfN(rapid.Float64Range(0, 40), 0, 5).Draw(h.t, label) }

	t := &fleet.Tariff{
		Energy: money.PerKWh(rapid.Float64Range(0, 1).Draw(h.t, "energy")),
		PUE:    rapid.SampledFrom([]float64{0, 1, 1.37}).Draw(h.t, "pue"),
	}

	for _, class := range fleet.Classes() {
		var hourly []money.PerHour
		for _, p := range list("hourly") {
			hourly = append(hourly, money.PerHour(p))
		}

		t.Nodes = append(t.Nodes, fleet.NodePrice{Class: class, Hourly: hourly, Off: h.flip("off")})
		watts := list("watts")
		for i := range watts {
			watts[i] *= 100
		}

		t.Nodes[len(t.Nodes)-1].Watts = watts
	}

	return t
}

// open brings a node into a slot, provisioned or not. A name may come again.
func (h *history) open(s *slot) {
	class := rapid.SampledFrom(fleet.Classes()).Draw(h.t, "class")
	*s = slot{since: h.now, counted: h.now, rent: new(big.Int), power: new(big.Int), energy: new(big.Int)}

	if class == fleet.OnDemand && h.flip("provisioned") {
		s.lease = &fleet.Lease{
			ID: id.NewLease(uint64(len(h.leases) + 1)), State: fleet.LeaseBooting, Granted: h.now, Billed: -1,
			Owner: id.User(h.person()), Job: "j1", Project: "vision",
			Offer: fleet.Offer{
				Provider:         "aws",
				Type:             fmt.Sprint("t", h.number("type", 1, 2)),
				GPUs:             h.number("gpus", 0, 4),
				GPU:              "A100",
				CPUs:             8000,
				Hourly:           job.Money(rapid.Int64Range(0, 40e6).Draw(h.t, "price")),
				BillingIncrement: job.Duration(rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(h.t, "bills")),
				MinBilling:       job.Duration(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(h.t, "least")),
			},
		}

		s.lease.Offer.Name = s.lease.Offer.NameOf()
		h.leases = append(h.leases, s.lease)
		s.node = s.lease.Offer.Node()
	} else {
		s.node = newNode("", class, h.number("gpus", 0, 4))
	}

	s.node.ID = h.name()
	s.status = ledger.StatusOf(s.node, 0, s.lease)
	s.meter = ledger.NewMeter(s.node, h.tariff, s.lease, h.now)
}

// name returns a name that no node has now; one of the past may have had it.
func (h *history) name() id.Node {
	for n := h.number("name", 1, 5); ; n++ {
		name := id.Node(fmt.Sprint("n", n))
		if !slices.ContainsFunc(h.slots, func(s *slot) bool { return s.meter != nil && s.node.ID == name }) {
			return name
		}
	}
}

func (h *history) person() string {
	return rapid.SampledFrom([]string{"ann", "bob", "zoe"}).Draw(h.t, "who")
}

// count adds what the node took since it was last counted.
func (h *history) count(s *slot) {
	ms := big.NewInt(h.now.UnixMilli() - s.counted.UnixMilli())
	s.counted = h.now
	rent, watts, price := h.rates(s)
	s.rent.Add(s.rent, new(big.Int).Mul(big.NewInt(rent), ms))
	s.energy.Add(s.energy, new(big.Int).Mul(big.NewInt(watts), ms))
	s.power.Add(s.power, new(big.Int).Mul(new(big.Int).Mul(big.NewInt(watts), big.NewInt(price)), ms))
}

// rates returns what the node takes now: n$/h, mW and n$/kWh.
func (h *history) rates(s *slot) (rent, watts, price int64) {
	round := func(x, unit float64) int64 { return int64(math.Round(x * unit)) }
	inUse := s.status.Foreign &^ s.status.Error
	for _, holder := range s.holders {
		inUse |= holder.GPUs
	}

	used := 0
	for i := range s.node.Inventory.GPUs {
		if inUse>>i&1 == 1 {
			used++
		}
	}

	if len(s.node.Inventory.GPUs) == 0 {
		used = min(len(s.holders), 1)
	}

	line := *h.tariff.Of(s.node)
	off := line.Off && used == 0 && len(s.holders) == 0
	line.Off = false
	watts = round(h.tariff.Power(&line, used), 1000)
	switch {
	case s.lease != nil:
		rent = int64(s.lease.Offer.Hourly) * 1000
	case off:
		watts = 0
	default:
		rent, price = round(float64(h.tariff.HourlyPrice(&line, used)), 1e9), round(float64(h.tariff.Energy), 1e9)
	}

	if s.status.PowerOff {
		watts = 0
	}

	return rent, watts, price
}

// present writes down that the node was there until now with the GPUs it has, posted or
// not: what is not posted yet is posted first by what follows.
func (h *history) present(s *slot, until time.Time) {
	b := h.nodes[s.node.ID]
	if b == nil {
		b = &ledger.NodeRecord{Node: s.node.ID}
		h.nodes[s.node.ID] = b
	}

	b.Present = append(b.Present, ledger.Present{From: s.since, To: until, GPUs: len(s.node.Inventory.GPUs)})
	s.since = until
}

// read adds what a meter has read under a name to the name's own book.
func (h *history) read(s *slot, r ledger.Amounts) {
	b := h.nodes[s.node.ID]
	if b.Read == nil {
		b.Read = &ledger.Amounts{}
	}

	*b.Read, s.read = plus(*b.Read, r), plus(s.read, r)
}

func plus(a, b ledger.Amounts) ledger.Amounts {
	return ledger.Amounts{
		NodeTime: a.NodeTime + b.NodeTime, GPUTime: a.GPUTime + b.GPUTime,
		NodeCost: a.NodeCost + b.NodeCost, EnergyCost: a.EnergyCost + b.EnergyCost, Energy: a.Energy + b.Energy,
	}
}

// hold draws who holds the node from now on: whole GPUs, shares, none.
func (h *history) hold(s *slot) {
	h.count(s)
	kept := s.holders[:0:0]

	var taken uint64
	for _, holder := range s.holders {
		if h.flip("stays") {
			kept = append(kept, holder)
			taken |= holder.GPUs
		}
	}

	for range h.number("new runs", 0, 3) {
		h.runs++
		holder := ledger.Holder{
			Run:   id.NewRun(id.NewJob(uint64(h.runs%5+1)), h.runs),
			Job:   id.NewJob(uint64(h.runs%5 + 1)),
			Owner: id.User(h.person()),
			Project: rapid.SampledFrom([]id.Project{"", "vision", "speech"}).
				Draw(h.t, "project"),
			CPUs: job.CPUs(h.number("cpus", 0, 9000)),
		}

		free := uint64(1)<<len(s.node.Inventory.GPUs) - 1
		free &^= taken

		switch h.number("wants", 0, 2) {
		case 0:
		case 1:
			holder.GPUs = free & uint64(h.number("gpus", 0, 15))
			taken |= holder.GPUs
		case 2: // of one that another may share: together more than all of it, now and then
			holder.GPUs = fleet.LowestGPUs(free, 1)
			if holder.GPUs != 0 {
				holder.Share = int64(h.number("share", 1, 700))
			}
		}

		kept = append(kept, holder)
	}

	s.holders = kept
	h.tell(s)
}

func (h *history) tell(s *slot) { h.post(s.meter.Set(nil, h.now, s.status, s.holders)) }

// stand draws how the node stands from now on.
func (h *history) stand(s *slot) {
	h.count(s)
	s.status = ledger.Status{
		Rest: rapid.SampledFrom([]ledger.Account{ledger.Idle, ledger.Cordoned, ledger.Error, ledger.Releasing}).
			Draw(h.t, "rest"),
		PowerOff: h.number("dark", 0, 5) == 0,
		Error:    uint64(h.number("error", 0, 15)),
		Foreign:  uint64(h.number("foreign", 0, 15)),
	}

	if h.flip("sound") {
		s.status = ledger.Status{Rest: ledger.Idle}
	}

	h.tell(s)
}

// change gives the node other GPUs or another name, or the yard other prices.
func (h *history) change(s *slot) {
	for _, other := range h.slots {
		if other.meter != nil {
			h.count(other)
		}
	}

	switch h.number("what changes", 0, 2) {
	case 0:
		h.present(s, h.now)

		// Runs go first: a GPU that is gone is held by nobody.
		s.holders = nil
		h.tell(s)
		n := *s.node
		n.Inventory.GPUs = newNode("", "", h.number("gpus", 0, 4)).Inventory.GPUs
		s.node = &n
	case 1:
		h.present(s, h.now)
		h.read(s, peeked(h.t, s.meter, h.now))
		n := *s.node
		n.ID = h.name()
		s.node = &n
	case 2:
		h.tariff = h.prices()
	}

	for _, other := range h.slots {
		if other.meter != nil {
			h.post(other.meter.Change(nil, h.now, other.node, h.tariff, other.lease))
		}
	}
}

// peeked returns what a meter would have read by now.
func peeked(t *rapid.T, m *ledger.Meter, now time.Time) ledger.Amounts {
	twin, err := ledger.LoadMeter(m.Save())
	if err != nil {
		t.Fatal(err)
	}

	twin.Set(nil, now, ledger.Status{Rest: ledger.Waste}, nil)

	return twin.Read()
}

// end takes the node away, and holds what it took against price and time.
func (h *history) end(s *slot) {
	h.count(s)

	if s.lease != nil {
		s.lease.Ended = h.now
	}

	h.post(s.meter.Close(nil, h.now))
	h.present(s, h.now)
	h.read(s, s.meter.Read())
	quotient := func(sum *big.Int, per int64) int64 { return new(big.Int).Div(sum, big.NewInt(per)).Int64() }
	want := ledger.Amounts{
		NodeTime: s.read.NodeTime, GPUTime: s.read.GPUTime, // held against the presence of nodes elsewhere
		NodeCost:   ledger.Nanos(quotient(s.rent, 3_600_000)),
		EnergyCost: ledger.Nanos(quotient(s.power, 3_600_000_000_000)),
		Energy:     ledger.Millijoules(quotient(s.energy, 1000)),
	}

	if l := s.lease; l != nil {
		kept := job.Duration(l.Ended.UnixMilli()-l.Granted.UnixMilli()) * job.Duration(time.Millisecond)
		paid := new(big.Int).Mul(big.NewInt(int64(l.Offer.Hourly)*1000), big.NewInt(int64(l.Offer.BilledDuration(kept))/1e6))
		want.NodeCost = ledger.Nanos(quotient(paid, 3_600_000))
	}

	if diff := cmp.Diff(want, s.read); diff != "" {
		h.t.Fatalf("%s took (want -, read +): %s", s.node.ID, diff)
	}

	*s = slot{}
}

// restart makes every meter anew from its stored state.
func (h *history) restart() {
	for _, s := range h.slots {
		if s.meter == nil {
			continue
		}

		text, err := json.Marshal(s.meter.Save())
		if err != nil {
			h.t.Fatal(err)
		}

		var state ledger.State
		if err := json.Unmarshal(text, &state); err != nil {
			h.t.Fatal(err)
		}

		s.meter, err = ledger.LoadMeter(state)
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// step lets something happen.
func (h *history) step() {
	h.pass()
	s := rapid.SampledFrom(h.slots).Draw(h.t, "slot")
	if s.meter == nil {
		h.open(s)
		return
	}

	switch h.number("what", 0, 9) {
	case 0:
		h.end(s)
	case 1:
		h.stand(s)
	case 2:
		h.change(s)
	case 3:
		h.restart()
	case 4, 5:
		post := (*ledger.Meter).Roll
		if h.flip("at once") {
			post = (*ledger.Meter).Post
		}

		for _, s := range h.slots {
			if s.meter != nil {
				h.post(post(s.meter, nil, h.now))
			}
		}
	default:
		h.hold(s)
	}
}

// standing returns what is posted, what would be posted now, and the nodes' own side.
func (h *history) standing() ([]ledger.Posting, []ledger.NodeRecord) {
	books := slices.Clone(h.books)
	nodes := map[id.Node]*ledger.NodeRecord{}
	for name, b := range h.nodes {
		twin := ledger.NodeRecord{Node: b.Node, Present: slices.Clone(b.Present)}
		if b.Read != nil {
			twin.Read = new(ledger.Amounts)
			*twin.Read = *b.Read
		}

		nodes[name] = &twin
	}

	for _, s := range h.slots {
		if s.meter == nil {
			continue
		}

		books = s.meter.Peek(books, h.now)

		b := nodes[s.node.ID]
		if b == nil {
			b = &ledger.NodeRecord{Node: s.node.ID}
			nodes[s.node.ID] = b
		}

		b.Present = append(b.Present, ledger.Present{From: s.since, To: h.now, GPUs: len(s.node.Inventory.GPUs)})

		sum := peeked(h.t, s.meter, h.now)
		if b.Read != nil {
			sum = plus(sum, *b.Read)
		}

		b.Read = &sum
	}

	var list []ledger.NodeRecord
	for _, b := range nodes {
		list = append(list, *b)
	}

	return books, list
}

func each(books []ledger.Posting) iter.Seq[*ledger.Posting] {
	return func(yield func(*ledger.Posting) bool) {
		for i := range books {
			if !yield(&books[i]) {
				return
			}
		}
	}
}

// moment draws a time in or around the history, with and without odd nanoseconds.
func (h *history) moment(label string) time.Time {
	length := h.now.Sub(monday) + 2*time.Hour
	at := monday.Add(-time.Hour).Add(time.Duration(rapid.Int64Range(0, int64(length)).Draw(h.t, label)))
	if h.flip("on the hour") {
		at = at.Truncate(time.Hour)
	}

	return at
}

// TestTheBooksBalance is the double-entry check over random histories: joins, losses,
// runs that overlap, shares, drains, provisions, jumps of the clock, changes of prices, hours
// that roll over, restarts. What was posted to people and to the yard is what the nodes
// took, by time and by price, to the last unit, for every period and grouping.
func TestTheBooksBalance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, now: monday, nodes: map[id.Node]*ledger.NodeRecord{}}
		h.tariff = h.prices()
		for range h.number("slots", 1, 3) {
			h.slots = append(h.slots, &slot{})
		}

		for range h.number("steps", 1, 40) {
			h.step()
		}

		books, nodes := h.standing()
		if err := ledger.Check(each(books), nodes, time.Time{}, time.Time{}); err != nil {
			t.Fatal(err)
		}

		for range 3 {
			h.periods(books, nodes)
		}

		for _, s := range h.slots {
			if s.meter != nil {
				h.end(s)
			}
		}

		h.provisions()
	})
}

// periods holds random periods and groupings against each other.
func (h *history) periods(books []ledger.Posting, nodes []ledger.NodeRecord) {
	t := h.t
	ends := []time.Time{h.moment("from"), h.moment("border"), h.moment("to")}
	slices.SortFunc(ends, time.Time.Compare)
	if err := ledger.Check(each(books), nodes, ends[0], ends[2]); err != nil {
		t.Fatal(err)
	}

	group := rapid.SliceOfNDistinct(rapid.SampledFrom(ledger.Keys()), 0, 3, rapid.ID[ledger.Key]).Draw(t, "group")
	ask := func(from, to time.Time, group []ledger.Key) *ledger.Report {
		r, err := ledger.Sum(each(books), ledger.Query{From: from, To: to, Group: group})
		if err != nil {
			t.Fatal(err)
		}

		var sum ledger.Amounts
		for _, row := range r.Rows {
			sum = plus(sum, row.Amounts)

			if row.NodeTime < 0 || row.GPUTime < 0 || row.NodeCost < 0 || row.EnergyCost < 0 || row.Energy < 0 {
				t.Fatalf("row %v is less than nothing: %+v", row.Keys, row.Amounts)
			}
		}

		if sum != r.Total {
			t.Fatalf("by %v rows are %+v, the total is %+v", group, sum, r.Total)
		}

		return r
	}

	all := ask(ends[0], ends[2], group)
	if plain := ask(ends[0], ends[2], nil); plain.Total != all.Total {
		t.Fatalf("by %v it is %+v, and ungrouped %+v", group, all.Total, plain.Total)
	}

	rows := map[string]ledger.Amounts{}
	for _, r := range []*ledger.Report{ask(ends[0], ends[1], group), ask(ends[1], ends[2], group)} {
		for _, row := range r.Rows {
			key := fmt.Sprintf("%q", row.Keys)
			rows[key] = plus(rows[key], row.Amounts)
		}
	}

	for _, row := range all.Rows {
		key := fmt.Sprintf("%q", row.Keys)
		if rows[key] != row.Amounts {
			t.Fatalf("row %s is %+v in two periods, and %+v in one", key, rows[key], row.Amounts)
		}

		delete(rows, key)
	}

	for key, left := range rows {
		if left != (ledger.Amounts{}) {
			t.Fatalf("row %s is %+v in two periods, and not there in one", key, left)
		}
	}
}

// provisions holds what was posted for each lease against its price and its length.
func (h *history) provisions() {
	r, err := ledger.Sum(each(h.books), ledger.Query{Group: []ledger.Key{ledger.ByLease}})
	if err != nil {
		h.t.Fatal(err)
	}

	posted := map[string]ledger.Nanos{}
	for _, row := range r.Rows {
		posted[row.Keys[0]] = row.Cost()
	}

	for _, l := range h.leases {
		want := ledger.Estimate(l, h.now)
		if got := posted[string(l.ID)]; got != want {
			h.t.Fatalf("%s is posted for lease %s, which cost %s", got, l.ID, want)
		}
	}
}

// TestAnHourCostsWhatItsMeterWouldPost: rates are computed without a meter, for every start of a job.
func TestAnHourCostsWhatItsMeterWouldPost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, now: monday}
		h.tariff = h.prices()
		var s slot
		h.open(&s)

		who := gpus(1, "ann", uint64(h.number("set", 0, 31)))
		who.CPUs = job.CPUs(h.number("cpus", 0, 20_000))
		if h.flip("shares") {
			who.Share = int64(h.number("share", 1, 1000))
		}

		m := ledger.NewMeter(s.node, h.tariff, s.lease, monday)
		m.Set(nil, monday, ledger.Status{Rest: ledger.Idle}, []ledger.Holder{who})

		var want ledger.Nanos
		for _, p := range m.Peek(nil, monday.Add(time.Hour)) {
			if p.Account == ledger.Use {
				want += p.Cost()
			}
		}

		if got := ledger.Hourly(s.node, h.tariff, s.lease, who); got != money.PerHour(want.Amount()) {
			t.Fatalf("an hour costs %v, and its meter posts %v", got, want)
		}

		g := ledger.New(h.tariff, func(*ledger.Posting) {})
		g.Node(monday, s.node, 0, nil, nil)
		rank := job.Rank{GPUs: fleet.Indices(who.GPUs), Share: float64(who.Share) / 1000, CPUs: who.CPUs}

		if got := g.Rate(s.node, &rank, s.lease); got != money.PerHour(want.Amount()) {
			t.Fatalf("a rank costs %v an hour, and its meter posts %v", got, want)
		}
	})
}
