package sim

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Run simulates until all jobs have ended, until cfg.Until, or until nothing can
// happen any more.
func Run(cfg Config) (*Result, error) {
	s, err := newSimulation(cfg)
	if err != nil {
		return nil, err
	}

	if cfg.Begun != nil {
		cfg.Begun(Hand{s})
	}

	if cfg.Begin != nil { // queued jobs may start at once
		if err := s.pass(0); err != nil {
			return nil, err
		}
	}

	for {
		at, more := s.next()
		if !more || cfg.Until > 0 && at > cfg.Until || cfg.Stop != nil && cfg.Stop() {
			break
		}
		if err := s.pass(at); err != nil {
			return nil, err
		}
		if s.finished() {
			break
		}
	}

	if cfg.Until > 0 {
		s.now = max(s.now, cfg.Until)
	}

	return s.result(), s.failed
}

// simulation is a run of the simulator.
type simulation struct {
	cfg        Config
	yard       core
	now        time.Duration
	epoch      time.Time
	events     eventHeap
	saves      int    // events among them that are checkpoints, for which the simulation does not go on
	eventCount uint64 // events so far: ties go to the earlier
	arrival    *Job   // the next, nil if there is none
	change     *Change
	jobs       map[id.Job]*jobRecord // submitted and not ended
	runs       map[id.Run]*model
	hosts      map[id.Node]*host
	users      map[id.User]bool
	tally      *tally
	idle       int   // times in a row at which nothing but the yard's own timers happened
	failed     error // of the log
	report     [1]yardmaster.RankReport
	logLine    []byte // of the log
	batch      yardmaster.Batch
	ways       ways
	// machines are the provisioned machines that have not ended, requested the leases that were requested so far.
	machines  map[id.Lease]*host
	requested map[id.Lease]bool
}

// core is the yardmaster as a simulation uses it: its own, or that of a server.
type core interface {
	Step(now time.Time, m yardmaster.Message) (any, error)
	TakeInto(b *yardmaster.Batch)
	NextTimer() time.Time
	PlanDue() bool
	PlanAgain() bool
	Round(now time.Time)
	Lease(name id.Lease) *fleet.Lease
}

// jobRecord is a submitted job: its model and what it has done so far.
type jobRecord struct {
	job   *Job
	id    id.Job
	saved float64       // units of work saved
	ran   time.Duration // of a job that only lasts: run and saved
	fails int           // failures it has had
	share float64       // of its work that it has to do
	been  []id.Node     // where its data is, if it has any
	left  []savedState  // what it has left on nodes, if checkpoints stay there
	last  *model        // its last run, nil before the first

	program Program // nil if it does not decide anything
	Outcome
}

// newEmpty returns a simulation without a yard.
func newEmpty(cfg Config) *simulation {
	s := &simulation{
		cfg:       cfg,
		epoch:     Epoch(),
		jobs:      map[id.Job]*jobRecord{},
		runs:      map[id.Run]*model{},
		hosts:     map[id.Node]*host{},
		users:     map[id.User]bool{},
		machines:  map[id.Lease]*host{},
		requested: map[id.Lease]bool{},
	}

	if cfg.Begin != nil {
		s.epoch = cfg.Begin.Now
	}

	s.tally = newTally(&s.cfg)

	return s
}

func newSimulation(cfg Config) (*simulation, error) {
	s := newEmpty(cfg)

	if cfg.Cloud != nil {
		if err := place.Refusal(cfg.Policy, place.Clouds); err != nil {
			return nil, err
		}
	}

	yc := yardmaster.Defaults(cfg.Policy)
	yc.SuspectAfter = 0
	yc.MaxJobs, yc.MaxJobText, yc.MaxAllJobText = math.MaxInt, 0, 0
	yc.KeepFinal, yc.Unattended, yc.AssumeSaved = 0, true, true
	yc.Tariff = cfg.Tariff
	yc.Provision.Term, yc.Unmetered = simulatedTerm, true
	if cfg.Cloud != nil {
		yc.Offers = cfg.Cloud.Offers

		for _, r := range cfg.Cloud.Reclaims {
			s.at(max(r.At-r.Notice, 0), func(s *simulation) { s.reclaimSpot(r) })
		}
	}

	if cfg.Network != nil {
		yc.Network = cfg.Network.Yard()
	}

	if cfg.Yard != nil {
		cfg.Yard(&yc)
	}

	yard := yardmaster.New(yc)
	s.yard = yard

	state := yardmaster.State{}
	for _, class := range fleet.Classes() {
		state.Tokens = append(state.Tokens, tenant.Token{ID: tokenOf(class), Kind: tenant.JoinToken, Class: string(class),
			UsesLeft: math.MaxInt, Expires: s.epoch.AddDate(1000, 0, 0)})
	}

	for _, n := range cfg.Nodes {
		n.State = fleet.Ready
		n.Joined = s.epoch
		n.Since = s.epoch
		n.Reason = "present from the start"
		state.Nodes = append(state.Nodes, n)
		s.addHost(n)
	}

	state.Datasets, state.Quotas = cfg.Data, cfg.Quotas
	if cfg.Begin != nil {
		s.loadState(cfg.Begin, &state)
	}

	yard.Load(s.epoch, state)
	s.resumeRuns(&state)

	if err := s.nextJob(); err != nil {
		return nil, err
	}

	return s, s.nextChange()
}

// simulatedTerm is the term of leases whose nodes cannot fall silent unseen.
const simulatedTerm = 24 * time.Hour

func tokenOf(c fleet.Class) id.Token { return id.Token("sim-" + string(c)) }

// nextJob reads the next job of the workload.
func (s *simulation) nextJob() error {
	if s.cfg.Jobs == nil {
		return nil
	}

	j, err := s.cfg.Jobs.Next()
	if errors.Is(err, io.EOF) {
		s.arrival = nil
		return nil
	}

	if err != nil {
		return err
	}

	if s.arrival != nil && j.At < s.arrival.At {
		return fmt.Errorf(
			"the workload is not in order of submission: %s was submitted at %s, but follows a job of %s",
			j.Name,
			j.At,
			s.arrival.At,
		)
	}

	s.arrival = j

	return nil
}

func (s *simulation) nextChange() error {
	if s.cfg.Changes == nil {
		return nil
	}

	c, err := s.cfg.Changes.Next()
	if errors.Is(err, io.EOF) {
		s.change = nil
		return nil
	}

	if err != nil {
		return err
	}

	s.change = &c

	return nil
}

// next returns when the next thing happens.
func (s *simulation) next() (at time.Duration, more bool) {
	at = math.MaxInt64
	if len(s.events) > 0 {
		at, more = s.events[0].at, true
	}

	if s.arrival != nil && (!more || s.arrival.At < at) {
		at, more = s.arrival.At, true
	}

	if s.change != nil && (!more || s.change.At < at) {
		at, more = s.change.At, true
	}

	if t := s.yard.NextTimer(); !t.IsZero() {
		if d := t.Sub(s.epoch); !more || d < at {
			at, more = d, true
		}
	}

	return max(at, s.now), more
}

// stuckAfter is how often in a row nothing but the yard's timers may happen
// before the simulation takes the jobs that are left for jobs that never start.
const stuckAfter = 10_000

// finished reports whether all jobs have ended, or nothing can happen to the remaining ones.
func (s *simulation) finished() bool {
	if s.arrival != nil || len(s.events) > s.saves {
		s.idle = 0
		return false
	}

	if len(s.jobs) == 0 {
		return s.change == nil || s.cfg.Until == 0
	}
	if s.change != nil {
		return false
	}

	s.idle++

	return s.idle > stuckAfter
}

// pass lets everything happen that happens at one time, and then the yard decide.
func (s *simulation) pass(at time.Duration) error {
	s.now = at
	for {
		if err := s.happen(); err != nil {
			return err
		}

		s.carry()

		if s.due() {
			continue
		}
		if !s.yard.PlanDue() {
			break
		}

		s.yard.Round(s.time())
		s.tally.rounds++
		s.carry()

		if !s.due() && !s.yard.PlanAgain() {
			break
		}
	}

	if s.cfg.OnStep != nil {
		s.cfg.OnStep(s.now, s.tally.ended)
	}

	return nil
}

func (s *simulation) time() time.Time { return s.epoch.Add(s.now) }

// due reports whether something is left that happens now.
func (s *simulation) due() bool {
	return len(s.events) > 0 && s.events[0].at <= s.now || s.arrival != nil && s.arrival.At <= s.now ||
		s.change != nil && s.change.At <= s.now
}

// happen lets everything happen that is due: what nodes and runs do, then what
// happens to nodes, then what people do.
func (s *simulation) happen() error {
	if t := s.yard.NextTimer(); !t.IsZero() && !t.After(s.time()) {
		s.step(yardmaster.Tick{})
	}

	for len(s.events) > 0 && s.events[0].at <= s.now {
		e := s.events.pop()
		s.tally.events++
		e.do(s)
	}

	for s.change != nil && s.change.At <= s.now {
		s.tally.events++
		if err := s.apply(s.change); err != nil {
			return err
		}
		if err := s.nextChange(); err != nil {
			return err
		}
	}

	for s.arrival != nil && s.arrival.At <= s.now {
		s.tally.events++
		if err := s.submit(s.arrival); err != nil {
			return err
		}
		if err := s.nextJob(); err != nil {
			return err
		}
	}

	return nil
}

// step gives the yard a message that it cannot refuse.
func (s *simulation) step(m yardmaster.Message) any {
	s.tally.messages++
	reply, err := s.yard.Step(s.time(), m)

	switch {
	case err == nil:
	case s.cfg.OnRefusal != nil:
		s.cfg.OnRefusal(err)
	case s.failed == nil:
		s.failed = fmt.Errorf("at %s: %w", s.now, err)
	}

	return reply
}

// addUser adds a user, unless they are there already.
func (s *simulation) addUser(name id.User) {
	if !s.users[name] {
		s.users[name] = true
		s.step(yardmaster.PutUser{User: name, Role: tenant.Researcher, By: "sim"})
	}
}

// everyone is who submits where shares do not matter.
const everyone = id.User("everyone")

// alone returns the spec of a job that is submitted by itself, also if it was recorded as an element of an array.
func alone(s *job.Spec) *job.Spec {
	if s.Array == nil {
		return s
	}

	single := *s
	single.Array = nil

	return &single
}

func (s *simulation) submit(j *Job) error {
	owner := everyone
	if s.cfg.FairShare && j.Owner != "" {
		owner = j.Owner
	}

	s.addUser(owner)

	var m yardmaster.Message = yardmaster.Submit{Owner: owner, Jobs: []yardmaster.NewJob{{Spec: alone(j.Spec)}}}
	if s.cfg.Origin != nil {
		m = yardmaster.From{Message: m, Origin: s.cfg.Origin(j)}
	}

	s.tally.messages++
	reply, err := s.yard.Step(s.time(), m)
	if err != nil {
		return s.refused(j, err)
	}

	sub, _ := reply.(yardmaster.Submitted)
	l := &jobRecord{job: j, id: sub.Jobs[0], share: workShare(j), program: j.program()}
	l.Outcome = Outcome{Job: j, ID: l.id, Started: NotStarted}
	s.jobs[l.id] = l
	s.tally.submitted(s.now)

	if j.CancelAfter > 0 {
		s.at(s.now+j.CancelAfter, func(s *simulation) {
			if _, alive := s.jobs[l.id]; alive {
				s.step(yardmaster.Cancel{Job: l.id, By: owner})
			}
		})
	}

	return nil
}

// refused takes note of a job that the yard does not take. Only one that no node
// could ever run is part of a scenario; any other refusal is a mistake in it.
func (s *simulation) refused(j *Job, err error) error {
	if s.cfg.OnRefusal != nil {
		s.cfg.OnRefusal(fmt.Errorf("job %s: %w", j.Name, err))
		return nil
	}

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "nothing_fits" && f.Code != "place_conflict" {
		return fmt.Errorf("job %s at %s: %w", j.Name, j.At, err)
	}

	s.tally.out.Refused++
	if s.cfg.Log != nil {
		s.logLine = fmt.Appendf(s.logLine[:0], "%14s  %-14s %-22s (%s)\n", job.Duration(s.now), j.Name, "refused", f.Error())
		_, err := s.cfg.Log.Write(s.logLine)
		return err
	}

	return nil
}

// carry does what the yard ordered and takes note of what it decided.
func (s *simulation) carry() {
	b := &s.batch
	if s.cfg.OnBatch != nil {
		b = &yardmaster.Batch{} // it may be kept
	}

	s.yard.TakeInto(b)

	if s.cfg.OnBatch != nil && !b.Empty() {
		s.cfg.OnBatch(b)
	}

	if s.cfg.Log != nil {
		s.write(b.Events)
	}

	s.tally.decided(b.Events)

	if s.cfg.OnLedger != nil && !b.Ledger.Empty() {
		s.cfg.OnLedger(&b.Ledger)
	}

	s.meet(b.Jobs)

	for i := range b.Orders {
		s.order(&b.Orders[i])
	}

	if s.cfg.OnLease != nil {
		for i := range b.Leases {
			s.cfg.OnLease(&b.Leases[i])
		}
	}

	if len(b.Leases) > 0 && s.cfg.Cloud != nil {
		s.provisionAll(b.Leases)
	}

	for i := range b.Jobs {
		if j := &b.Jobs[i]; j.State.Final() {
			s.end(j)
		}
	}
}

// end records the outcome of a job.
func (s *simulation) end(j *job.Job) {
	l, ok := s.jobs[j.ID]
	if !ok {
		return
	}

	delete(s.jobs, j.ID)
	l.State = j.State
	l.Ended = s.now
	l.Stops = j.Stops
	l.Runs = j.Epoch
	if !j.Started.IsZero() {
		l.Started = j.Started.Sub(s.epoch)
	}

	if d := l.job.Spec.Deadline; d != nil {
		if late := s.time().Sub(*d); late > 0 {
			l.Lateness = late
			l.LateCost = l.job.Spec.LateCost.PerHour().For(late)
		}
	}

	s.tally.done(l)

	if s.cfg.OnEnd != nil {
		s.cfg.OnEnd(&l.Outcome)
	}
}

// result sums up. Runs that have not ended are counted with what they have done so far.
func (s *simulation) result() *Result {
	for _, run := range slices.Sorted(maps.Keys(s.runs)) {
		m := s.runs[run]
		m.advance(s)
		s.tally.account(m)
	}

	for _, j := range slices.Sorted(maps.Keys(s.jobs)) {
		s.tally.out.Work += s.jobs[j].saved
	}

	hosts := slices.Sorted(maps.Keys(s.hosts))
	for _, n := range hosts {
		h := s.hosts[n]
		if h.meter.open {
			h.meter.close(s.now)
		}

		h.meter.read(s.now)
		s.tally.host(h)
	}

	return s.tally.result(s.cfg.Policy.Name(), s.now, len(s.jobs))
}
