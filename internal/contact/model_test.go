package contact_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/contact"
)

// The model: one node with an agent and a supervisor, the server, and the messages between
// them. A run of a job is assigned to the node. When the server declares the node lost it
// starts the successor of the run elsewhere, at once. Time passes in ticks; every order of
// events within a tick is tried. The search visits all states that can be reached.
//
// Messages are delayed, lost, handled twice and overtake each other. The agent restarts, the
// node freezes and thaws. The server's store gets stuck and works again, the server dies and starts, and where there is
// a standby another one takes over while the old address refuses connections. That a server
// which does not lead answers nothing is the leader's lease (ADR 0018). The node's clock is slow.

// tick is the unit of time. Settings that are a few ticks long keep the search small; only
// ratios matter.
const tick = time.Second

// rules are the promises that can be broken one by one to see that the search notices.
type rules struct {
	fromArrival  bool // leases count from the arrival of the answer
	uncounted    bool // a server whose store is stuck answers without counting it
	standby      bool // another server may take over
	silentYard   bool // the yard does not say that it has a standby
	reviveByLack bool // the lack of an answer renews an expired lease
	reviveLive   bool // an answer renews an expired lease under living runs
	anyStart     bool // runs are started whatever the age of the assignments
	lostAfter    time.Duration
	slowClock    bool // the node's clock loses one tick in four
	freezes      bool // the node freezes while the run runs, and thaws
}

func (r rules) settings() contact.Settings {
	return contact.Settings{
		ReportEvery: tick, SuspectAfter: 2 * tick, LostAfter: r.lostAfter,
		Lease: 2 * tick, Grace: 3*tick - 2*tick - r.lostAfter/20, Drift: 1.0 / 3,
	}
}

const (
	leaseTicks = 2 // the lease
	stopTicks  = 1 // grace period and the time that a kill takes
	slowEvery  = 3 // ticks of the node's clock between two that it loses
)

type runState int8

const (
	absent runState = iota // not started
	running
	ended
)

type mode int8

const (
	up mode = iota
	stuck
	down
)

type loss int8

const (
	present   loss = iota
	decided        // declared lost, not stored yet
	committed      // stored: the successor runs
)

type kind int8

const (
	none kind = iota
	question
	granted
	heard
	assigned
)

// message is under way. Age counts from when its question was sent, by the node's clock.
type message struct {
	kind   kind
	age    int8
	server int8
	number int8
	hasRun bool
}

// state is everything that matters. It is comparable.
type state struct {
	run      runState
	hasLease bool
	left     int8 // ticks until the lease expires
	frozen   bool // nothing on the node moves, but its clock

	knows  message // the assignments that the agent has applied
	grant  message // the newest grant of this process of the agent
	credit int8    // ticks of the node's clock since it lost one

	mode    mode
	silence int8
	loss    loss
	server  int8 // which start of the server
	number  int8 // of its newest assignments

	inFlight [2]message
}

// step is what can happen next.
type step struct {
	what string
	to   state
}

// now is the node's clock: the model keeps what is left of leases, which needs no origin.
var now = contact.Moment{Boot: "boot", Since: time.Minute}

func (s *state) lease() contact.Lease {
	return contact.Lease{Boot: now.Boot, Until: now.Since + time.Duration(s.left)*tick}
}

// renew replaces the lease if the rules allow it.
func (s *state) renew(r rules, answered bool, age int8) {
	renewal := contact.Renewal{Old: s.lease(), Exists: s.hasLease, Answered: answered, Live: s.run == running}
	if r.reviveByLack && !answered {
		renewal.Answered = true
	}

	if r.reviveLive {
		renewal.Live = false
	}

	if !renewal.Allowed(now) {
		return
	}

	sent := now
	if !r.fromArrival {
		sent.Since -= time.Duration(age) * tick
	}

	next := r.settings().Grant().From(sent)
	s.hasLease, s.left = true, int8(next.Left(now)/tick)
}

// put adds a message, if there is room for it.
func (s state) put(m message) (state, bool) {
	for i := range s.inFlight {
		if s.inFlight[i].kind == none {
			s.inFlight[i] = m
			s.sort()

			return s, true
		}
	}

	return s, false
}

func (s state) drop(i int) state {
	s.inFlight[i] = message{}
	s.sort()

	return s
}

// sort makes states equal that differ in the order of messages only.
func (s *state) sort() {
	if a, b := s.inFlight[0], s.inFlight[1]; a.rank() < b.rank() {
		s.inFlight = [2]message{b, a}
	}
}

// rank is a number that differs for different messages.
func (m message) rank() int {
	n := ((int(m.kind)*8+int(m.age))*8+int(m.server))*8 + int(m.number)
	if m.hasRun {
		return 2*n + 1
	}

	return 2 * n
}

func (s state) next(r rules) []step {
	var steps []step
	add := func(what string, to state) { steps = append(steps, step{what, to}) }

	if !s.frozen {
		s.agentSteps(r, add)
	}

	if s.frozen || r.freezes && s.run == running {
		thawed := s
		thawed.frozen = !s.frozen
		add("the node freezes or thaws", thawed)
	}

	s.serverSteps(r, add)

	for i := range s.inFlight {
		if s.inFlight[i].kind != none {
			add("a message is lost", s.drop(i))

			if !s.frozen || s.inFlight[i].kind == question {
				s.deliver(r, i, add)
			}
		}
	}

	s.timeSteps(r, add)

	return steps
}

// agentSteps are those of the node.
func (s state) agentSteps(r rules, add func(string, state)) {
	if to, ok := s.put(message{kind: question}); ok {
		add("the agent asks", to)
	}

	restarted := s
	restarted.knows, restarted.grant = message{}, message{}

	for i := range restarted.inFlight {
		if restarted.inFlight[i].kind != question {
			restarted.inFlight[i] = message{}
		}
	}

	restarted.sort()
	add("the agent restarts", restarted)

	if s.run == running && s.hasLease && s.left <= 0 {
		to := s
		to.run = ended
		add("the supervisor stops the run: its lease has expired", to)
	}

	if s.knows.kind == assigned && !s.knows.hasRun && s.run == running {
		to := s
		to.run = ended
		add("the agent kills the run: it is not assigned", to)
	}

	if s.mayStart(r) {
		to := s
		to.run = running
		add("the agent starts the run", to)
	}

	yard := contact.Yard{Known: true, Standby: r.standby && !r.silentYard}
	if (s.mode == down || r.standby) && yard.Extends(contact.Refused) {
		to := s
		to.renew(r, false, 0)
		add("a connection is refused", to)
	}
}

func (s *state) mayStart(r rules) bool {
	if s.run != absent || s.knows.kind != assigned || !s.knows.hasRun || !s.hasLease || s.lease().Left(now) <= 0 {
		return false
	}

	if r.anyStart {
		return true
	}

	return s.grant.kind == granted && generation(s.knows).Covers(generation(s.grant))
}

func generation(m message) contact.Generation {
	return contact.Generation{Server: [...]string{"first", "second"}[m.server], Number: uint64(m.number)}
}

// serverSteps are those of the server and its store.
func (s state) serverSteps(r rules, add func(string, state)) {
	if s.mode != down {
		if to, ok := s.put(message{kind: assigned, server: s.server, number: s.number, hasRun: s.loss != committed}); ok {
			add("the server sends assignments", to)
		}

		to := s
		to.mode = down
		add("the server dies", to)

		if s.loss == decided { // the commit never went through
			to.loss = present
			add("the server dies and its last commit is void", to)
		}
	}

	switch s.mode {
	case up:
		to := s
		to.mode = stuck
		add("the store is stuck", to)

		if s.loss == present && r.settings().Patience().GivesUp(time.Duration(s.silence)*tick) {
			to.loss = decided
			add("the server declares the node lost, the store is stuck", to)

			to.mode = up
			to.commit()
			add("the server declares the node lost, the successor starts", to)
		}
	case stuck:
		to := s
		to.mode = up
		to.commit()
		add("the store works again", to)
	case down:
		if s.server == 0 {
			to := s
			to.commit() // what was in doubt is read from the store
			to.mode, to.server, to.number, to.silence = up, 1, 1, 0
			add("a server starts", to)
		}
	}
}

// commit stores what was decided.
func (s *state) commit() {
	if s.loss == decided {
		s.loss = committed
		s.number++
	}
}

// deliver lets a message arrive. It is there no more then, but a question may come twice.
func (s state) deliver(r rules, i int, add func(string, state)) {
	m := s.inFlight[i]
	to := s.drop(i)

	switch m.kind {
	case question:
		if s.mode == down {
			return
		}

		answer := message{kind: heard, age: m.age}
		if s.mode == up {
			answer = message{kind: granted, age: m.age, server: s.server, number: s.number}
		}

		if s.mode == up || !r.uncounted {
			to.silence = 0
			s.silence = 0
		}

		if answered, ok := to.put(answer); ok {
			add("the server answers", answered)
		}

		if answered, ok := s.put(answer); ok {
			add("the server answers, the question is under way once more", answered)
		}
	case granted:
		to.grant = message{kind: granted, server: m.server, number: m.number}
		to.renew(r, true, m.age)
		add("a grant arrives", to)
	case heard:
		if (contact.Yard{}).Extends(contact.Heard) {
			to.renew(r, false, m.age)
		}

		add("the answer arrives that the report was heard", to)
	case assigned:
		if to.knows.kind != assigned || to.knows.server != m.server || to.knows.number < m.number {
			to.knows = message{kind: assigned, server: m.server, number: m.number, hasRun: m.hasRun}
		}

		add("assignments arrive", to)
	case none:
	}
}

// timeSteps let a tick pass. None does while something is overdue.
func (s state) timeSteps(r rules, add func(string, state)) {
	silent := s
	silent.silence = min(s.silence+1, int8(r.lostAfter/tick))

	if r.slowClock && s.credit >= slowEvery {
		slow := silent
		slow.credit = 0
		add("a tick that the node's clock loses", slow)
	}

	to := silent
	if r.slowClock {
		to.credit = min(s.credit+1, slowEvery)
	}

	if s.hasLease {
		to.left = max(s.left-1, -stopTicks)
		if s.run == running && to.left <= -stopTicks && !s.frozen {
			return // the supervisor has stopped the run by then
		}
	}

	for i := range to.inFlight {
		if to.inFlight[i].kind == none || to.inFlight[i].kind == assigned {
			continue
		}

		to.inFlight[i].age++
		if to.inFlight[i].age > leaseTicks {
			to.inFlight[i] = message{} // it would grant nothing any more
		}
	}

	to.sort()
	add("a tick", to)
}

// twice reports whether the run and its successor run at the same time. A run on a node that
// was frozen for longer than its lease does not count until a tick passes: the supervisor
// needs a moment after the thaw, which no rule can prevent.
func (s *state) twice() bool {
	overdue := s.hasLease && s.left <= -stopTicks
	return s.run == running && s.loss == committed && !s.frozen && !overdue
}

// search visits every state that can be reached and returns how many there are, and the
// shortest way to one in which the job runs twice.
func search(r rules) (visited int, way []string) {
	type origin struct {
		from int
		what string
	}

	start := state{credit: slowEvery, number: 1}
	seen := map[state]int{start: 0}
	states := []state{start}
	origins := []origin{{from: -1}}

	for i := 0; i < len(states); i++ {
		if states[i].twice() {
			for at := i; at > 0; at = origins[at].from {
				way = append(way, origins[at].what)
			}

			slices.Reverse(way)

			return len(states), way
		}

		if states[i].run == ended {
			continue // it is never started again, so nothing can run twice from here on
		}

		for _, n := range states[i].next(r) {
			if _, known := seen[n.to]; known {
				continue
			}

			seen[n.to] = len(states)
			states = append(states, n.to)
			origins = append(origins, origin{i, n.what})
		}
	}

	return len(states), nil
}

func TestAJobNeverRunsTwiceInAnyReachableState(t *testing.T) {
	t.Parallel()

	for name, r := range map[string]rules{
		"one server, slow clock":       {lostAfter: 4 * tick, slowClock: true},
		"one server, node freezes":     {lostAfter: 4 * tick, freezes: true},
		"with a standby, slow clock":   {lostAfter: 4 * tick, slowClock: true, standby: true},
		"with a standby, node freezes": {lostAfter: 4 * tick, freezes: true, standby: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if err := r.settings().Check(); err != nil {
				t.Fatalf("the model has settings that are refused: %v", err)
			}

			visited, way := search(r)
			if way != nil {
				t.Fatalf("the job runs twice:\n%s", strings.Join(way, "\n"))
			}

			t.Logf("%d states", visited)

			if visited < 10_000 {
				t.Errorf("%d states only: the model does not move", visited)
			}
		})
	}
}

// Every rule is needed: without it the search finds a way to run the job twice.
func TestWithoutARuleTheJobRunsTwice(t *testing.T) {
	t.Parallel()

	for name, r := range map[string]rules{
		"the lease counts from the arrival of the answer":      {fromArrival: true},
		"a server answers that it heard, and goes on counting": {uncounted: true},
		"a refused connection counts although others lead":     {standby: true, silentYard: true},
		"an expired lease is extended without an answer":       {reviveByLack: true},
		"an expired lease is renewed under living runs":        {reviveLive: true, freezes: true},
		"stale assignments are started under a new lease":      {anyStart: true},
		"lost-after is too short for a slow clock":             {lostAfter: 3 * tick, slowClock: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if r.lostAfter == 0 {
				r.lostAfter = 4 * tick
			}

			_, way := search(r)
			if way == nil {
				t.Fatal("the search finds nothing")
			}

			t.Log(strings.Join(way, "\n"))
		})
	}
}
