package rules_test

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
	"trainyard/internal/share"
	"trainyard/internal/tenant"
)

var start = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// GPUs of three speeds.
func t4() fleet.GPU   { return fleet.GPU{Model: "T4", Memory: 16 << 30, Measured: 50} }
func a100() fleet.GPU { return fleet.GPU{Model: "A100", Memory: 80 << 30, Measured: 250} }
func h100() fleet.GPU { return fleet.GPU{Model: "H100", Memory: 80 << 30, Measured: 500} }

// yard is a small yard between two rounds of the policy.
type yard struct {
	policy   place.Policy
	now      time.Time
	table    *fleet.Table
	line     *queue.Queue
	items    []*queue.Item
	runs     []*place.Running
	leases   []*fleet.Lease
	offers   []fleet.Offer
	tariff   *fleet.Tariff
	usage    map[id.User]float64
	projects map[id.Project]float64
	limits   *place.Limits
	most     place.NodeLimit
	data     *dataset.Catalogue
	beside   *share.Interference
	began    map[id.Job]time.Time
	last     uint64
}

func newYard(settings ...func(*rules.Config)) *yard {
	cfg := rules.Defaults()
	for _, set := range settings {
		set(&cfg)
	}

	return &yard{
		policy: rules.New(cfg), now: start, table: fleet.NewTable(), line: queue.New(),
		usage: map[id.User]float64{}, projects: map[id.Project]float64{}, began: map[id.Job]time.Time{},
	}
}

// node adds a node that is ready, with 8 CPUs for each GPU and at least 8.
func (y *yard) node(name string, class fleet.Class, count int, gpu fleet.GPU) *fleet.Node {
	n := &fleet.Node{
		ID:        id.Node(name),
		Class:     class,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{CPUs: job.CPUs(max(count, 1)) * 8000, Memory: 1 << 40, Shares: "1"},
	}

	for i := range count {
		gpu.Index = i
		n.Inventory.GPUs = append(n.Inventory.GPUs, gpu)
	}

	y.table.Put(n, 0)

	return n
}

// offer adds something to provision.
func (y *yard) offer(name string, count int, gpu fleet.GPU, hourly float64, boot time.Duration) *fleet.Offer {
	o := fleet.Offer{
		Name:      name,
		Provider:  "aws",
		Type:      name,
		GPU:       gpu.Model,
		GPUs:      count,
		GPUMemory: gpu.Memory,
		TFLOPS:    gpu.Measured / 0.75,
		CPUs:      job.CPUs(max(count, 1)) * 8000,
		Memory:    1 << 40,
		Hourly:    job.Money(hourly * 1e6),
		Boot:      job.Duration(boot),
		Shares:    "1",
	}

	y.offers = append(y.offers, o)

	return &y.offers[len(y.offers)-1]
}

// want is one job of a test.
type want struct {
	gpus, most int
	nodes      int
	mostNodes  int
	sameGPU    bool
	cpus       job.CPUs
	kind       string
	lasts      time.Duration
	objective  job.Objective
	user       id.User
	project    id.Project
	prio       int
	place      job.Place
	speed      *job.Speed
	due        time.Duration
	every      time.Duration
	resumes    bool
	prefer     id.Node
	data       []string
	share      float64   // of one GPU
	memory     job.Bytes // of the GPU
	class      job.ShareClass
	limit      float64
	program    string
}

func (y *yard) submit(w want) *queue.Item {
	y.last++
	s := &job.Spec{
		Place:     cmp.Or(w.place, job.PlaceAny),
		Objective: cmp.Or(w.objective, job.ObjectiveBalanced),
		Data:      w.data,
		Expect:    job.Duration(w.lasts),
	}

	s.Resources = job.Resources{
		GPUs:  job.Range{Min: w.gpus, Max: max(w.gpus, w.most)},
		Nodes: job.Range{Min: max(w.nodes, 1), Max: max(w.nodes, w.mostNodes, 1)},
		CPUs:  w.cpus,

		SameGPU: w.sameGPU, GPUShare: w.share, GPUMemory: job.ByteRange{Min: w.memory},
		ShareClass: w.class, ShareLimit: w.limit,
	}

	if w.kind != "" {
		s.Resources.GPU = []job.GPUKind{{Model: w.kind}}
	}

	it := &queue.Item{
		Job:      id.NewJob(y.last),
		Number:   y.last,
		User:     cmp.Or(w.user, "ada"),
		Project:  w.project,
		Priority: w.prio,
		Lasts:    w.lasts,
		Spec:     s,
		Since:    y.now,
		Prefer:   w.prefer,
		Program:  queue.Program{Key: w.program},
		Outlook: &job.Outlook{
			Submitted: y.now, Speed: w.speed, Reference: y.reference(w.kind), Every: w.every, Resumes: w.resumes,
		},
	}

	if w.due > 0 {
		it.Outlook.Deadline = y.now.Add(w.due)
	}

	y.items = append(y.items, it)
	y.line.Add(it, fleet.NeedOf(s, job.Floor{}, nil))

	return it
}

func (y *yard) view() *place.View {
	return &place.View{
		Now:          y.now,
		Rooms:        y.table.Rooms(),
		Queue:        y.line,
		Running:      y.runs,
		Tariff:       y.tariff,
		Offers:       y.offers,
		Leases:       y.leases,
		Limits:       y.limits,
		NodeLimit:    y.most,
		Data:         y.data,
		Beside:       y.beside,
		Usage:        y.usage,
		ProjectUsage: y.projects,
	}
}

// limitsOf are limits that leave an owner so much, whatever the project, and everyone
// else all they want.
func limitsOf(owner id.User, a tenant.Allowance) *place.Limits {
	l := &place.Limits{Payers: map[queue.Payer]place.PayerLimit{}}
	for _, p := range []id.Project{"", "vision", "speech"} {
		l.Payers[queue.Payer{User: owner, Project: p}] = place.PayerLimit{Allowance: a}
	}

	return l
}

// dataAt is a dataset that is at a place, and takes so long and costs so much to bring
// to the other side.
func dataAt(name id.Dataset, at job.Place, takes time.Duration, costs money.PerGB) *dataset.Catalogue {
	const size = 1e12
	roads := dataset.Network{PerGB: costs / 1000}
	if takes > 0 {
		roads.Across = job.Bytes(size / takes.Seconds())
	}

	c := dataset.NewCatalogue(roads)
	c.Put(dataset.Dataset{ID: name, Size: size, Rule: job.PlaceAny, Copies: []dataset.Copy{{At: at}}})

	return c
}

// failer is what of a test a yard needs.
type failer interface {
	Fatalf(format string, args ...any)
}

// plan asks the policy; every plan must pass the check and give its reasons.
func (y *yard) plan(t failer) place.Plan {
	v := y.view()
	p := y.policy.Plan(v)
	if _, bad := place.Check(v, p); len(bad) > 0 {
		t.Fatalf("the plan does not pass the check: %v", bad)
	}

	for _, h := range p.Provisions {
		if h.Reason == "" || h.Count < 1 || math.IsNaN(float64(h.Cost)) || h.Cost < 0 {
			t.Fatalf("provision without reason, count or cost: %+v", h)
		}
	}

	provisionsWithin(t, v, p)

	if !p.WakeAt.IsZero() && !p.WakeAt.After(y.now) {
		t.Fatalf("the policy wants to be asked again at %s, which is not later than %s", p.WakeAt, y.now)
	}

	return p
}

// provisionsWithin checks that the parts of a plan together stay within the limits on nodes and the
// allowances of the view.
func provisionsWithin(t failer, v *place.View, p place.Plan) {
	total, offers := 0, map[string]int{}
	type use struct {
		nodes int
		money money.Amount
	}

	users := map[id.User]use{}
	for _, h := range p.Provisions {
		total += h.Count
		offers[h.Offer] += h.Count

		u := users[h.Item.User]
		u.nodes, u.money = u.nodes+h.Count, u.money+h.Cost
		users[h.Item.User] = u

		if a := v.Allow(h.Item); u.nodes > a.Nodes || u.money > a.Money || a.NoProvisioning {
			t.Fatalf("%d nodes for %v are provisioned for %s, who may have %+v", u.nodes, u.money, h.Item.User, a)
		}
	}

	if v.NodeLimit.Max > 0 && total > 0 && v.NodeLimit.InUse+total > v.NodeLimit.Max {
		t.Fatalf("%d nodes are provisioned, and the limit is %+v", total, v.NodeLimit)
	}

	for _, o := range v.Offers {
		if o.MaxNodes > 0 && offers[o.Name] > o.MaxNodes {
			t.Fatalf("%d nodes of %s are provisioned, and there may be %d more", offers[o.Name], o.Name, o.MaxNodes)
		}
	}
}

// round asks the policy and does what it says. What is provisioned joins when it has booted.
func (y *yard) round(t failer) place.Plan {
	p := y.plan(t)
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
			n := len(y.leases) + 1
			y.leases = append(
				y.leases,
				&fleet.Lease{
					ID:        id.Lease(fmt.Sprintf("l%d", n)),
					Offer:     y.offers[at],
					State:     fleet.LeaseBooting,
					Job:       h.Item.Job,
					Requested: y.now,
					Granted:   y.now,
				},
			)
		}
	}

	return p
}

// reference is the GPU that expected run times are for: the slowest of the yard's own, or else of the offers.
func (y *yard) reference(kind string) job.Reference {
	var slowest job.Reference
	consider := func(r job.Reference) {
		if r.TFLOPS > 0 && (kind == "" || r.GPU == kind) && (slowest.TFLOPS == 0 || r.TFLOPS < slowest.TFLOPS) {
			slowest = r
		}
	}

	for _, room := range y.table.Rooms() {
		for i := range room.Node.Inventory.GPUs {
			if room.Node.Class != fleet.OnDemand {
				hardware := place.HardwareOf(&room.Node.Inventory.GPUs[i], 1)
				consider(job.Reference{GPU: hardware.GPU, TFLOPS: hardware.TFLOPS})
			}
		}
	}

	if slowest.TFLOPS == 0 {
		for i := range y.offers {
			consider(job.Reference{GPU: y.offers[i].GPU, TFLOPS: y.offers[i].Speed()})
		}
	}

	return slowest
}

func (y *yard) nodeOf(n id.Node) *fleet.Node {
	room, ok := y.table.Get(n)
	if !ok {
		return nil
	}

	return room.Node
}

// hold lets a job run.
func (y *yard) hold(it *queue.Item, seats []place.Allocation, began time.Time) *place.Running {
	r := &place.Running{
		Item:        it,
		Run:         id.NewRun(it.Job, it.Outlook.Stops+1),
		Allocations: seats,
		Ordered:     began,
		Began:       began,
	}

	need := &it.Shape.Need
	for _, s := range seats {
		r.GPUs += bits.OnesCount64(s.GPUs)
		h := fleet.Hold{
			Run:    r.Run,
			Job:    it.Job,
			Owner:  it.User,
			GPUs:   s.GPUs,
			Share:  s.Share,
			Cap:    need.Cap,
			Class:  need.Class,
			Limit:  need.Limit,
			CPUs:   need.CPUs,
			Memory: need.Memory,
			Since:  began,

			Program: it.Program.Key,
		}

		if takes := place.RunTimeOn(it, seats, y.nodeOf); takes > 0 {
			h.Ends = began.Add(takes)
		}

		y.table.Book(s.Node, h)
	}

	if _, ok := y.began[it.Job]; !ok {
		y.began[it.Job] = began
	}

	y.runs = append(y.runs, r)
	slices.SortFunc(y.runs, func(a, b *place.Running) int { return cmp.Compare(a.Number, b.Number) })

	return r
}

// occupy lets a job run on GPUs of a node since some time.
func (y *yard) occupy(node id.Node, since time.Duration, w want) *place.Running {
	it := y.submit(w)
	y.line.Remove(it)
	room, _ := y.table.Get(node)

	seat := place.Allocation{Node: node, GPUs: fleet.LowestGPUs(room.Free, w.gpus), Share: w.share}

	return y.hold(it, []place.Allocation{seat}, y.now.Add(-since))
}

// leave takes a job off its nodes.
func (y *yard) leave(r *place.Running) {
	for _, s := range r.Allocations {
		y.table.Release(s.Node, r.Run)
	}

	y.runs = slices.DeleteFunc(y.runs, func(o *place.Running) bool { return o == r })
}

// pass lets time pass: jobs end that have run as long as they last (an hour if nobody
// said), provisioned nodes join.
func (y *yard) pass(d time.Duration) {
	y.now = y.now.Add(d)
	for _, r := range slices.Clone(y.runs) {
		if !r.Began.Add(cmp.Or(r.Lasts, time.Hour)).After(y.now) {
			y.leave(r)
		}
	}

	for _, l := range y.leases {
		if l.State == fleet.LeaseBooting && !l.Requested.Add(time.Duration(l.Offer.Boot)).After(y.now) {
			gpu := fleet.GPU{Model: l.Offer.GPU, Memory: l.Offer.GPUMemory, Peak: l.Offer.TFLOPS}
			n := *y.node("cloud-"+string(l.ID), fleet.OnDemand, l.Offer.GPUs, gpu)
			n.Lease = l.ID
			y.table.Put(&n, 0)
			l.State, l.Node = fleet.LeaseActive, n.ID
		}
	}
}

// next is how long it takes until a job ends or a node joins, at most so long.
func (y *yard) next(most time.Duration) time.Duration {
	for _, r := range y.runs {
		most = min(most, r.Began.Add(cmp.Or(r.Lasts, time.Hour)).Sub(y.now))
	}

	for _, l := range y.leases {
		if l.State == fleet.LeaseBooting {
			most = min(most, l.Requested.Add(time.Duration(l.Offer.Boot)).Sub(y.now))
		}
	}

	return max(most, time.Second)
}

// where names the nodes of a plan's start of a job, nil if it does not start.
func where(p place.Plan, it *queue.Item) []id.Node {
	var nodes []id.Node
	for _, s := range p.Starts {
		for _, seat := range s.Allocations {
			if s.Item == it {
				nodes = append(nodes, seat.Node)
			}
		}
	}

	return nodes
}

// provisioned returns what a plan provisions for a job, nil if nothing.
func provisioned(p place.Plan, it *queue.Item) *place.Provision {
	for i := range p.Provisions {
		if p.Provisions[i].Item == it {
			return &p.Provisions[i]
		}
	}

	return nil
}

func objectives() []job.Objective {
	return []job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost}
}

// drawYard draws nodes of several kinds and classes, and perhaps offers.
func drawYard(t *rapid.T) *yard {
	y := newYard()
	gpus := []fleet.GPU{t4(), a100(), h100()}

	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		name := fmt.Sprintf("n%d", i)
		n := *y.node(name, rapid.SampledFrom([]fleet.Class{fleet.Local, fleet.Reserved}).Draw(t, "class"), rapid.IntRange(0, 8).Draw(t, "count"), rapid.SampledFrom(gpus).Draw(t, "gpu"))

		switch rapid.IntRange(0, 9).Draw(t, "state") {
		case 0:
			n.Cordoned = true
		case 1:
			n.State = fleet.Suspect
		case 2: // unlike GPUs in one node
			n.Inventory.GPUs = slices.Clone(n.Inventory.GPUs)
			for k := range n.Inventory.GPUs {
				if k%2 == 1 {
					g := t4()
					g.Index = k
					n.Inventory.GPUs[k] = g
				}
			}
		case 3:
			if len(n.Inventory.GPUs) > 0 {
				n.Inventory.GPUs = slices.Clone(n.Inventory.GPUs)
				n.Inventory.GPUs[0].Error = "Xid 79"
			}
		}

		n.Inventory.CPUs = job.CPUs(rapid.IntRange(1, 64).Draw(t, "cpus")) * 1000
		y.table.Put(&n, 0)
	}

	if rapid.Bool().Draw(t, "offers") {
		y.offer("aws/t4", 1, t4(), 0.5, 2*time.Minute)
		y.offer("aws/a100", 1, a100(), 3.5, 3*time.Minute)
		y.offer("aws/h100x8", 8, h100(), 50, 4*time.Minute)
		spot := y.offer("aws/a100/spot", 1, a100(), 1.2, 3*time.Minute)
		spot.Spot, spot.LossRate = true, 0.05
		spot.MaxNodes = rapid.IntRange(0, 2).Draw(t, "most of one offer")
		y.most = place.NodeLimit{Max: rapid.IntRange(0, 3).Draw(t, "most nodes")}
	}

	return y
}

// drawWant draws a job.
func drawWant(t *rapid.T) want {
	w := want{
		gpus: rapid.SampledFrom([]int{0, 1, 1, 2, 4, 8}).
			Draw(t, "gpus"),
		objective: rapid.SampledFrom(objectives()).Draw(t, "objective"),
		user: rapid.SampledFrom([]id.User{"ada", "ben", "eve"}).
			Draw(t, "user"),
		project: rapid.SampledFrom([]id.Project{"", "vision", "speech"}).Draw(t, "project"),
		cpus:    job.CPUs(rapid.IntRange(0, 16).Draw(t, "cpus")) * 500,
		resumes: rapid.Bool().Draw(t, "resumes"),
		place:   rapid.SampledFrom([]job.Place{job.PlaceAny, job.PlaceAny, job.PlaceLocal, job.PlaceCloud}).Draw(t, "place"),
	}

	if rapid.IntRange(0, 4).Draw(t, "known") > 0 {
		w.lasts = time.Duration(rapid.IntRange(1, 600).Draw(t, "minutes")) * time.Minute
	}

	if w.gpus == 1 && rapid.Bool().Draw(t, "shares") {
		w.share = float64(rapid.IntRange(1, 99).Draw(t, "percent")) / 100
		w.memory = job.Bytes(rapid.SampledFrom([]int{0, 0, 8, 15, 40}).Draw(t, "cap")) << 30
		w.program = rapid.SampledFrom([]string{"", "train", "eval"}).Draw(t, "program")
		w.class = rapid.SampledFrom([]job.ShareClass{"", "", job.ShareGuaranteed, job.ShareOpportunistic}).Draw(t, "class")
		w.limit = rapid.SampledFrom([]float64{0, 0, w.share, 1}).Draw(t, "limit")
	}

	switch rapid.IntRange(0, 7).Draw(t, "special") {
	case 0:
		w.nodes = rapid.IntRange(2, 3).Draw(t, "nodes")
	case 1:
		w.most = w.gpus + rapid.IntRange(0, 4).Draw(t, "more")
		if w.gpus == 0 {
			w.most = 0
		}
	case 2:
		w.kind = rapid.SampledFrom([]string{"T4", "A100", "H100"}).Draw(t, "kind")
	case 3:
		w.prio = 50
	case 4:
		w.every = 10 * time.Minute
	case 5:
		w.due = time.Duration(rapid.IntRange(1, 600).Draw(t, "due")) * time.Minute
	case 6:
		w.speed = job.NewSpeed(
			3600,
			time.Minute,
			time.Minute,
			job.Rate{GPUs: 1, PerSecond: 1},
			job.Rate{GPUs: 8, PerSecond: 6},
		)
	}

	return w
}
