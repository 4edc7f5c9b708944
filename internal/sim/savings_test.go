package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
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
	cost  map[id.Job]ledger.Nanos
	ended map[id.Job]time.Duration
	began map[id.Job]time.Duration
	state map[id.Job]job.State
	saved map[id.Job][]ledger.Saving
	made  map[id.Job]time.Time // the first decision
	offer map[id.Job]string    // that was provisioned for it
	node  map[id.Job]id.Node   // on which it started first
}

// observed is a policy of which is written down where it starts each job first.
type observed struct {
	place.Policy
	first map[id.Job]id.Node
}

func (o *observed) Plan(v *place.View) place.Plan {
	p := o.Policy.Plan(v)
	for i := range p.Starts {
		if _, known := o.first[p.Starts[i].Item.Job]; !known {
			o.first[p.Starts[i].Item.Job] = p.Starts[i].Allocations[0].Node
		}
	}

	return p
}

// far is when everything has ended, and provisioned nodes have been released.
const far = 30 * time.Hour

func (w *savingsWorld) live(t interface{ Fatal(...any) }) *lived {
	l := &lived{
		cost: map[id.Job]ledger.Nanos{}, ended: map[id.Job]time.Duration{}, began: map[id.Job]time.Duration{},
		state: map[id.Job]job.State{}, saved: map[id.Job][]ledger.Saving{}, made: map[id.Job]time.Time{},
		offer: map[id.Job]string{}, node: map[id.Job]id.Node{},
	}

	changes := slices.Clone(w.changes)
	if len(w.nodes) > 0 { // without something to come the simulation ends with the last job
		changes = append(changes, sim.Change{At: far, Kind: sim.NodeUncordoned, ID: w.nodes[0].ID})
	}

	cfg := sim.Config{
		Policy: &observed{w.policy(), l.node}, Nodes: w.nodes, Tariff: w.tariff, Jobs: &list{jobs: w.jobs},
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
		OnLease: func(x *fleet.Lease) { l.offer[x.Job] = x.Offer.Name },
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
func (l *lived) total(j id.Job) (amount ledger.Nanos, saved time.Duration) {
	for _, s := range l.saved[j] {
		amount += s.Money
		saved += s.Time.Duration()
	}

	return amount, saved
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

// The tolerances are what exact means: times are recorded in milliseconds, and two of them cost less
// than that at the prices of the tests.
const (
	moneyTolerance = ledger.Nanos(40_000)
	timeTolerance  = 2 * time.Millisecond
)

// replayed compares what was booked for a job with the difference to the world without the decision.
func replayed(t interface {
	Fatal(args ...any)
	Errorf(format string, args ...any)
}, j id.Job, with, without *lived, amount ledger.Nanos, within time.Duration,
) {
	gotMoney, gotTime := with.total(j)
	wantMoney := without.cost[j] - with.cost[j]
	wantTime := without.ended[j] - with.ended[j]

	if d := gotMoney - wantMoney; d > amount || -d > amount {
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

func dollars(d money.Amount) ledger.Nanos { return ledger.NanosOf(d) }

// reserved is a tariff by which a node with a T4 costs $0.60 an hour and one with an A100 $1.20,
// used or not.
func reserved() *fleet.Tariff {
	return &fleet.Tariff{Nodes: []fleet.NodePrice{
		{GPU: "T4", Hourly: []money.PerHour{0.6}}, {GPU: "A100", Hourly: []money.PerHour{1.2}},
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
		money     money.Amount
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
			amount, saved := with.total("j1")

			if d := amount - dollars(c.money); d > moneyTolerance || -d > moneyTolerance {
				t.Errorf("saved $%s, want $%s: %v", amount, dollars(c.money), with.saved["j1"])
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
	amount, saved := with.total("j2")
	if want := dollars(25.0/60*60 - 0.6); amount != want || saved != -50*time.Minute {
		t.Errorf("saved $%s and %s, want $%s and -50m", amount, saved, want)
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
	amount, saved := with.total("j2")
	if want := dollars(0.6 - 25.0/60*6); amount != want || saved != 90*time.Minute {
		t.Errorf("saved $%s and %s, want $%s and 90m: %v", amount, saved, want, with.saved["j2"])
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
	amount, saved := with.total("j1")
	if want := dollars(-3.0 / 60 * 0.6); amount != want || saved != -63*time.Minute {
		t.Errorf("the preempted job lost $%s and %s, want $%s and -63m", amount, saved, want)
	}
}

// elastic is a job that runs on one or two GPUs, with a deadline.
func elastic(at, due time.Duration) *sim.Job {
	j := training("elastic", at, job.ObjectiveBalanced)
	j.Spec.Resources.GPUs.Max = 2
	j.Spec.Checkpoint = &job.Checkpoint{Dir: "c", Every: job.Duration(time.Minute)}
	deadline := sim.Epoch().Add(at + due)
	j.Spec.Deadline = &deadline
	j.Spec.Speed = job.NewSpeed(2*3600, time.Minute, 0, job.Rate{GPU: "A100", GPUs: 1, PerSecond: 1},
		job.Rate{GPU: "H100", GPUs: 1, PerSecond: 2})

	return j
}

// TestAndreasSavesPowerByASlowerNode: the job has time, so it gets the node that costs less instead
// of the fast one.
func TestAndreasSavesPowerByASlowerNode(t *testing.T) {
	t.Parallel()
	w := savingsWorld{
		policy: func() place.Policy { return andreas.New(andreas.Defaults()) },
		tariff: &fleet.Tariff{Energy: 0.5, Nodes: []fleet.NodePrice{
			{GPU: "A100", Watts: []float64{0, 300}, Off: true},
			{GPU: "H100", Watts: []float64{0, 1400}, Off: true},
		}},
		nodes: []fleet.Node{withGPUs("a", fleet.Local, 1, "A100"), withGPUs("h", fleet.Local, 1, "H100")},
		jobs:  []*sim.Job{elastic(0, 100*time.Hour)},
	}
	with := w.live(t)

	// Two hours and a minute at 300 W, instead of an hour and a minute at 1400 W.
	amount, saved := with.total("j1")
	want := dollars(0.5 * (1.4*61/60 - 0.3*121/60))
	if d := amount - want; d > moneyTolerance || -d > moneyTolerance || saved != -time.Hour {
		t.Errorf("saved $%s and %s, want $%s and -1h: %v", amount, saved, want, with.saved["j1"])
	}

	if kinds := with.kinds("j1"); !slices.Equal(kinds, []string{"power"}) {
		t.Errorf("booked %v, want one decision to save power", with.saved["j1"])
	}

	replayed(t, "j1", with, w.cordoned(0, "a").live(t), moneyTolerance, timeTolerance)
}

// TestAMoveIsSettledAgainstStaying: a job that is late moves to the fast node when that becomes
// free. It loses a minute to restart and gains what the rest takes less.
func TestAMoveIsSettledAgainstStaying(t *testing.T) {
	t.Parallel()
	w := savingsWorld{
		policy: func() place.Policy { return andreas.New(andreas.Defaults()) },
		tariff: &fleet.Tariff{Nodes: []fleet.NodePrice{{GPU: "A100", Hourly: []money.PerHour{1}}, {GPU: "H100", Hourly: []money.PerHour{3}}}},
		nodes:  []fleet.Node{withGPUs("a", fleet.Reserved, 1, "A100"), withGPUs("h", fleet.Reserved, 1, "H100")},
		jobs:   []*sim.Job{elastic(0, 30*time.Minute)},
	}
	w.jobs[0].Spec.LateCost = 1
	w.changes = []sim.Change{
		{At: 0, Kind: sim.NodeCordoned, ID: "h"}, {At: 20 * time.Minute, Kind: sim.NodeUncordoned, ID: "h"},
	}
	with := w.live(t)

	if kinds := with.kinds("j1"); !slices.Equal(kinds, []string{"move"}) {
		t.Fatalf("booked %v, want one move", with.saved["j1"])
	}

	stays := w
	stays.changes = w.changes[:1]
	replayed(t, "j1", with, stays.live(t), moneyTolerance, timeTolerance)

	// After 20 minutes 101 are left, of which the fast node takes half; a minute goes to the restart.
	if _, saved := with.total("j1"); saved != 49*time.Minute+30*time.Second {
		t.Errorf("the move saved %s, want 49m30s", saved)
	}
}

// models are the GPUs of drawn worlds. Rates divide hours of work into whole seconds, so that
// billing increments begin and end at the same time wherever they are computed.
var models = map[string]float64{"T4": 1, "A100": 2, "L4": 3, "H100": 4}

func drawModel(t *rapid.T, what string) string {
	return rapid.SampledFrom([]string{"T4", "A100", "L4", "H100"}).Draw(t, what)
}

// drawTraining draws a job of one GPU that succeeds, fails by itself or is cancelled.
func drawTraining(t *rapid.T, name string, at time.Duration) *sim.Job {
	objectives := []job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost}
	j := training(name, at, rapid.SampledFrom(objectives).Draw(t, name+" objective"))
	start := time.Duration(rapid.IntRange(0, 3).Draw(t, name+" start")) * time.Minute

	var rates []job.Rate
	for _, model := range []string{"T4", "A100", "L4", "H100"} {
		rates = append(rates, job.Rate{GPU: model, GPUs: 1, PerSecond: models[model]})
	}

	work := 720 * rapid.IntRange(1, 30).Draw(t, name+" work")
	j.Spec.Speed = job.NewSpeed(float64(work), start, 0, rates...)

	return j
}

// drawEnd lets a job end in another way than by success.
func drawEnd(t *rapid.T, j *sim.Job) {
	switch rapid.IntRange(0, 2).Draw(t, j.Name+" end") {
	case 1:
		share := float64(rapid.IntRange(0, 9).Draw(t, j.Name+" fails at")) / 10
		j.Failures = []sim.Failure{{Share: share, Cause: job.CauseUserCode}}
	case 2:
		j.CancelAfter = time.Duration(rapid.IntRange(1, 14_000).Draw(t, j.Name+" cancelled after"))*time.Second + time.Second/2
	}
}

func drawOffer(t *rapid.T, name string) fleet.Offer {
	model := drawModel(t, name+" gpu")
	o := h100At(float64(rapid.IntRange(1, 60).Draw(t, name+" hourly")) / 5)
	o.Name, o.Type, o.GPU = "aws/"+name, name, model
	o.Boot = job.Duration(rapid.IntRange(0, 600).Draw(t, name+" boot")) * job.Duration(time.Second)
	o.BillingIncrement = rapid.SampledFrom([]job.Duration{
		0, job.Duration(time.Second), job.Duration(time.Minute), job.Duration(time.Hour),
	}).Draw(t, name+" increment")
	o.MinBilling = rapid.SampledFrom([]job.Duration{
		0, job.Duration(time.Minute), job.Duration(20 * time.Minute),
	}).Draw(t, name+" minimum")

	return o
}

func drawTariff(t *rapid.T) *fleet.Tariff {
	tariff := &fleet.Tariff{Energy: 0.25}
	for _, model := range []string{"T4", "A100", "L4", "H100"} {
		hourly := money.PerHour(rapid.IntRange(0, 20).Draw(t, model+" hourly")) / 4
		watts := float64(rapid.IntRange(1, 8).Draw(t, model+" watts")) * 100
		tariff.Nodes = append(tariff.Nodes, fleet.NodePrice{
			GPU: model, Hourly: []money.PerHour{hourly}, Watts: []float64{watts / 2, watts},
		})
	}

	return tariff
}

// without returns the world without the option that was chosen for a job: the offer that was
// provisioned for it, or the node on which it started.
func (w savingsWorld) without(with *lived, j id.Job) *savingsWorld {
	offer, node := with.offer[j], with.node[j]
	if offer != "" {
		w.offers = slices.DeleteFunc(slices.Clone(w.offers), func(o fleet.Offer) bool { return o.Name == offer })
		return &w
	}

	return w.cordoned(with.made[j].Sub(sim.Epoch()), node)
}

// patient takes back that the last job is cancelled if it was done before. What its owner would have
// done later is not known when it ends.
func (w *savingsWorld) patient(with *lived, j id.Job) {
	if with.state[j] != job.Cancelled {
		w.jobs[len(w.jobs)-1].CancelAfter = 0
	}
}

// TestSavingsAreWhatAReplayWithoutTheDecisionCosts: in a yard with nothing else, what is booked is
// exactly the difference in the ledger, and in the end of the job, to the same world without the
// option that was chosen.
func TestSavingsAreWhatAReplayWithoutTheDecisionCosts(t *testing.T) {
	t.Parallel()

	booked := 0
	rapid.Check(t, func(t *rapid.T) {
		w := savingsWorld{policy: byRules(), tariff: drawTariff(t), jobs: []*sim.Job{drawTraining(t, "j", 0)}}
		drawEnd(t, w.jobs[0])

		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			class := rapid.SampledFrom([]fleet.Class{fleet.Local, fleet.Reserved}).Draw(t, "class")
			w.nodes = append(w.nodes, withGPUs(fmt.Sprint("n", i), class, 1, drawModel(t, "gpu")))
		}

		for i := range rapid.IntRange(0, 2).Draw(t, "offers") {
			w.offers = append(w.offers, drawOffer(t, fmt.Sprint("o", i)))
		}

		with := w.live(t)
		if with.made["j1"].IsZero() {
			return // there was nothing else, or nothing else of another kind
		}

		w.patient(with, "j1")

		without := w.without(with, "j1").live(t)
		if _, ended := without.ended["j1"]; !ended {
			t.Fatalf("booked %v, but without the decision the job never ends", with.saved["j1"])
		}

		booked++
		replayed(t, "j1", with, without, moneyTolerance, timeTolerance)
	})

	if booked < 20 {
		t.Errorf("only %d worlds had a decision", booked)
	}
}

// TestAndreasSavingsAreWhatAReplayCosts: with two nodes, of which unused ones are switched off, what is
// booked is exactly the difference to the world with the other node alone.
func TestAndreasSavingsAreWhatAReplayCosts(t *testing.T) {
	t.Parallel()

	kinds := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := savingsWorld{
			policy: func() place.Policy { return andreas.New(andreas.Defaults()) }, tariff: drawTariff(t),
			nodes: []fleet.Node{withGPUs("a", fleet.Local, 1, "A100"), withGPUs("h", fleet.Local, 1, "H100")},
			jobs:  []*sim.Job{drawTraining(t, "j", 0)},
		}
		drawEnd(t, w.jobs[0])

		for i := range w.tariff.Nodes {
			w.tariff.Nodes[i].Off = true
			w.tariff.Nodes[i].Boot = job.Duration(rapid.IntRange(0, 10).Draw(t, "boot")) * job.Duration(time.Minute)
		}

		if hours := rapid.IntRange(0, 4).Draw(t, "deadline"); hours > 0 {
			deadline := sim.Epoch().Add(time.Duration(hours) * time.Hour)
			w.jobs[0].Spec.Deadline = &deadline
		}

		with := w.live(t)
		if with.made["j1"].IsZero() {
			return
		}

		for _, k := range with.kinds("j1") {
			kinds[k]++
		}

		w.patient(with, "j1")
		replayed(t, "j1", with, w.without(with, "j1").live(t), moneyTolerance, timeTolerance)
	})

	for _, k := range []string{"placement", "power"} {
		if kinds[k] == 0 {
			t.Errorf("no world had a decision of the kind %s: %v", k, kinds)
		}
	}
}

// TestSavingsInABusyYard: the last of several jobs waits for the others, or has a node provisioned
// instead, or takes the last node. If the others last as long as expected what is booked is exact;
// if they end earlier, the time of a job that would have waited is wrong by as much at most. Worlds
// are left out in which a job for which a node would have been provisioned would have found another
// before that was ready: the counterfactual is one decision, not all that would have followed.
func TestSavingsInABusyYard(t *testing.T) {
	t.Parallel()

	kinds := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := savingsWorld{policy: byRules(), tariff: drawTariff(t), offers: []fleet.Offer{drawOffer(t, "o")}}
		count := rapid.IntRange(1, 3).Draw(t, "nodes")
		model := drawModel(t, "gpu")
		for i := range count {
			w.nodes = append(w.nodes, withGPUs(fmt.Sprint("n", i), fleet.Reserved, 1, model))
		}

		earlier := rapid.IntRange(0, count).Draw(t, "earlier jobs")
		slack := time.Duration(0)
		for i := range earlier {
			j := drawTraining(t, fmt.Sprint("j", i), time.Duration(i)*time.Minute)
			j.Spec.Place, j.Spec.Objective = job.PlaceAny, job.ObjectiveCost // they take nodes of the yard
			if rapid.Bool().Draw(t, j.Name+" ends early") {
				j.Failures = []sim.Failure{{Share: 0.7, Cause: job.CauseUserCode}}
				slack = max(slack, job.Seconds(0.3*j.Spec.Speed.Work/models[model]))
			}

			w.jobs = append(w.jobs, j)
		}

		last := drawTraining(t, "last", 10*time.Minute)
		drawEnd(t, last)
		w.jobs = append(w.jobs, last)

		name := id.NewJob(uint64(earlier + 1))
		with := w.live(t)
		if len(with.saved[name]) == 0 {
			return
		}

		w.patient(with, name)

		for _, k := range with.kinds(name) {
			kinds[k]++
		}

		var without *lived
		if slices.Contains(with.kinds(name), "wait") {
			var all []id.Node
			for i := range w.nodes {
				all = append(all, w.nodes[i].ID)
			}

			without = w.cordoned(with.made[name].Sub(sim.Epoch()), all...).live(t)
			slack = 0 // it would not have waited for anybody
		} else {
			without = w.without(with, name).live(t)
		}

		if _, ended := without.ended[name]; !ended {
			t.Fatalf("booked %v, but without the decision the job never ends", with.saved[name])
		}

		provisions := strings.HasPrefix(with.saved[name][0].Reason, "provision ")
		if provisions != strings.HasPrefix(string(without.node[name]), "cloud-") {
			return
		}

		tolerance := moneyTolerance
		if slack > 0 && last.CancelAfter > 0 {
			tolerance += dollars(money.PerHour(6).For(slack)) // by then it would have run for longer than was expected
		}

		replayed(t, name, with, without, tolerance, timeTolerance+slack)
	})

	for _, k := range []string{"placement", "wait"} {
		if kinds[k] == 0 {
			t.Errorf("no world had a decision of the kind %s: %v", k, kinds)
		}
	}
}
