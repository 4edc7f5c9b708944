package sim_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas"
	"trainyard/internal/place/rules"
	"trainyard/internal/sim"
	"trainyard/internal/yardmaster"
)

// savingsWorld is a world whose decisions are replayed without the option that was chosen.
type savingsWorld struct {
	policy  func() place.Policy
	nodes   []fleet.Node
	tariff  *fleet.Tariff
	offers  []fleet.Offer
	jobs    []*sim.Job
	changes []sim.Change
}

// lived is what came of a world: what each job cost by the ledger, when it ended, and what its
// decisions saved.
type lived struct {
	cost   map[id.Job]ledger.Nanos
	ended  map[id.Job]time.Duration
	began  map[id.Job]time.Duration
	state  map[id.Job]job.State
	saved  map[id.Job][]ledger.Saving
	made   map[id.Job]time.Time // the first decision
	leased map[id.Job]time.Duration
}

// far is when everything has ended, and provisioned nodes have been released.
const far = 100 * time.Hour

func (w *savingsWorld) live(t interface{ Fatal(...any) }) *lived {
	l := &lived{
		cost: map[id.Job]ledger.Nanos{}, ended: map[id.Job]time.Duration{}, began: map[id.Job]time.Duration{},
		state: map[id.Job]job.State{}, saved: map[id.Job][]ledger.Saving{}, made: map[id.Job]time.Time{},
		leased: map[id.Job]time.Duration{},
	}

	changes := slices.Clone(w.changes)
	if len(w.nodes) > 0 { // without something to come the simulation ends with the last job
		changes = append(changes, sim.Change{At: far, Kind: sim.NodeUncordoned, ID: w.nodes[0].ID})
	}

	cfg := sim.Config{
		Policy: w.policy(), Nodes: w.nodes, Tariff: w.tariff, Jobs: &list{jobs: w.jobs},
		Changes: &happenings{list: changes}, Until: far + time.Hour,
		Yard: func(c *yardmaster.Config) { c.Unmetered = false },
		OnEnd: func(o *sim.Outcome) {
			l.ended[o.ID], l.state[o.ID], l.began[o.ID] = o.Ended, o.State, o.Started
		},
		OnLedger: func(c *ledger.Changes) {
			for i := range c.Postings {
				l.cost[c.Postings[i].Job] += c.Postings[i].Cost()
			}

			for _, d := range c.Decisions {
				if _, known := l.made[d.Job]; !known && d.Open != nil {
					l.made[d.Job] = d.Open.At
				}
			}

			for _, s := range c.Savings {
				l.saved[s.Job] = append(l.saved[s.Job], s)
			}
		},
		OnLease: func(x *fleet.Lease) { l.leased[x.Job] = x.Requested.Sub(sim.Epoch()) },
	}
	if len(w.offers) > 0 {
		cfg.Cloud = &sim.Cloud{Offers: w.offers}
	}

	if _, err := sim.Run(cfg); err != nil {
		t.Fatal(err)
	}

	return l
}

// total adds up what was booked for a job.
func (l *lived) total(j id.Job) (money ledger.Nanos, saved time.Duration) {
	for _, s := range l.saved[j] {
		money += s.Money
		saved += s.Time.Duration()
	}

	return money, saved
}

// kinds lists the kinds of decisions that were booked for a job.
func (l *lived) kinds(j id.Job) []string {
	var list []string
	for _, s := range l.saved[j] {
		list = append(list, s.Kind)
	}

	return list
}

// cordoned returns the world in which nodes take no new runs from a time on.
func (w savingsWorld) cordoned(at time.Duration, nodes ...id.Node) *savingsWorld {
	w.changes = slices.Clone(w.changes)
	for _, n := range nodes {
		w.changes = append(w.changes, sim.Change{At: at, Kind: sim.NodeCordoned, ID: n})
	}

	slices.SortStableFunc(w.changes, func(a, b sim.Change) int { return int(a.At - b.At) })

	return &w
}

// tolerance is what exact means: amounts are posted in billionths of a dollar for each interval,
// and times in milliseconds.
const (
	moneyTolerance = ledger.Nanos(2000)
	timeTolerance  = 2 * time.Millisecond
)

// replayed compares what was booked for a job with the difference to the world without the decision.
func replayed(t interface {
	Fatal(args ...any)
	Errorf(format string, args ...any)
}, j id.Job, with, without *lived, money ledger.Nanos, within time.Duration,
) {
	gotMoney, gotTime := with.total(j)
	wantMoney := without.cost[j] - with.cost[j]
	wantTime := without.ended[j] - with.ended[j]

	if d := gotMoney - wantMoney; d > money || -d > money {
		t.Errorf("%s: booked $%s by %v, but without the decision it costs $%s instead of $%s, which is $%s",
			j, gotMoney, with.saved[j], without.cost[j], with.cost[j], wantMoney)
	}

	if d := gotTime - wantTime; d > within || -d > within {
		t.Errorf("%s: booked %s by %v, but without the decision it ends at %s instead of %s, which is %s",
			j, gotTime, with.saved[j], without.ended[j], with.ended[j], wantTime)
	}
}

func withGPUs(name string, class fleet.Class, count int, model string) fleet.Node {
	n := fleet.Node{ID: id.Node(name), Class: class, Inventory: fleet.Inventory{CPUs: 64000, Memory: 1 << 40}}
	speed := map[string]float64{"T4": 50, "A100": 250, "H100": 500}[model]
	for i := range count {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: model, Memory: 80 << 30, Measured: speed})
	}

	return n
}

func byRules(set ...func(*rules.Config)) func() place.Policy {
	return func() place.Policy {
		cfg := rules.Defaults()
		for _, f := range set {
			f(&cfg)
		}

		return rules.New(cfg)
	}
}

// training is a job of one GPU that takes an hour on a T4, half an hour on an A100 and a quarter
// on an H100.
func training(name string, at time.Duration, objective job.Objective) *sim.Job {
	spec := &job.Spec{
		Name: name, Run: "train", Place: job.PlaceAny, Objective: objective,
		Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
		Speed: job.NewSpeed(3600, 0, 0, job.Rate{GPU: "T4", GPUs: 1, PerSecond: 1},
			job.Rate{GPU: "A100", GPUs: 1, PerSecond: 2}, job.Rate{GPU: "H100", GPUs: 1, PerSecond: 4}),
	}

	return &sim.Job{Name: name, At: at, Spec: spec, Owner: "ada"}
}

func h100At(hourly float64) fleet.Offer {
	return fleet.Offer{
		Name: "aws/p5", Provider: "aws", Type: "p5", GPU: "H100", GPUs: 1, GPUMemory: 80 << 30, CPUs: 64000, Memory: 1 << 40,
		Hourly: job.Money(hourly * 1e6), Boot: job.Duration(5 * time.Minute),
	}
}

func dollars(d float64) ledger.Nanos { return ledger.NanosOf(d) }

// reserved is a tariff by which a node with a T4 costs $0.60 an hour and one with an A100 $1.20,
// used or not.
func reserved() *fleet.Tariff {
	return &fleet.Tariff{Nodes: []fleet.NodePrice{
		{GPU: "T4", Hourly: []float64{0.6}}, {GPU: "A100", Hourly: []float64{1.2}},
	}}
}

// TestSavingsWorkedOutByHand: what is booked when a job ends, for cases in which a person can say
// what it has to be.
func TestSavingsWorkedOutByHand(t *testing.T) {
	t.Parallel()

	fails := func(share float64) func(*sim.Job) {
		return func(j *sim.Job) { j.Failures = []sim.Failure{{Share: share, Cause: job.CauseUserCode}} }
	}

	// A balanced job of an hour on the yard's T4 costs $0.60. Without it, an H100 would be provisioned:
	// 5 minutes of boot, 15 minutes of work and 5 minutes idle before it is released.
	for name, c := range map[string]struct {
		objective job.Objective
		change    func(*sim.Job)
		offer     func(*fleet.Offer)
		nodes     []fleet.Node
		money     float64
		saved     time.Duration
		kinds     []string
	}{
		"a job that succeeds": {
			objective: job.ObjectiveBalanced, money: 25.0/60*6 - 0.6, saved: -40 * time.Minute, kinds: []string{"placement"},
		},
		"one that is cancelled after 95 seconds would have been cancelled while the machine booted": {
			objective: job.ObjectiveBalanced, change: func(j *sim.Job) { j.CancelAfter = 95 * time.Second },
			money: 95.0/3600*6 - 95.0/3600*0.6, kinds: []string{"placement"},
		},
		"and pays the minimum": {
			objective: job.ObjectiveBalanced, change: func(j *sim.Job) { j.CancelAfter = 95 * time.Second },
			offer: func(o *fleet.Offer) { o.MinBilling = job.Duration(10 * time.Minute) },
			money: 600.0/3600*6 - 95.0/3600*0.6, kinds: []string{"placement"},
		},
		"one that fails at once would have booted a machine for that": {
			objective: job.ObjectiveBalanced, change: fails(0),
			money: 10.0 / 60 * 6, saved: 5 * time.Minute, kinds: []string{"placement"},
		},
		"one that fails after 40 minutes would have failed after 10 minutes of work": {
			objective: job.ObjectiveBalanced, change: fails(2.0 / 3),
			money: 20.0/60*6 - 0.4, saved: -25 * time.Minute, kinds: []string{"placement"},
		},
		"whole hours are billed, and the node is released just before the next": {
			objective: job.ObjectiveBalanced, offer: func(o *fleet.Offer) { o.BillingIncrement = job.Duration(time.Hour) },
			money: 6 - 0.6, saved: -40 * time.Minute, kinds: []string{"placement"},
		},
		"a cost-sensitive job takes the slowest node, and would have taken the other": {
			objective: job.ObjectiveCost, nodes: []fleet.Node{withGPUs("a", fleet.Reserved, 1, "A100")},
			money: 1.2/2 - 0.6, saved: -30 * time.Minute, kinds: []string{"placement"},
		},
		"with another node of the kind nothing is saved": {
			objective: job.ObjectiveBalanced, nodes: []fleet.Node{withGPUs("u", fleet.Reserved, 1, "T4")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			offer, j := h100At(6), training("j", 0, c.objective)
			if c.offer != nil {
				c.offer(&offer)
			}

			if c.change != nil {
				c.change(j)
			}

			w := savingsWorld{
				policy: byRules(), tariff: reserved(), offers: []fleet.Offer{offer}, jobs: []*sim.Job{j},
				nodes: append([]fleet.Node{withGPUs("t", fleet.Reserved, 1, "T4")}, c.nodes...),
			}
			with := w.live(t)
			money, saved := with.total("j1")

			if d := money - dollars(c.money); d > moneyTolerance || -d > moneyTolerance {
				t.Errorf("saved $%s, want $%s: %v", money, dollars(c.money), with.saved["j1"])
			}

			if saved != c.saved {
				t.Errorf("saved %s, want %s: %v", saved, c.saved, with.saved["j1"])
			}

			if kinds := with.kinds("j1"); !slices.Equal(kinds, c.kinds) {
				t.Errorf("booked %v, want %v", kinds, c.kinds)
			}

			replayed(t, "j1", with, w.cordoned(0, "t").live(t), moneyTolerance, timeTolerance)
		})
	}
}

// TestTheCounterfactualOfACostSensitiveJobIsToWait: it would never have taken an H100 while a node
// of the yard becomes free within its patience.
func TestTheCounterfactualOfACostSensitiveJobIsToWait(t *testing.T) {
	t.Parallel()
	w := savingsWorld{
		policy: byRules(), tariff: reserved(), offers: []fleet.Offer{h100At(60)},
		nodes: []fleet.Node{withGPUs("t", fleet.Reserved, 1, "T4"), withGPUs("u", fleet.Reserved, 1, "T4")},
		jobs:  []*sim.Job{training("first", 0, job.ObjectiveCost), training("second", 10*time.Minute, job.ObjectiveCost)},
	}
	with := w.live(t)
	got := with.saved["j2"]

	if len(got) != 1 || got[0].Kind != "placement" || got[0].Money != 0 || got[0].Time.Duration() != 50*time.Minute {
		t.Errorf("booked %v, want 50 minutes of waiting for the other T4 and no money", got)
	}

	replayed(t, "j2", with, w.cordoned(10*time.Minute, "u").live(t), moneyTolerance, timeTolerance)
}

// TestAWaitIsSettledAgainstProvisioning: a job that waits for the yard's node saves the rent and
// loses time; one that had to wait in vain loses the time alone.
func TestAWaitIsSettledAgainstProvisioning(t *testing.T) {
	t.Parallel()
	w := savingsWorld{
		policy: byRules(), tariff: reserved(), offers: []fleet.Offer{h100At(60)},
		nodes: []fleet.Node{withGPUs("t", fleet.Reserved, 1, "T4")},
		jobs:  []*sim.Job{training("first", 0, job.ObjectiveBalanced), training("second", 50*time.Minute, job.ObjectiveBalanced)},
	}
	with := w.live(t)

	if kinds := with.kinds("j2"); !slices.Equal(kinds, []string{"wait"}) {
		t.Fatalf("booked %v, want one wait", with.saved["j2"])
	}

	// It waits for 10 minutes and works for 60. The H100 boots for 5, works for 15 and idles for 5.
	money, saved := with.total("j2")
	if want := dollars(25.0/60*60 - 0.6); money != want || saved != -50*time.Minute {
		t.Errorf("saved $%s and %s, want $%s and -50m", money, saved, want)
	}

	replayed(t, "j2", with, w.cordoned(50*time.Minute, "t").live(t), moneyTolerance, timeTolerance)
}

// TestProvisioningIsSettledAgainstWaiting: a time-sensitive job for which a node is provisioned
// would have waited for the yard's.
func TestProvisioningIsSettledAgainstWaiting(t *testing.T) {
	t.Parallel()
	w := savingsWorld{
		policy: byRules(), tariff: reserved(), offers: []fleet.Offer{h100At(6)},
		nodes: []fleet.Node{withGPUs("t", fleet.Reserved, 1, "T4")},
		jobs:  []*sim.Job{training("first", 0, job.ObjectiveBalanced), training("second", 10*time.Minute, job.ObjectiveTime)},
	}
	with := w.live(t)

	// It boots for 5 minutes, works for 15 and pays for 25. On the T4 it would end 110 minutes after
	// its submission.
	money, saved := with.total("j2")
	if want := dollars(0.6 - 25.0/60*6); money != want || saved != 90*time.Minute {
		t.Errorf("saved $%s and %s, want $%s and 90m: %v", money, saved, want, with.saved["j2"])
	}

	offline := w
	offline.offers = nil
	replayed(t, "j2", with, offline.live(t), moneyTolerance, timeTolerance)
}

// TestPreemptionBooksTheGainAndTheLoss: the urgent job gains the time that it would have waited,
// and the one that was preempted loses what it waits, with the time to save and to restart.
func TestPreemptionBooksTheGainAndTheLoss(t *testing.T) {
	t.Parallel()
	slow := training("slow", 0, job.ObjectiveCost)
	slow.Spec.Checkpoint = &job.Checkpoint{Dir: "c", Every: job.Duration(30 * time.Minute)}
	slow.Spec.Speed = job.NewSpeed(4*3600, 2*time.Minute, time.Minute, slow.Spec.Speed.Rates...)

	w := savingsWorld{
		policy: byRules(), tariff: reserved(), nodes: []fleet.Node{withGPUs("t", fleet.Reserved, 1, "T4")},
		jobs: []*sim.Job{slow, training("urgent", 30*time.Minute, job.ObjectiveTime)},
	}
	with := w.live(t)

	calm := w
	calm.policy = byRules(func(c *rules.Config) { c.Preempt = false })
	without := calm.live(t)

	for _, j := range []id.Job{"j1", "j2"} {
		if kinds := with.kinds(j); !slices.Equal(kinds, []string{"preemption"}) {
			t.Errorf("%s: booked %v, want one preemption", j, with.saved[j])
		}

		replayed(t, j, with, without, moneyTolerance, timeTolerance)
	}

	// A minute to save, an hour of the urgent job, two minutes to restart.
	money, saved := with.total("j1")
	if want := dollars(-3.0 / 60 * 0.6); money != want || saved != -63*time.Minute {
		t.Errorf("the preempted job lost $%s and %s, want $%s and -63m", money, saved, want)
	}
}

var _ = math.Abs
var _ = fmt.Sprint
var _ = andreas.Defaults
var _ = rapid.Check
