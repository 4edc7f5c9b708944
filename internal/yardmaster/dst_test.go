package yardmaster_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "seed of the first simulated yard")
	messagesFlag = flag.Int("messages", 0, "messages in all; 0 means 100,000, and 30,000 under the race detector")
)

// yards is how many yards are simulated, each with a seed of its own.
const yards = 4

func messages() int {
	switch {
	case *messagesFlag > 0:
		return *messagesFlag
	case underRace:
		return 30_000
	}

	return 100_000
}

// TestInvariantsHoldAfterEveryMessage drives yards with random messages and
// faults. A failure names the seed: go test ./internal/yardmaster -run
// TestInvariantsHold -seed N.
func TestInvariantsHoldAfterEveryMessage(t *testing.T) {
	t.Parallel()

	seen := sightings{events: map[string]int{}}
	t.Cleanup(func() { seen.check(t) })

	for i := range uint64(yards) {
		seed := *seedFlag + i
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			d := newDriver(seed)
			d.restless = i%2 == 1
			if d.restless {
				d.store.drops = true
				d.newYard(yardmaster.State{Incarnation: d.store.incarnation})
			}

			if err := d.run(messages() / yards); err != nil {
				t.Fatalf("seed %d, message %d: %v", seed, d.sent, err)
			}

			quick := time.Since(began)

			if err := d.comeToRest(); err != nil {
				t.Fatalf("seed %d, message %d, at rest: %v", seed, d.sent, err)
			}

			seen.add(d)

			shares := 0
			for _, run := range d.store.runs {
				if run.Ranks[0].Share > 0 {
					shares++
				}
			}

			if d.restless && (d.store.events["run.stopping"] == 0 || d.promised == 0 || shares == 0) {
				t.Errorf("seed %d never stopped a run, kept a seat or shared a GPU: it tests too little", seed)
			}

			moves := []string{"run.save_requested", "run.move_abandoned", "checkpoint.stored", "test.restored"}
			for _, kind := range d.mustSeeIn(20_000, moves) {
				if d.restless && d.store.events[kind] == 0 {
					t.Errorf("seed %d never saw %s: it tests too little", seed, kind)
				}
			}

			t.Logf(
				"%d runs stopped by plans, %d times seats were kept, %d runs shared a GPU",
				d.store.events["run.stopping"],
				d.promised,
				shares,
			)

			t.Logf("checkpoints: %d stored, %d refused, %d corrupt, %d left behind", d.store.events["checkpoint.stored"],
				d.store.events["checkpoint.refused"],
				d.store.events["checkpoint.corrupt"], d.store.events["checkpoint.left"])

			if d.restores == 0 && d.mustSeeIn(20_000, []string{""}) != nil {
				t.Errorf("seed %d never restored a backup: it tests too little", seed)
			}

			t.Logf(
				"%d messages, %d restarts, %d restores, %d jobs, %d runs, %.0f messages/s with all checks",
				d.sent,
				d.restarts,
				d.restores,
				len(d.store.jobs),
				len(d.store.runs),
				float64(d.sent)/quick.Seconds(),
			)
		})
	}
}

// sightings are the events of several yards.
type sightings struct {
	mu       sync.Mutex
	messages int
	events   map[string]int
}

func (s *sightings) add(d *driver) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.messages += d.sent
	for kind, n := range d.store.events {
		s.events[kind] += n
	}
}

// check fails the test if the yards together have missed a kind of event that so many messages cannot miss.
func (s *sightings) check(t *testing.T) {
	t.Helper()

	if s.messages < 20_000 {
		return
	}

	for _, kind := range []string{
		"job.succeeded", "job.failed", "job.cancelled", "job.paused", "job.recovering", "job.pausing", "job.cancelling",
		"node.suspect", "node.lost", "node.removed", "node.cordoned", "node.ready", "run.timed_out", "user.changed",
		"inbox.asked", "inbox.noticed", "inbox.accepted", "inbox.dismissed", "inbox.withdrawn",
		"checkpoint.stored", "checkpoint.removed",
	} {
		if s.events[kind] == 0 {
			t.Errorf("%d messages never showed %s: they test too little", s.messages, kind)
		}
	}
}

// mustSeeIn returns kinds of what is so rare that only this many messages show it for certain.
func (d *driver) mustSeeIn(messages int, kinds []string) []string {
	if d.sent < messages {
		return nil
	}

	return kinds
}

// TestJobsThatLendTheirGPUsLoseNothing drives a yard in which jobs are suspended for others all the time.
func TestJobsThatLendTheirGPUsLoseNothing(t *testing.T) {
	t.Parallel()
	d := newDriver(*seedFlag)
	d.lending = true
	d.store.drops = true
	d.newYard(yardmaster.State{Incarnation: d.store.incarnation})

	kinds := []string{"run.suspending", "run.suspended", "run.resuming", "run.resumed", "run.suspend_failed"}
	missed := func() bool {
		return slices.ContainsFunc(kinds, func(kind string) bool { return d.store.events[kind] == 0 })
	}

	err := d.run(messages() / 10)
	for err == nil && missed() && d.sent < messages() { // what is rare comes sooner or later, depending on the seed
		err = d.drive(d.sent + messages()/10)
	}

	if err != nil {
		t.Fatalf("seed %d, message %d: %v", *seedFlag, d.sent, err)
	}

	if err := d.comeToRest(); err != nil {
		t.Fatalf("seed %d, message %d, at rest: %v", *seedFlag, d.sent, err)
	}

	for _, kind := range kinds {
		t.Logf("%d times %s", d.store.events[kind], kind)

		if d.store.events[kind] == 0 {
			t.Errorf("seed %d never saw %s: it tests too little", *seedFlag, kind)
		}
	}
}

func TestSameSeedGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	digest := func() string {
		d := newDriver(*seedFlag)
		d.hash = sha256.New()
		if err := d.run(messages() / 20); err != nil {
			t.Fatalf("seed %d, message %d: %v", *seedFlag, d.sent, err)
		}

		return hex.EncodeToString(d.hash.Sum(nil))
	}

	if first, second := digest(), digest(); first != second {
		t.Errorf("seed %d gave %s and then %s", *seedFlag, first, second)
	}
}

// flight is a report on its way to the yard.
type flight struct {
	from *agent
	sent time.Time
	msg  yardmaster.NodeReport
}

// submission is one that was acknowledged.
type submission struct {
	msg  yardmaster.Submit
	jobs []id.Job
}

// driver feeds a yard by chance and plays store, agents, people and clock.
type driver struct {
	rng         *rand.Rand
	yard        *yardmaster.Yard
	store       *record
	agents      []*agent
	flights     []flight
	keyed       []submission
	pending     []submission // acknowledged when the batch is stored
	shrunk      map[id.Node]bool
	cancelled   map[id.Job]bool // asked for
	now         time.Time       // true time
	offset      time.Duration   // of the yard's clock
	sent        int
	restarts    int
	joins       int
	calm        bool // no faults any more
	restless    bool // the policy stops and moves what runs
	lending     bool // all jobs are alike, and take GPUs from each other
	promised    int  // seats seen kept for starts
	loads       int  // every one has a seed of its own
	backup      *record
	restores    int
	late        []yardmaster.AddCheckpoint // on their way
	checkpoints int                        // so far
	hash        hash.Hash
}

func newDriver(seed uint64) *driver {
	d := &driver{
		rng:       rand.New(rand.NewPCG(seed, 42)),
		store:     newRecord(),
		now:       start,
		shrunk:    map[id.Node]bool{},
		cancelled: map[id.Job]bool{},
	}

	d.newYard(yardmaster.State{Incarnation: d.store.incarnation})

	return d
}

// newYard makes a yard of a state.
func (d *driver) newYard(state yardmaster.State) {
	d.loads++
	state.Seed = fmt.Sprint("seed ", d.loads)
	d.yard = yardmaster.New(d.config())
	d.yard.Load(d.wall(), state)
}

func (d *driver) config() yardmaster.Config {
	cfg := yardmaster.Defaults(ordered.FIFO{})
	if d.restless {
		cfg.Policy = restless{}
	}

	if d.lending {
		cfg.Policy = lending{}
	}

	cfg.MaxJobs = 15
	cfg.KeepFinal = time.Minute

	return cfg
}

func (d *driver) wall() time.Time { return d.now.Add(d.offset) }

// chance is true once in n.
func (d *driver) chance(n int) bool { return d.rng.IntN(n) == 0 }

// send sends one message and checks the yard. The message may be refused.
func (d *driver) send(m yardmaster.Message) (any, error) {
	d.sent++
	reply, err := d.yard.Step(d.wall(), m)

	d.promised += yardmaster.PromiseCount(d.yard)
	if broken := yardmaster.CheckInvariants(d.yard, d.shrunk); broken != nil {
		return nil, fmt.Errorf("after %T %+v: %w", m, m, broken)
	}

	return reply, err
}

// step sends a message that must be accepted.
func (d *driver) step(m yardmaster.Message) (any, error) {
	reply, err := d.send(m)
	if err != nil {
		return nil, fmt.Errorf("%T %+v: %w", m, m, err)
	}

	return reply, nil
}

// run sends n messages.
func (d *driver) run(n int) error {
	if err := d.open(); err != nil {
		return err
	}

	return d.drive(n)
}

// drive acts until so many messages have been sent.
func (d *driver) drive(n int) error {
	for d.sent < n {
		for range 1 + d.rng.IntN(6) {
			if err := d.act(); err != nil {
				return err
			}
		}

		if err := d.settle(); err != nil {
			return err
		}
	}

	return nil
}

// open makes the users, the join tokens and the first nodes.
func (d *driver) open() error {
	msgs := []yardmaster.Message{yardmaster.PutUser{User: "root", Role: tenant.Admin, By: "test"}}
	for _, u := range users {
		msgs = append(msgs, yardmaster.PutUser{User: u, Role: tenant.Researcher, By: "root"})
	}

	for _, c := range fleet.Classes() {
		msgs = append(
			msgs,
			yardmaster.AddToken{By: "root", Token: tenant.Token{ID: id.Token("join-" + c), Kind: tenant.JoinToken, Owner: "root",
				Class: string(c), UsesLeft: 1 << 30, Expires: start.AddDate(50, 0, 0)}},
		)
	}

	for _, m := range msgs {
		if _, err := d.step(m); err != nil {
			return err
		}
	}

	for range 6 {
		if err := d.join(false); err != nil {
			return err
		}
	}

	return d.settle()
}

var users = []id.User{"ada", "bob", "cyd", "dan"}

// settle lets the yard place jobs, stores what changed, and now and then
// crashes the yard before or after that.
func (d *driver) settle() error {
	if !d.calm && d.chance(300) {
		d.pending = nil
		return d.restart() // what was not stored never happened
	}

	if d.yard.PlanDue() {
		d.yard.Round(d.wall())

		if err := yardmaster.CheckInvariants(d.yard, d.shrunk); err != nil {
			return fmt.Errorf("after a round: %w", err)
		}
		// A restless policy does not start all it could, and some jobs start in another round.
		if err := d.checkNothingCouldStart(); err != nil && !d.restless && !d.lending && !d.yard.PlanAgain() {
			return err
		}
	}

	b := d.yard.Take()
	if d.hash != nil {
		if err := json.NewEncoder(d.hash).Encode(b); err != nil {
			return err
		}
	}

	if err := d.store.commit(b); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := yardmaster.Settled(d.yard); err != nil {
		return err
	}
	if err := d.checkTruth(b); err != nil {
		return err
	}

	d.keyed = append(d.keyed, d.pending...)
	d.pending = nil
	if !d.calm && d.chance(300) {
		before := yardmaster.MemoryOf(d.yard)
		if err := d.restart(); err != nil {
			return err
		}
		if diff := cmp.Diff(before, yardmaster.MemoryOf(d.yard)); diff != "" {
			return fmt.Errorf("a restart changed what was learned (-before +after):\n%s", diff)
		}
	}

	return nil
}

// checkTruth compares how jobs ended with what happened on their nodes and what people asked for.
func (d *driver) checkTruth(b *yardmaster.Batch) error {
	for _, j := range b.Jobs {
		if j.State == job.Cancelled && j.Cause == job.CauseCancelled && !d.cancelled[j.ID] {
			return fmt.Errorf("job %s is cancelled and nobody asked for it: %s", j.ID, j.Reason)
		}
		if j.State != job.Succeeded {
			continue
		}

		for _, n := range j.Needs {
			if d.store.jobs[n].State != job.Succeeded {
				return fmt.Errorf("job %s succeeded before %s, which it needs", j.ID, n)
			}
		}

		run := d.store.runs[id.NewRun(j.ID, j.Epoch)]
		for _, k := range run.Ranks {
			a := d.agents[slices.IndexFunc(d.agents, func(a *agent) bool { return a.node == k.Node })]
			if !a.well[fmt.Sprintf("%s/%d%s", run.ID, k.Rank, run.UID)] {
				return fmt.Errorf("run %s succeeded, but its rank %d did not end well: %+v", run.ID, k.Rank, k)
			}
		}
	}

	return nil
}

// checkNothingCouldStart looks at one waiting job after a round.
func (d *driver) checkNothingCouldStart() error {
	jobs := yardmaster.JobsInMemory(d.yard)
	if len(jobs) == 0 {
		return nil
	}

	j := jobs[d.rng.IntN(len(jobs))]
	if why, waits := d.yard.Why(d.wall(), j); waits && (why.Blocker == place.BlockNone || why.Sentence == "") {
		return fmt.Errorf("job %s was not started and %+v", j, why)
	}

	return nil
}

// restart throws the yard away and builds another one from the store.
func (d *driver) restart() error {
	d.restarts++
	state, err := d.store.load(d.wall().Add(-d.config().KeepFinal))
	if err != nil {
		return err
	}

	d.newYard(state)

	if err := yardmaster.CheckInvariants(d.yard, d.shrunk); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	if state.Incarnation.Unsettled() { // jobs of the lost history have to wait anew
		return d.store.commit(d.yard.Take())
	}
	if b := d.yard.Take(); !b.Empty() {
		return fmt.Errorf("loading changed something: %+v", b)
	}

	if got := len(yardmaster.OpenQuestions(d.yard)); got != len(state.Questions) {
		return fmt.Errorf("%d questions came back and %d were open", got, len(state.Questions))
	}

	for _, j := range state.Jobs {
		got, ok := yardmaster.JobOf(d.yard, j.ID)
		if diff := cmp.Diff(j, got); !ok || diff != "" {
			return fmt.Errorf("job %s came back differently: %s", j.ID, diff)
		}
	}

	for _, s := range d.keyed {
		for _, j := range s.jobs {
			if _, ok := d.store.jobs[j]; !ok {
				return fmt.Errorf("job %s was acknowledged and is lost", j)
			}
		}
	}

	orders := d.yard.Orders()
	if len(orders) != len(d.store.orders) {
		return fmt.Errorf("%d orders came back and %d were open", len(orders), len(d.store.orders))
	}

	return nil
}

// act does one thing by chance.
func (d *driver) act() error {
	switch n := d.rng.IntN(1000); {
	case n < 430:
		return d.heartbeat(d.agents[d.rng.IntN(len(d.agents))])
	case n < 560:
		return d.tick(time.Duration(d.rng.IntN(2000)) * time.Millisecond)
	case n < 700:
		return d.submit()
	case n < 760:
		return d.deliver()
	case n < 830:
		return d.people()
	case n < 840:
		return d.answer()
	case n < 850:
		return d.forge()
	case n < 870:
		return d.operate()
	case n < 880:
		return d.outage()
	case n < 884:
		return d.stepClock()
	case n < 890:
		return d.account()
	case n < 892:
		return d.backUpOrRestore()
	case n < 930:
		return d.save()
	case n < 934:
		return d.tidy()
	default:
		a := d.agents[d.rng.IntN(len(d.agents))]
		return d.heartbeat(a)
	}
}

// tick lets time pass.
func (d *driver) tick(by time.Duration) error {
	d.now = d.now.Add(by)
	for _, a := range d.agents {
		a.progress(d.now)
	}

	_, err := d.step(yardmaster.Tick{})

	return err
}

// stepClock sets the yard's clock forward or back. Steps forward that are too
// small to be noticed by the yard are within what its bounds allow for.
func (d *driver) stepClock() error {
	step := time.Duration(20+d.rng.IntN(600)) * time.Second
	if d.chance(2) {
		step = -step
	}

	d.offset = min(max(d.offset+step, -time.Hour), time.Hour)
	_, err := d.step(yardmaster.Tick{})

	return err
}

// heartbeat lets an agent look at its orders and report. The report may be
// lost, come twice or come late.
func (d *driver) heartbeat(a *agent) error {
	if !a.up {
		return nil
	}

	if d.calm || !d.chance(5) {
		a.sync(d.rng, d.ordersOf(a.node), d.store.incarnation, d.now, d.calm)
	}

	a.progress(d.now)

	if err := checkOverlap(d.agents); err != nil {
		return err
	}

	if err := d.obey(a); err != nil {
		return err
	}

	f := flight{a, d.now, a.report()}
	if d.calm {
		return d.land(f)
	}

	if d.chance(8) { // order of its entries means nothing
		d.rng.Shuffle(len(f.msg.Ranks), func(i, j int) { f.msg.Ranks[i], f.msg.Ranks[j] = f.msg.Ranks[j], f.msg.Ranks[i] })
	}

	switch d.rng.IntN(12) {
	case 0:
		return nil // lost
	case 1:
		d.flights = append(d.flights, f) // twice
	case 2, 3:
		d.flights = append(d.flights, f) // late
		return nil
	}

	return d.land(f)
}

// obey lets programs save checkpoints, mostly when they are asked to. The yard may have a later run of their job.
func (d *driver) obey(a *agent) error {
	for _, key := range slices.Sorted(maps.Keys(a.procs)) {
		p := a.procs[key]
		if !a.inv.Restores || p.state != job.RunRunning || p.order.Rank != 0 {
			continue
		}
		if asked := p.saved != p.order.Save; !d.chance(20) && (!asked || !d.chance(3)) {
			continue
		}

		p.saved = p.order.Save
		d.checkpoints++
		c := checkpoint.Checkpoint{
			Run: p.order.Run, UID: p.order.Launch.UID, Ranks: 1, Name: fmt.Sprint("step-", d.checkpoints),
			Step: int64(d.checkpoints), Found: checkpoint.ByMarker, Written: d.wall(),
			Parts: []checkpoint.Part{{Node: a.node, Manifest: fmt.Sprint("manifest ", d.checkpoints), Size: 1}},
		}

		if d.chance(4) {
			c.Found = checkpoint.ByRest // of another program
		}

		if _, err := d.send(yardmaster.AddCheckpoint{Checkpoint: c}); refused(err, fault.Conflict) != nil {
			return err
		}
	}

	return nil
}

// deliver lets one of the late reports arrive.
func (d *driver) deliver() error {
	if len(d.flights) == 0 {
		return nil
	}

	i := d.rng.IntN(len(d.flights))
	f := d.flights[i]
	d.flights = slices.Delete(d.flights, i, i+1)

	return d.land(f)
}

func (d *driver) land(f flight) error {
	node := d.store.nodes[f.from.node]
	if less(&f.msg.Inventory.CPUs, &node.Inventory.CPUs) || less(&f.msg.Inventory.Memory, &node.Inventory.Memory) {
		d.shrunk[f.from.node] = true
	}

	_, err := d.send(f.msg)
	switch {
	case err == nil && f.sent.After(f.from.contact):
		f.from.contact = f.sent
	case fault.KindOf(err) == fault.Denied:
		f.from.gone, f.from.up = true, false // its processes end with its contact lease
	case err != nil:
		return err
	}

	return nil
}

func less[T ~int64](a, b *T) bool { return *a < *b }
