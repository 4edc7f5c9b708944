package leases_test

import (
	"container/heap"
	"fmt"
	"hash"
	"math/rand/v2"
	"time"

	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/provision"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// event is something that happens at a time. Of two at the same time the one that
// was planned first comes first.
type event struct {
	at  time.Time
	seq int
	do  func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if !a[i].at.Equal(a[j].at) {
		return a[i].at.Before(a[j].at)
	}

	return a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push is part of heap.Interface.
func (a *agenda) Push(x any) {
	if e, ok := x.(event); ok {
		*a = append(*a, e)
	}
}

// Pop is part of heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = event{}
	*a = (*a)[:last]

	return e
}

// trouble says how much goes wrong in a history.
type trouble struct {
	crash  int // a write is cut short once in so many; 0 never
	faults int // of a hundred calls, those that go wrong
	days   bool
	// crashAt cuts the write of this number short, before or after it is stored; 0 none.
	crashAt int
	after   bool
}

// world is one history: a server with its yard and desk, the providers, their
// machines, and the people who hand in jobs, all in virtual time.
type world struct {
	rng       *rand.Rand
	trouble   trouble
	now       time.Time
	agenda    agenda
	seq       int
	life      int // of the server; counts its starts
	started   time.Time
	yard      *yardmaster.Yard
	desk      *reconcile.Planner
	inbox     []fleet.Lease   // stored, and not yet passed to the reconciler
	heard     answers         // what this life of the server has heard
	bare      map[string]bool // machines that some life of it saw in a list without their lease
	pumps     int
	writes    int
	crashes   int
	crashed   []time.Time
	outages   []span // of the server
	store     *record
	providers []*provider
	todo      int  // jobs that have not been submitted yet
	calm      bool // nothing goes wrong any more
	broken    error
	worst     time.Duration // by which a machine outlived its lease while it could be ended
	raw       time.Duration // and with the time in which it could not
	seen      map[string]int
	hash      hash.Hash
}

// answers is what providers have answered to the server since it started.
type answers struct {
	listed  map[string]time.Time   // providers, and when the last list that was answered was asked for
	shown   map[id.Lease][]string  // leases, and the machines that live by the last list of their provider
	granted map[id.Lease]bool      // leases that were given a machine
	unclear map[id.Lease]time.Time // leases of which a call ended in doubt
}

func newAnswers() answers {
	return answers{map[string]time.Time{}, map[id.Lease][]string{}, map[id.Lease]bool{}, map[id.Lease]time.Time{}}
}

// span is a stretch of time; one without an end lasts.
type span struct{ from, to time.Time }

func newWorld(seed uint64, t trouble) *world {
	w := &world{
		rng:     rand.New(rand.NewPCG(seed, 7)),
		trouble: t,
		now:     start,
		store:   newRecord(),
		bare:    map[string]bool{},
		seen:    map[string]int{},
	}

	w.providers = []*provider{
		{name: "once", w: w, once: true, shows: time.Hour, made: map[id.Lease]*machine{}},
		{name: "twice", w: w, made: map[id.Lease]*machine{}},
	}

	return w
}

// config is what operators set. What is looked at every few seconds is looked at
// less often here: it makes histories shorter to compute, and nothing depends on it.
func (w *world) config() yardmaster.Config {
	cfg := yardmaster.Defaults(greedy{})
	cfg.SuspectAfter = time.Minute
	cfg.Keep = provision.IdlePolicy{MaxIdle: 5 * time.Minute, ReleaseMargin: time.Minute}
	cfg.Offers = offers()

	return cfg
}

// offers are what can be provisioned, from both providers, by the second and by the hour.
func offers() []fleet.Offer {
	var list []fleet.Offer
	for i, o := range []fleet.Offer{
		{Provider: "once", Type: "small", Region: "north", Boot: job.Duration(3 * time.Minute), BillingIncrement: job.Duration(time.Hour)},
		{Provider: "once", Type: "small", Region: "north", Spot: true, Boot: job.Duration(3 * time.Minute)},
		{Provider: "twice", Type: "large", Region: "south", Boot: job.Duration(8 * time.Minute), MinBilling: job.Duration(10 * time.Minute)},
		{Provider: "twice", Type: "small", Region: "west", Boot: job.Duration(time.Minute)},
	} {
		o.Name, o.GPU, o.GPUs, o.GPUMemory, o.CPUs, o.Memory = o.NameOf(), "NVIDIA L4", 1, 24<<30, 8000, 32<<30
		o.Hourly = job.Money(i+1) * 1e6
		list = append(list, o)
	}

	return list
}

func (w *world) provider(name string) *provider {
	for _, p := range w.providers {
		if p.name == name {
			return p
		}
	}

	panic("no provider " + name)
}

// chance is true once in n, and never when all is calm.
func (w *world) chance(n int) bool { return !w.calm && w.rng.IntN(n) == 0 }

// upTo returns a length of time by chance.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d) + 1)) }

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("at %s: %w", w.now.Sub(start), fmt.Errorf(format, args...))
	}
}

// after plans something.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.agenda, event{w.now.Add(max(d, 0)), w.seq, do})
}

// soon plans something in the server: it does not happen if that has crashed by then.
func (w *world) soon(d time.Duration, do func()) {
	life := w.life
	w.after(d, func() {
		if w.yard != nil && w.life == life {
			do()
		}
	})
}

// until lets time pass until a condition holds, and at most for a while.
func (w *world) until(most time.Duration, done func() bool) bool {
	end := w.now.Add(most)
	for len(w.agenda) > 0 && w.broken == nil && !done() {
		e, _ := heap.Pop(&w.agenda).(event)
		if e.at.After(end) {
			heap.Push(&w.agenda, e)
			break
		}

		w.now = e.at
		e.do()
	}

	if w.broken == nil && done() {
		return true
	}

	w.now = end

	return false
}

// boot starts the server from what is stored.
func (w *world) boot() {
	w.life++
	state, err := w.store.load()
	if err != nil {
		w.fail("load: %w", err)
		return
	}

	w.yard = yardmaster.New(w.config())
	w.yard.Load(w.now, state)
	w.desk = reconcile.NewPlanner(reconcile.DefaultTiming(), "once", "twice")
	w.inbox, w.heard, w.started = nil, newAnswers(), w.now
	if n := len(w.outages); n > 0 {
		w.outages[n-1].to = w.now
	}

	w.desk.Take(w.now, state.Leases) // before it lists for the first time
	w.tick()
	w.pump()
}

// crash ends the server, and starts another one some time later.
func (w *world) crash() {
	w.crashes++
	w.crashed = append(w.crashed, w.now)
	w.yard, w.desk, w.inbox = nil, nil, nil
	w.outages = append(w.outages, span{from: w.now})
	down := time.Second + w.upTo(2*time.Minute)
	switch {
	case w.trouble.days && w.chance(6):
		down = 24 * time.Hour
	case w.chance(8):
		down = w.upTo(time.Hour)
	}

	w.seen["crash"]++
	if down >= 24*time.Hour {
		w.seen["dead for a day"]++
	}

	w.after(down, w.boot)
}

// crashes decides whether the server ends at this point of a write.
func (w *world) crashesHere(after bool) bool {
	t := &w.trouble
	if t.crashAt > 0 {
		return !w.calm && w.writes == t.crashAt && after == t.after
	}

	return t.crash > 0 && w.crashes < 12 && w.chance(2*t.crash)
}

// send hands the yard a message. It reports whether what it changed was stored; else
// the one who sent it hears nothing.
func (w *world) send(m yardmaster.Message) (reply any, stored bool, refused error) {
	if w.yard == nil {
		return nil, false, nil
	}

	reply, refused = w.yard.Step(w.now, m)

	return reply, w.commit(), refused
}

// commit lets the yard place and provision, and stores what changed.
func (w *world) commit() bool {
	if w.yard.PlanDue() {
		w.yard.Round(w.now)
	}

	b := w.yard.Take()
	if b.Empty() {
		return true
	}

	w.writes++
	if w.crashesHere(false) {
		w.crash() // what was not stored never happened
		return false
	}

	w.checkChanges(b)

	if err := w.store.commit(b); err != nil {
		w.fail("write %d: %w", w.writes, err)
		return false
	}

	w.digest(b)

	if w.crashesHere(true) {
		w.crash() // it is stored, and no one is notified
		return false
	}

	w.hand(b.Leases)

	return true
}

// tick lets time pass for the yard: when something falls due, and every so often.
func (w *world) tick() {
	if _, _, err := w.send(yardmaster.Tick{}); err != nil {
		w.fail("tick: %w", err)
	}

	if w.yard == nil {
		return
	}

	w.checkOverdue()

	wait := 25 * time.Second
	if next := w.yard.NextTimer(); !next.IsZero() {
		wait = min(wait, max(next.Sub(w.now), 100*time.Millisecond))
	}

	w.soon(wait, w.tick)
}

// hand tells the desk of leases that are stored, mostly at once.
func (w *world) hand(leases []fleet.Lease) {
	if len(leases) == 0 {
		return
	}

	w.inbox = append(w.inbox, leases...)

	var wait time.Duration
	if w.chance(10) {
		wait = w.upTo(8 * time.Second)
	}

	w.soon(wait, func() {
		w.desk.Take(w.now, w.inbox)
		w.inbox = nil
		w.pump()
	})
}

// pump makes the calls that are due.
func (w *world) pump() {
	if w.yard == nil {
		return
	}

	calls, next := w.desk.Due(w.now)
	for _, c := range calls {
		w.call(c)

		if w.yard == nil {
			return
		}
	}

	w.pumps++
	turn := w.pumps
	w.soon(max(next.Sub(w.now), time.Millisecond), func() {
		if w.pumps == turn {
			w.pump()
		}
	})
}

// tell hands the yard a provider's answer, mostly at once.
func (w *world) tell(messages []yardmaster.Message, known []fleet.Instance, provider string) {
	var wait time.Duration
	if w.chance(10) {
		wait = w.upTo(8 * time.Second)
	}

	w.soon(wait, func() {
		for _, m := range messages {
			_, stored, err := w.send(m)
			if err != nil {
				w.fail("%T: %w", m, err)
			}

			if !stored {
				return
			}
		}

		w.checkWritten(provider, known)
		w.pump()
	})
}

// call makes one call of the desk.
func (w *world) call(c reconcile.Call) {
	p := w.provider(c.Provider)
	life := w.life
	answered := func(do func()) {
		if w.yard != nil && w.life == life {
			do()
		}
	}

	switch c.Kind {
	case reconcile.CallList:
		p.list(func(machines []fleet.Instance, err error) {
			answered(func() {
				if err == nil {
					w.heard.list(p, c.Started, machines)
					w.sawBare(machines)
				}

				w.tell(w.desk.Listed(w.now, c, machines, err), machines, p.name)
			})
		})
	case reconcile.CallCreate:
		if !w.prepare(&c.Lease) {
			return
		}

		w.checkAsked(&c.Lease)
		p.create(&c.Lease, func(m fleet.Instance, err error) {
			answered(func() {
				var known []fleet.Instance
				if _, certain := reconcile.Refusal(err); err == nil {
					known, w.heard.granted[c.Lease.ID] = append(known, m), true
				} else if !certain {
					w.heard.unclear[c.Lease.ID] = w.now
				}

				w.tell(w.desk.Created(w.now, c, m, err), known, p.name)
			})
		})
	case reconcile.CallTerminate:
		p.terminate(c.Lease.Instance, func(err error) {
			answered(func() { w.tell(w.desk.Terminated(w.now, c, err), nil, p.name) })
		})
	}
}

// list takes note of a list.
func (a *answers) list(p *provider, asked time.Time, machines []fleet.Instance) {
	a.listed[p.name] = asked
	for l := range p.made {
		delete(a.shown, l)
	}

	for i := range machines {
		if m := &machines[i]; m.State == fleet.InstancePending || m.State == fleet.InstanceUp {
			a.shown[m.Lease] = append(a.shown[m.Lease], m.ID)
		}
	}
}

// sawBare takes note of machines that are listed without the lease that they are for.
func (w *world) sawBare(machines []fleet.Instance) {
	for i := range machines {
		if machines[i].Lease == "" {
			w.bare[machines[i].ID] = true
		}
	}
}

// prepare makes the token with which a lease's machine joins. It reports whether that is stored.
func (w *world) prepare(l *fleet.Lease) bool {
	if _, ok := w.store.tokens[tokenOf(l.ID)]; ok {
		return true
	}

	_, stored, err := w.send(
		yardmaster.AddToken{
			By: "root",
			Token: tenant.Token{ID: tokenOf(l.ID), Kind: tenant.JoinToken, Owner: "root", Class: string(fleet.OnDemand),
				Lease: l.ID, UsesLeft: 1, Expires: start.AddDate(1, 0, 0)},
		},
	)
	if err != nil {
		w.fail("token of %s: %w", l.ID, err)
	}

	return stored
}

func tokenOf(l id.Lease) id.Token { return id.Token("boot-" + l) }
