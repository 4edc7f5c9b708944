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
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
)

// families are policies of each family: those that start jobs in an order, those that preempt, those
// that resize, and those with a cost model of their own.
func families() []string { return []string{"fifo", "srtf", "elastic-fifo", "andreas", "rules"} }

// under sets the policy of a world.
func (w savingsWorld) under(t *testing.T, policy string) savingsWorld {
	t.Helper()

	newPolicy, err := catalogue.All(nil).Make(policy)
	if err != nil {
		t.Fatal(err)
	}

	w.policy = newPolicy

	return w
}

// TestWaitOrProvisionUnderEveryFamily: the last job finds every node of the yard in use. Whether it waits
// or has a node provisioned, what is booked is the difference to the world without that choice. Worlds
// are left out in which it starts on a node of the yard before the one that is provisioned for it is
// ready, in this world or in the other: that is a second decision.
func TestWaitOrProvisionUnderEveryFamily(t *testing.T) {
	t.Parallel()

	for _, policy := range families() {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()

			kinds := map[string]int{}
			base := savingsWorld{}.under(t, policy)
			rapid.Check(t, func(t *rapid.T) {
				w := base
				w.tariff = drawTariff(t)
				model := drawModel(t, "gpu")
				count := rapid.IntRange(1, 2).Draw(t, "nodes")

				for i := range count {
					w.nodes = append(w.nodes, withGPUs(fmt.Sprint("n", i), fleet.Local, 1, model))
					j := drawTraining(t, fmt.Sprint("j", i), time.Duration(i)*time.Minute)
					j.Spec.Place = job.PlaceLocal
					w.jobs = append(w.jobs, j)
				}

				for i := range rapid.IntRange(1, 2).Draw(t, "offers") {
					w.offers = append(w.offers, drawOffer(t, fmt.Sprint("o", i)))
				}

				last := drawTraining(t, "last", 10*time.Minute)
				if rapid.Bool().Draw(t, "has a deadline") {
					deadline := sim.Epoch().Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "deadline")) * time.Hour)
					last.Spec.Deadline = &deadline
				}

				drawEnd(t, last)
				w.jobs = append(w.jobs, last)

				waitOrProvision(t, &w, id.NewJob(uint64(count+1)), kinds)
			})

			for _, k := range []string{"placement", "wait"} {
				if kinds[k] == 0 {
					t.Errorf("no world had a decision of the kind %s: %v", k, kinds)
				}
			}
		})
	}
}

// waitOrProvision replays a world without what was decided about its last job.
func waitOrProvision(t *rapid.T, w *savingsWorld, name id.Job, kinds map[string]int) {
	with := w.live(t)
	cloud := func(l *lived) bool { return strings.HasPrefix(string(l.node[name]), "cloud-") }
	if len(with.saved[name]) == 0 || with.offer[name] != "" && !cloud(with) {
		return
	}

	w.patient(with, name)

	var without *lived
	if slices.Contains(with.kinds(name), "wait") {
		var all []id.Node
		for i := range w.nodes {
			all = append(all, w.nodes[i].ID)
		}

		without = w.cordoned(with.made[name].Sub(sim.Epoch()), all...).live(t)
	} else {
		without = w.without(with, name).live(t)
	}

	if _, ended := without.ended[name]; !ended {
		t.Fatalf("booked %v, but without the decision the job never ends", with.saved[name])
	}

	if strings.HasPrefix(with.saved[name][0].Reason, "provision ") != cloud(without) {
		return
	}

	for _, k := range with.kinds(name) {
		kinds[k]++
	}

	replayed(t, name, with, without, moneyTolerance, timeTolerance)
}

// TestStopsBookTheGainAndTheLossUnderEveryFamily: a running job is preempted for another, or gives up one
// of its GPUs. What it loses, with the time to save, to restart and to wait, is booked whatever policy
// decided it, and so is what the other gains. Both are the difference to the world in which the first
// cannot be stopped.
func TestStopsBookTheGainAndTheLossUnderEveryFamily(t *testing.T) {
	t.Parallel()

	for policy, c := range map[string]struct {
		gpus  int
		other time.Duration // how long the other job takes
		kind  string
	}{
		"las":          {gpus: 1, other: time.Hour, kind: "preemption"},
		"srtf":         {gpus: 1, other: time.Hour, kind: "preemption"},
		"andreas":      {gpus: 1, other: time.Hour, kind: "preemption"},
		"rules":        {gpus: 1, other: time.Hour, kind: "preemption"},
		"tiresias":     {gpus: 1, other: time.Hour, kind: "preemption"},
		"elastic-fifo": {gpus: 2, other: 12 * time.Hour, kind: "move"},
		"equal-share":  {gpus: 2, other: 12 * time.Hour, kind: "move"},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()

			first := training("first", 0, job.ObjectiveCost)
			first.Spec.Resources.GPUs.Max = c.gpus
			first.Spec.Checkpoint = &job.Checkpoint{Dir: "c", Every: job.Duration(30 * time.Minute)}
			first.Spec.Speed = job.NewSpeed(8*3600, 2*time.Minute, time.Minute,
				job.Rate{GPU: "T4", GPUs: 1, PerSecond: 1}, job.Rate{GPU: "T4", GPUs: 2, PerSecond: 1.75})

			second := training("second", 3*time.Hour, job.ObjectiveTime)
			second.Owner = "bob"
			second.Spec.Speed = job.NewSpeed(c.other.Seconds(), 0, 0, job.Rate{GPU: "T4", GPUs: 1, PerSecond: 1})

			if policy == "andreas" {
				deadline := sim.Epoch().Add(second.At + c.other + 10*time.Minute)
				second.Spec.Deadline, second.Spec.LateCost = &deadline, 100
			}

			w := savingsWorld{
				tariff: reserved(), nodes: []fleet.Node{withGPUs("t", fleet.Reserved, c.gpus, "T4")},
				jobs: []*sim.Job{first, second},
			}.under(t, policy)
			with := w.live(t)

			if kinds := with.kinds("j1"); !slices.Equal(kinds, []string{c.kind}) {
				t.Fatalf("booked %v, want one %s", with.saved["j1"], c.kind)
			}

			if _, saved := with.total("j1"); saved >= 0 {
				t.Errorf("booked %s, want a loss", saved)
			}

			unstoppable, fixed := *first, *first.Spec
			unstoppable.Spec, fixed.Checkpoint = &fixed, nil
			w.jobs = []*sim.Job{&unstoppable, second}
			without := w.live(t)
			replayed(t, "j1", with, without, moneyTolerance, timeTolerance)

			if kinds := with.kinds("j2"); !slices.Equal(kinds, []string{c.kind}) {
				t.Fatalf("booked %v for the other job, want one %s", with.saved["j2"], c.kind)
			}

			replayed(t, "j2", with, without, moneyTolerance, timeTolerance)
		})
	}
}

// TestAPreemptedJobLosesUntilItRunsAgain: the job waits for the node from which it was preempted, until
// that is cordoned. The machine that has to be provisioned for it then boots on account of the
// preemption.
func TestAPreemptedJobLosesUntilItRunsAgain(t *testing.T) {
	t.Parallel()

	first := training("first", 0, job.ObjectiveCost)
	first.Spec.Checkpoint = &job.Checkpoint{Dir: "c", Every: job.Duration(30 * time.Minute)}
	first.Spec.Speed = job.NewSpeed(8*3600, 2*time.Minute, time.Minute, first.Spec.Speed.Rates...)

	second := training("second", 3*time.Hour, job.ObjectiveTime)
	second.Spec.Place = job.PlaceLocal

	w := savingsWorld{
		tariff: &fleet.Tariff{}, offers: []fleet.Offer{h100At(6)},
		nodes: []fleet.Node{withGPUs("t", fleet.Local, 1, "T4")}, jobs: []*sim.Job{first, second},
		changes: []sim.Change{{At: 3*time.Hour + 10*time.Minute, Kind: sim.NodeCordoned, ID: "t"}},
	}.under(t, "srtf")
	with := w.live(t)

	// It waits for ten minutes, the machine boots for five, and the job starts up for two.
	amount, saved := with.total("j1")
	if want := dollars(-5.0 / 60 * 6); amount != want || saved != -17*time.Minute {
		t.Errorf("lost $%s and %s, want $%s and -17m: %v", amount, saved, want, with.saved["j1"])
	}

	if kinds := with.kinds("j1"); !slices.Equal(kinds, []string{"preemption"}) {
		t.Errorf("booked %v, want one preemption", with.saved["j1"])
	}
}
