package place

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// kind is a GPU as nodes and offers have it.
type kind struct {
	model  string
	memory job.Bytes
	hourly float64 // hourly price of one node
}

func kinds() []kind {
	return []kind{
		{"T4", 16 << 30, 0.35}, {"L4", 24 << 30, 0.70}, {"A10G", 24 << 30, 1.00},
		{"V100", 32 << 30, 2.50}, {"A100", 80 << 30, 3.70}, {"H100", 80 << 30, 7.00},
	}
}

// yard is a yard between two rounds.
type yard struct {
	rng    *rand.Rand
	now    time.Time
	table  *fleet.Table
	line   *queue.Queue
	runs   []*place.Running
	leases []*fleet.Lease
	offers []fleet.Offer
	tariff *fleet.Tariff
	usage  map[id.User]float64
	shares map[id.Project]float64
	last   uint64
}

// newYard makes a yard; load is which part of its GPUs is in use.
func newYard(c *scale, load float64) *yard {
	y := &yard{
		rng: rand.New(rand.NewPCG(4, uint64(c.nodes))), now: time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC),
		table: fleet.NewTable(), line: queue.New(), usage: map[id.User]float64{}, shares: map[id.Project]float64{},
	}

	y.tariff = &fleet.Tariff{Energy: 0.25, Nodes: []fleet.NodePrice{
		{
			Class: fleet.Reserved, Watts: []float64{300, 600, 900, 1200, 1500, 1800, 2100, 2400, 2700},
			Hourly: []money.PerHour{8},
		},
		{Watts: []float64{300, 600, 900, 1200, 1500, 1800, 2100, 2400, 2700}},
	}}

	for i := range 100 {
		y.usage[id.User(fmt.Sprintf("u%02d", i))] = y.rng.Float64() * 1e6
	}

	for i := range 20 {
		y.shares[id.Project(fmt.Sprintf("p%02d", i))] = y.rng.Float64() * 1e6
	}

	y.makeOffers(c.offers)

	for i := range c.nodes {
		y.makeNode(i)
	}

	for i := range y.table.SharedRooms() {
		y.occupy(&y.table.SharedRooms()[i], load)
	}

	for range c.jobs {
		y.submit()
	}

	return y
}

// makeNode adds a node: most are local, a tenth is provisioned.
func (y *yard) makeNode(i int) {
	k := kinds()[y.rng.IntN(6)]
	n := &fleet.Node{
		ID:        id.Node(fmt.Sprintf("n%05d", i)),
		Class:     fleet.Local,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{CPUs: 64_000, Memory: 512 << 30},
	}

	count := 4 << y.rng.IntN(2)
	for g := range count {
		n.Inventory.GPUs = append(n.Inventory.GPUs, gpuspec.Describe(fleet.GPU{Index: g, Model: k.model, Memory: k.memory}))
	}

	switch i % 10 {
	case 6, 7, 8:
		n.Class = fleet.Reserved
	case 9:
		n.Class = fleet.OnDemand
		l := y.lease(
			&fleet.Offer{
				Name:      "aws/" + k.model,
				GPU:       k.model,
				GPUs:      count,
				GPUMemory: k.memory,
				Hourly:    job.Money(k.hourly * float64(count) * 1e6),
			},
			"",
		)

		l.State, l.Node = fleet.LeaseActive, n.ID
		n.Lease = l.ID
	}

	y.table.Put(n, 0)
}

// lease adds a lease.
func (y *yard) lease(o *fleet.Offer, j id.Job) *fleet.Lease {
	l := &fleet.Lease{
		ID:        id.Lease(fmt.Sprintf("l%d", len(y.leases)+1)),
		Offer:     *o,
		State:     fleet.LeaseRequested,
		Requested: y.now,
		Job:       j,
	}

	y.leases = append(y.leases, l)

	return l
}

// makeOffers makes what can be provisioned: every kind in several sizes, regions, and as spot.
func (y *yard) makeOffers(n int) {
	for i := 0; len(y.offers) < n; i++ {
		k := kinds()[i%6]
		count := 1 << (i / 6 % 4)
		o := fleet.Offer{
			Provider:  "aws",
			Type:      fmt.Sprintf("%s.%d", k.model, count),
			Region:    fmt.Sprintf("r%d", i/48),
			Spot:      i/24%2 == 1,
			GPU:       k.model,
			GPUs:      count,
			GPUMemory: k.memory,
			TFLOPS: gpuspec.Describe(
				fleet.GPU{Model: k.model, Memory: k.memory},
			).Peak,
			CPUs:             job.CPUs(count) * 8000,
			Memory:           job.Bytes(count) * 64 << 30,
			Boot:             job.Duration(time.Duration(90+y.rng.IntN(200)) * time.Second),
			BillingIncrement: job.Duration(time.Second),
			MinBilling:       job.Duration(time.Minute),
		}

		price := k.hourly * float64(count) * (0.9 + y.rng.Float64()/5)
		if o.Spot {
			price, o.LossRate = price*0.35, 0.05
		}

		o.Hourly = job.Money(price * 1e6)
		o.Name = o.NameOf()
		y.offers = append(y.offers, o)
	}

	slices.SortStableFunc(y.offers, func(a, b fleet.Offer) int { return cmp.Compare(a.Hourly, b.Hourly) })
}

// occupy lets jobs run in a room until so much of it is in use.
func (y *yard) occupy(r *fleet.Room, load float64) {
	for r.Free != 0 && y.rng.Float64() < load {
		want := min(1<<y.rng.IntN(4), bits.OnesCount64(r.Free))
		it, need := y.draw()
		need.GPUs = want
		need.MaxGPUs = want
		need.Nodes = 1
		need.MaxNodes = 1
		need.Kinds = ""
		need.Place = job.PlaceAny
		need.CPUs = 1000
		it.Shape = &queue.Shape{Need: need}
		began := y.now.Add(-time.Duration(y.rng.Float64() * float64(it.Lasts)))
		y.hold(it, []place.Allocation{{Node: r.Node.ID, GPUs: fleet.LowestGPUs(r.Free, want)}}, began)
	}
}

// draw returns a job.
func (y *yard) draw() (*queue.Item, fleet.Need) {
	y.last++
	s := &job.Spec{
		Place: job.PlaceAny,
		Objective: []job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveBalanced,
			job.ObjectiveCost}[y.rng.IntN(4)],
	}

	res := &s.Resources
	gpus := []int{1, 1, 1, 1, 2, 2, 4, 4, 8, 8}[y.rng.IntN(10)]

	res.Nodes = job.Range{Min: 1, Max: 1}
	switch {
	case y.rng.IntN(50) == 0:
		gpus = 0
	case y.rng.IntN(30) == 0:
		gpus, res.Nodes = 4, job.Range{Min: 2, Max: 2}
	}

	res.GPUs = job.Range{Min: gpus, Max: gpus}
	if gpus == 1 && y.rng.IntN(5) == 0 {
		res.GPUs.Max = 4
	}

	if gpus > 0 && y.rng.IntN(3) == 0 {
		res.GPU = []job.GPUKind{{Model: kinds()[y.rng.IntN(6)].model}}
	}

	if y.rng.IntN(5) == 0 {
		s.Place = []job.Place{job.PlaceLocal, job.PlaceCloud}[y.rng.IntN(2)]
	}

	res.CPUs = job.CPUs(max(gpus, 1)) * 2000
	lasts := time.Duration(math.Exp(y.rng.NormFloat64()*1.8+8)) * time.Second
	lasts = min(max(lasts, time.Minute), 72*time.Hour)
	s.Expect = job.Duration(lasts)
	it := &queue.Item{
		Job:     id.NewJob(y.last),
		Number:  y.last,
		User:    id.User(fmt.Sprintf("u%02d", y.rng.IntN(100))),
		Project: id.Project(fmt.Sprintf("p%02d", y.rng.IntN(20))),
		Lasts:   lasts,
		Spec:    s,
		Since:   y.now,
		Cost:    lasts.Seconds() * float64(gpus),
		Outlook: &job.Outlook{Submitted: y.now, Resumes: y.rng.IntN(2) == 0, Every: 10 * time.Minute},
	}

	return it, fleet.NeedOf(s, job.Floor{}, nil)
}

func (y *yard) submit() {
	it, need := y.draw()
	y.line.Add(it, need)
}

// hold lets a job run.
func (y *yard) hold(it *queue.Item, seats []place.Allocation, began time.Time) {
	r := &place.Running{Item: it, Run: id.NewRun(it.Job, 1), Allocations: seats, Ordered: began, Began: began}
	for _, s := range seats {
		n := bits.OnesCount64(s.GPUs)
		r.GPUs += n
		need := &it.Shape.Need
		y.table.Book(
			s.Node,
			fleet.Hold{
				Run:    r.Run,
				Job:    it.Job,
				Owner:  it.User,
				GPUs:   s.GPUs,
				CPUs:   need.CPUs,
				Memory: need.Memory,
				Since:  began,
				Ends:   began.Add(it.Lasts),
			},
		)
	}

	at, _ := slices.BinarySearchFunc(
		y.runs,
		it.Number,
		func(r *place.Running, n uint64) int { return cmp.Compare(r.Number, n) },
	)

	y.runs = slices.Insert(y.runs, at, r)
}

// leave ends a run.
func (y *yard) leave(r *place.Running) {
	for _, s := range r.Allocations {
		y.table.Release(s.Node, r.Run)
	}

	y.runs = slices.DeleteFunc(y.runs, func(o *place.Running) bool { return o == r })
}

// step lets a second pass in which a job ends and one comes.
func (y *yard) step() {
	y.now = y.now.Add(time.Second)
	y.leave(y.runs[y.rng.IntN(len(y.runs))])
	y.submit()
}

// do carries a plan out. What is provisioned is on its way for the rest of the time.
func (y *yard) do(p *place.Plan) {
	for _, s := range p.Stops {
		y.leave(s.Running)
		s.Running.Outlook.Stops++
		s.Running.Since = y.now
		y.line.Add(s.Running.Item, s.Running.Shape.Need)
	}

	for _, s := range p.Starts {
		y.line.Remove(s.Item)
		y.hold(s.Item, s.Allocations, y.now)
	}

	for _, h := range p.Provisions {
		at := slices.IndexFunc(y.offers, func(o fleet.Offer) bool { return o.Name == h.Offer })
		for range h.Count {
			y.lease(&y.offers[at], h.Item.Job)
		}
	}

	for _, d := range p.Deferrals {
		d.Item.Deferred = true // it is recorded once that a job waits, as in the yard
	}
}

func (y *yard) view() *place.View {
	return &place.View{
		Now:          y.now,
		Rooms:        y.table.SharedRooms(),
		Changes:      y.table.Changes(),
		Queue:        y.line,
		Running:      y.runs,
		Tariff:       y.tariff,
		Offers:       y.offers,
		Leases:       y.leases,
		Usage:        y.usage,
		ProjectUsage: y.shares,
	}
}
