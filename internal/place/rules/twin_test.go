package rules_test

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/placetest"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// life is a yard in which everything changes that a view shows.
type life struct {
	*yard
	cfg     rules.Config
	policy  *rules.Policy
	past    queue.Past
	all     []fleet.Offer // that there may be
	mute    bool          // views do not say which rooms have changed
	sharers int           // that have had a part of a GPU
	asked   int           // leases
}

// drawLife draws a yard that is in use, where most nodes are alike and mostly jobs come
// and go: a node that changes has everything worked out anew.
func drawLife(t *rapid.T) *life {
	y := drawYard(t)
	kind := rapid.SampledFrom([]fleet.GPU{t4(), a100()}).Draw(t, "kind")
	for i := range rapid.IntRange(1, 5).Draw(t, "alike") {
		y.node(fmt.Sprintf("m%d", i), fleet.Local, rapid.SampledFrom([]int{2, 4}).Draw(t, "count"), kind)
	}

	cfg := rules.Defaults()
	if rapid.Bool().Draw(t, "few visits") {
		cfg.Visits = rapid.IntRange(0, 30).Draw(t, "visits")
	}

	l := &life{yard: y, cfg: cfg, policy: rules.New(cfg), all: y.offers, mute: rapid.IntRange(0, 5).Draw(t, "mute") == 0}
	for range rapid.IntRange(0, 15).Draw(t, "jobs") {
		l.submit(drawWant(t))
	}

	return l
}

// view is as the yardmaster shows the yard, or a copy, or one that says nothing of changes.
func (l *life) view(t *rapid.T) *place.View {
	v := l.yard.view()
	v.Past = &l.past
	switch {
	case l.mute:
		for i := range v.Rooms {
			v.Rooms[i].Mark = nil
		}
	case rapid.Bool().Draw(t, "own"):
		v.Rooms, v.Changes = l.table.SharedRooms(), l.table.Changes()
	}

	return v
}

// drawNode draws a node of the yard, "" if there is none.
func (l *life) drawNode(t *rapid.T) (*fleet.Node, bool) {
	rooms := l.table.SharedRooms()
	if len(rooms) == 0 {
		return nil, false
	}

	n := *rooms[rapid.IntRange(0, len(rooms)-1).Draw(t, "node")].Node

	return &n, true
}

func (l *life) drawRun(t *rapid.T) (*place.Running, bool) {
	if len(l.runs) == 0 {
		return nil, false
	}

	return l.runs[rapid.IntRange(0, len(l.runs)-1).Draw(t, "run")], true
}

func (l *life) drawWaiting(t *rapid.T) (*queue.Item, bool) {
	items := l.line.Items()
	if len(items) == 0 {
		return nil, false
	}

	return items[rapid.IntRange(0, len(items)-1).Draw(t, "item")], true
}

// happens lets one thing happen.
func (l *life) happens(t *rapid.T) {
	switch n := rapid.IntRange(0, 39).Draw(t, "what"); {
	case n < 10:
		w := drawWant(t)
		if n < 2 {
			w.data = []string{"imagenet"}
		}

		l.submit(w)
	case n < 14:
		if it, ok := l.drawWaiting(t); ok {
			l.line.Remove(it)

			if n > 10 { // and comes back with another need
				it.Since = l.now
				need := it.Shape.Need
				need.CPUs += 500
				it.Lasts = time.Duration(rapid.IntRange(1, 600).Draw(t, "minutes")) * time.Minute
				l.line.Add(it, need)
			}
		}
	case n < 18:
		if r, ok := l.drawRun(t); ok {
			for range rapid.SampledFrom([]int{1, 1, 20}).Draw(t, "times") {
				l.past.Add(queue.Kin{User: r.User, GPUs: r.GPUs}, max(l.now.Sub(r.Ordered), time.Minute))
			}

			l.leave(r)
		}
	case n < 28:
		l.runChanges(t)
	case n < 30:
		l.nodeChanges(t)
	case n < 32:
		l.offersChange(t)
	case n < 34:
		l.leaseChanges(t)
	case n < 36:
		l.usage[rapid.SampledFrom([]id.User{"ada", "ben", "eve"}).Draw(t, "whose")] = rapid.Float64Range(0, 1e6).
			Draw(t, "usage")
		l.projects[rapid.SampledFrom([]id.Project{"vision", "speech"}).Draw(t, "whose")] = rapid.Float64Range(0, 1e6).
			Draw(t, "usage")
	case n < 38:
		l.limitsChange(t)
	default:
		l.shareGPU(t)
	}
}

func (l *life) runChanges(t *rapid.T) {
	r, ok := l.drawRun(t)
	if !ok {
		return
	}

	switch rapid.IntRange(0, 4).Draw(t, "run changes") {
	case 0:
		r.Stopping = !r.Stopping
	case 1:
		r.Outlook.Resumes = !r.Outlook.Resumes
		r.Outlook.Every = time.Duration(rapid.IntRange(0, 60).Draw(t, "every")) * time.Minute
	case 2:
		r.Began = l.now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "began")) * time.Minute)
	case 3: // it will end at another time
		for _, s := range r.Allocations {
			room, _ := l.table.Get(s.Node)
			if at := slices.IndexFunc(room.Holds, func(h fleet.Hold) bool { return h.Run == r.Run }); at >= 0 {
				h := room.Holds[at]
				h.Ends = time.Time{}
				if minutes := rapid.IntRange(-60, 300).Draw(t, "ends"); minutes != 0 {
					h.Ends = l.now.Add(time.Duration(minutes) * time.Minute)
				}

				l.table.Book(s.Node, h)
			}
		}
	case 4: // the yard writes its entry anew
		it := *r.Item
		o := *it.Outlook
		o.Resumes = !o.Resumes
		it.Outlook = &o
		r.Item = &it
	}
}

func (l *life) nodeChanges(t *rapid.T) {
	n, ok := l.drawNode(t)
	if !ok {
		return
	}

	foreign := uint64(0)

	switch rapid.IntRange(0, 6).Draw(t, "node changes") {
	case 0:
		n.Cordoned = !n.Cordoned
	case 1:
		n.State = rapid.SampledFrom([]fleet.State{fleet.Ready, fleet.Ready, fleet.Suspect}).Draw(t, "state")
	case 2:
		foreign = 1
	case 3:
		if len(n.Inventory.GPUs) > 0 {
			n.Inventory.GPUs = slices.Clone(n.Inventory.GPUs)
			n.Inventory.GPUs[0].Measured = rapid.Float64Range(10, 600).Draw(t, "measured")
			n.Inventory.GPUs[0].Error = rapid.SampledFrom([]string{"", "Xid 79"}).Draw(t, "error")
		}
	case 4:
		n.Inventory.CPUs = job.CPUs(rapid.IntRange(1, 64).Draw(t, "cpus")) * 1000
	case 5: // another node comes
		l.node(
			fmt.Sprintf("a%d", rapid.IntRange(0, 3).Draw(t, "name")),
			fleet.Local,
			rapid.IntRange(1, 8).Draw(t, "count"),
			a100(),
		)

		return
	case 6:
		room, _ := l.table.Get(n.ID)
		if len(room.Holds) == 0 {
			l.table.Remove(n.ID)
		}

		return
	}

	l.table.Put(n, foreign)
}

func (l *life) offersChange(t *rapid.T) {
	l.offers = nil
	none := rapid.IntRange(0, 2).Draw(t, "nothing") == 0
	for _, o := range l.all {
		if !none && rapid.IntRange(0, 3).Draw(t, "offered") > 0 {
			o.Hourly = job.Money(float64(o.Hourly) * rapid.Float64Range(0.2, 3).Draw(t, "dearer"))
			o.MaxNodes = rapid.IntRange(0, 3).Draw(t, "most of it")
			l.offers = append(l.offers, o)
		}
	}

	l.most = place.NodeLimit{
		Max: rapid.IntRange(0, 4).Draw(t, "most nodes"), InUse: rapid.IntRange(0, 4).Draw(t, "in use"),
	}

	if rapid.IntRange(0, 3).Draw(t, "tariff") == 0 {
		l.tariff = &fleet.Tariff{
			Energy: money.PerKWh(rapid.Float64Range(0, 1).Draw(t, "energy")),
			Nodes:  []fleet.NodePrice{{Watts: []float64{300, 600, 900}}},
		}
	}
}

func (l *life) leaseChanges(t *rapid.T) {
	if len(l.leases) == 0 {
		return
	}

	x := l.leases[rapid.IntRange(0, len(l.leases)-1).Draw(t, "lease")]

	switch rapid.IntRange(0, 3).Draw(t, "lease changes") {
	case 0:
		x.State = fleet.LeaseReleasing
	case 1:
		x.Offer.Hourly = job.Money(rapid.IntRange(1, 9).Draw(t, "hourly")) * 1e6
	case 2:
		if it, ok := l.drawWaiting(t); ok {
			x.Job = it.Job
		}
	case 3:
		l.leases = slices.DeleteFunc(slices.Clone(l.leases), func(o *fleet.Lease) bool { return o == x })
	}
}

func (l *life) limitsChange(t *rapid.T) {
	who := rapid.SampledFrom([]id.User{"ada", "ben", "eve"}).Draw(t, "who")

	switch rapid.IntRange(0, 5).Draw(t, "limits change") {
	case 0:
		l.limits = nil
	case 1:
		a := tenant.Unlimited()
		a.NoProvisioning = rapid.Bool().Draw(t, "no rent")
		a.Nodes = rapid.IntRange(0, 2).Draw(t, "provisioned")
		a.Money = money.Amount(rapid.Float64Range(0, 20).Draw(t, "money"))
		if rapid.Bool().Draw(t, "limit on GPUs") {
			a.Ceiling = rapid.IntRange(0, 8).Draw(t, "ceiling")
		}

		if rapid.IntRange(0, 3).Draw(t, "hold") == 0 {
			a.HoldReason = "enough for today"
		}

		l.limits = limitsOf(who, a)
	case 2:
		l.limits = &place.Limits{}
	case 3:
		l.limits = limitsOf(who, tenant.Unlimited())
		for p, limit := range l.limits.Payers {
			limit.Borrows = true
			l.limits.Payers[p] = limit
		}
	case 4:
		l.data = nil
	case 5:
		d := time.Duration(rapid.IntRange(0, 60).Draw(t, "stage")) * time.Minute
		l.data = dataAt("imagenet", job.PlaceLocal, d, 0.5)
	}
}

// carriesOut does all of a plan, some of it, or nothing: what has gone stale is dropped.
func (l *life) carriesOut(t *rapid.T, p place.Plan) {
	if rapid.IntRange(0, 3).Draw(t, "drops") == 0 {
		return
	}

	for _, s := range p.Stops {
		l.leave(s.Running)
		s.Running.Outlook.Stops++
		s.Running.Since = l.now
		l.line.Add(s.Running.Item, s.Running.Shape.Need)
	}

	for _, s := range p.Starts {
		if len(p.Stops) == 0 && rapid.IntRange(0, 4).Draw(t, "drops") == 0 {
			continue
		}

		l.line.Remove(s.Item)

		r := l.hold(s.Item, s.Allocations, l.now)
		if rapid.Bool().Draw(t, "starts") {
			r.Began = time.Time{}
		}
	}

	for _, h := range p.Provisions {
		at := slices.IndexFunc(l.offers, func(o fleet.Offer) bool { return o.Name == h.Offer })
		for range h.Count {
			l.asked++
			l.leases = append(l.leases, &fleet.Lease{
				ID:        id.Lease(fmt.Sprintf("l%d", l.asked)),
				Offer:     l.offers[at],
				State:     fleet.LeaseBooting,
				Job:       h.Item.Job,
				Requested: l.now,
				Granted:   l.now,
			})
		}
	}
}

// passes lets time pass. Not everybody who should have ended has.
func (l *life) passes(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, 20 * time.Minute, 5 * time.Hour}).Draw(t, "passes")
	if rapid.IntRange(0, 2).Draw(t, "late") > 0 {
		l.now = l.now.Add(d)
		return
	}

	if rapid.IntRange(0, 19).Draw(t, "set back") == 0 {
		l.now = l.now.Add(-time.Minute)
		return
	}

	l.pass(d)
}

// TestPlansAreTheSameWithoutWhatIsKept: whatever has happened since the last round, a
// policy that keeps what it knows decides, word by word, as one that sees the yard for
// the first time and remembers the same of jobs, and as one that considers every single job.
func TestPlansAreTheSameWithoutWhatIsKept(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 6, func(t *rapid.T) {
		l := drawLife(t)
		for range rapid.IntRange(2, 12).Draw(t, "rounds") {
			for range rapid.IntRange(0, 3).Draw(t, "events") {
				l.happens(t)
			}

			v := l.view(t)
			if rapid.Bool().Draw(t, "asks") {
				l.asks(t, v)
			}

			before := l.policy.Twin()
			want := l.policy.Twin().Plan(v)

			got := l.policy.Plan(v)
			if diff := same(want, got); diff != "" {
				t.Fatalf("-fresh +kept:\n%s", diff)
			}

			if diff := same(before.PlanOneByOne(v), got); diff != "" {
				t.Fatalf("-one by one +kept:\n%s", diff)
			}

			if len(l.all) == 0 { // nobody was priced: nothing is remembered
				if diff := same(rules.New(l.cfg).Plan(v), got); diff != "" {
					t.Fatalf("-new +kept:\n%s", diff)
				}
			}

			l.carriesOut(t, got)
			l.passes(t)
		}
	})
}

// shareGPU lets two jobs of which nobody decides have parts of a GPU.
func (l *life) shareGPU(t *rapid.T) {
	n, ok := l.drawNode(t)
	if !ok {
		return
	}

	room, _ := l.table.Get(n.ID)
	gpu := fleet.LowestGPUs(room.Free, 1)
	if bits.OnesCount64(gpu) == 0 {
		return
	}

	for i := range 2 {
		l.sharers++
		h := fleet.Hold{
			Run:   id.Run(fmt.Sprintf("s%d", l.sharers)),
			Job:   id.Job(fmt.Sprintf("s%d", l.sharers)),
			Owner: "zoe",
			GPUs:  gpu,
			Share: 0.5,
			Since: l.now,
		}

		if i == 0 {
			h.Ends = l.now.Add(time.Hour)
		}

		l.table.Book(n.ID, h)
	}
}

// asks lets someone ask where a job could run: one that waits, or a new one.
func (l *life) asks(t *rapid.T, v *place.View) {
	it, ok := l.drawWaiting(t)
	if !ok || rapid.Bool().Draw(t, "new") {
		it = l.submit(drawWant(t))
		l.line.Remove(it)
	}

	twin := l.policy.Twin()
	want := twin.Options(v, it)
	if diff := cmp.Diff(want, l.policy.Options(v, it)); diff != "" {
		t.Fatalf("-fresh +kept:\n%s", diff)
	}
}

// TestNothingIsKeptOfWhoIsGone: after a round in which a job is not there the policy
// does not hold on to it.
func TestNothingIsKeptOfWhoIsGone(t *testing.T) {
	t.Parallel()
	y := newYard()
	policy := rules.New(rules.Defaults())

	for i := range 3 {
		y.node(fmt.Sprintf("n%d", i), fleet.Local, 4, a100())
	}

	y.offer("aws/a100", 1, a100(), 3.5, 3*time.Minute)

	y.policy = policy
	for i := range 40 {
		y.submit(
			want{
				gpus:      1 + i%4,
				lasts:     time.Duration(i+1) * time.Hour,
				objective: objectives()[i%3],
				resumes:   true,
				user:      id.User(fmt.Sprint("u", i)),
			},
		)

		y.pass(20 * time.Minute)
		y.round(t)
	}

	if y.line.Len() == 0 || len(y.runs) == 0 || len(y.leases) == 0 {
		t.Fatalf(
			"%d wait, %d run and %d nodes are provisioned: nothing to be forgotten",
			y.line.Len(),
			len(y.runs),
			len(y.leases),
		)
	}

	var items []weak.Pointer[queue.Item]
	var runs []weak.Pointer[place.Running]

	for _, it := range y.items {
		items = append(items, weak.Make(it))
	}

	for _, r := range y.runs {
		runs = append(runs, weak.Make(r))

		for _, s := range r.Allocations {
			y.table.Release(s.Node, r.Run)
		}
	}

	for _, it := range y.line.Items() {
		y.line.Remove(it)
	}

	y.items, y.runs = nil, nil
	y.submit(want{gpus: 1, lasts: time.Hour})
	y.plan(t)
	runtime.GC()

	for _, p := range items {
		if it := p.Value(); it != nil {
			t.Errorf("job %s is kept", it.Job)
		}
	}

	for _, p := range runs {
		if r := p.Value(); r != nil {
			t.Errorf("run %s is kept", r.Run)
		}
	}

	if n := policy.Shapes(); n != 1 {
		t.Errorf("%d shapes are kept of one job", n)
	}
}

// TestTheRoomOfARunIsFoundAgain: a node comes whose name is before that of the one on
// which a job runs that is to make room. The first plan was not carried out.
func TestTheRoomOfARunIsFoundAgain(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("n0", fleet.Local, 4, a100())
	y.occupy("n0", time.Hour, want{gpus: 4, lasts: 100 * time.Hour, objective: job.ObjectiveCost, resumes: true})

	it := y.submit(want{gpus: 4, lasts: time.Hour, objective: job.ObjectiveTime})
	for _, name := range []string{"", "a0"} {
		if name != "" {
			y.node(name, fleet.Local, 1, t4())
		}

		p := y.plan(t)
		if got := where(p, it); len(p.Stops) != 1 || !slices.Equal(got, []id.Node{"n0"}) {
			t.Fatalf("with %q it starts on %v after %d stops, want n0 and 1", name, got, len(p.Stops))
		}
	}
}

// TestAnEntryThatIsWrittenAnewIsRead: the yard replaces the entry of a running job, which
// from then on cannot be stopped.
func TestAnEntryThatIsWrittenAnewIsRead(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("n0", fleet.Local, 4, a100())
	r := y.occupy("n0", time.Hour, want{gpus: 4, lasts: 100 * time.Hour, objective: job.ObjectiveCost, resumes: true})
	y.submit(want{gpus: 4, lasts: time.Hour, objective: job.ObjectiveTime})

	if p := y.plan(t); len(p.Stops) != 1 {
		t.Fatalf("%d jobs are stopped, want 1", len(p.Stops))
	}

	it, o := *r.Item, *r.Outlook
	o.Resumes = false
	it.Outlook = &o
	r.Item = &it

	if p := y.plan(t); len(p.Stops) != 0 {
		t.Fatalf("a job is stopped that would not go on: %+v", p.Stops)
	}
}

// crowd returns a yard whose nodes are full and whose queue is long: jobs of three shapes, of three users, of several
// lengths and of unknown length, perhaps with gangs among them.
func crowd(jobs int, gangs bool) *yard {
	y := newYard()
	for i := range 8 {
		name := fmt.Sprintf("n%d", i)
		y.node(name, fleet.Local, 4, a100())
		y.occupy(id.Node(name), time.Hour, want{gpus: 4, lasts: 10 * time.Hour})
	}

	for i := range jobs {
		w := want{
			gpus: []int{1, 2, 4}[i%3], lasts: time.Duration(1+i%7) * time.Hour, user: id.User(fmt.Sprint("u", i%3)), prio: i % 2,
		}

		if i%5 == 0 {
			w.lasts = 0
		}

		if gangs && i%11 == 0 {
			w.nodes = 2
		}

		y.submit(w)
	}

	return y
}

// TestARoundCostsWhatChanged: in a full yard ten times as many queued jobs make a round neither consider more of
// them nor allocate more memory. With many visits that is because jobs of one shape are left out once one is
// blocked, with few because the round has looked at enough.
func TestARoundCostsWhatChanged(t *testing.T) {
	for name, c := range map[string]struct {
		visits int
		gangs  bool
	}{"blocked": {1 << 20, false}, "spent": {200, true}} {
		var considered []int
		var allocated []float64

		for _, jobs := range []int{1_000, 10_000} {
			y := crowd(jobs, c.gangs)
			cfg := rules.Defaults()
			cfg.Visits = c.visits
			policy := rules.New(cfg)
			v := y.view()
			policy.Plan(v)

			considered = append(considered, policy.Considered(v))
			allocated = append(allocated, testing.AllocsPerRun(5, func() {
				y.submit(want{gpus: 1, lasts: time.Hour})
				policy.Plan(v)
			}))
		}

		if considered[0] == 0 || considered[1] > 2*considered[0] {
			t.Errorf("%s: %d jobs are considered of 1,000 and %d of 10,000, want about as many",
				name, considered[0], considered[1])
		}

		if allocated[1] > 1.5*allocated[0]+20 {
			t.Errorf("%s: a round allocates %.0f times with 1,000 jobs and %.0f times with 10,000, want no more",
				name, allocated[0], allocated[1])
		}
	}
}

// TestWhatAStopFreesIsOfferedToThoseAfterIt: jobs that were left out because nothing was free for them are looked at
// again once a job is preempted, but only those behind the one for which it is.
func TestWhatAStopFreesIsOfferedToThoseAfterIt(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("n0", fleet.Local, 4, a100())
	y.occupy("n0", time.Hour, want{gpus: 4, lasts: 100 * time.Hour, objective: job.ObjectiveCost, resumes: true})
	y.node("n1", fleet.Local, 4, a100())
	y.occupy("n1", time.Hour, want{gpus: 4, lasts: 50 * time.Hour}) // for which the first waits

	before := y.submit(want{gpus: 1, lasts: time.Minute, prio: 1})
	y.submit(want{gpus: 2, lasts: 90 * time.Minute, objective: job.ObjectiveTime})
	after := y.submit(want{gpus: 1, lasts: 50 * time.Hour})

	p := y.plan(t)
	if len(p.Stops) != 1 || where(p, after) == nil {
		t.Errorf("the plan is %+v, want a stop and that %s starts beside", p, after.Job)
	}

	if where(p, before) != nil {
		t.Errorf("%s starts although its turn was before the stop", before.Job)
	}
}
