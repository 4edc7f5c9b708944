package yardmaster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// gangHirer starts what fits, and provisions for each job that waits and has no lease.
type gangHirer struct{}

func (gangHirer) Name() string  { return "gang-hirer" }
func (gangHirer) Revises() bool { return false }

func (gangHirer) Plan(v *place.View) place.Plan {
	plan := ordered.FIFO{}.Plan(v)
	served := map[id.Job]bool{}
	for i := range plan.Starts {
		served[plan.Starts[i].Item.Job] = true
	}

	for _, l := range v.Leases {
		served[l.Job] = served[l.Job] || l.Live()
	}

	for _, it := range v.Queue.Items() {
		if !served[it.Job] && it.Shape.Need.Nodes > 1 {
			plan.Provisions = append(
				plan.Provisions,
				place.Provision{
					Item:   it,
					Offer:  v.Offers[0].Name,
					Count:  it.Shape.Need.Nodes,
					Reason: "it waits and nothing is free",
				},
			)
		}
	}

	return plan
}

// provisioningYard returns a yard whose job j1 waits for three nodes, for which leases l1 to l3
// were written.
func provisioningYard(t *testing.T, changes ...func(*job.Spec)) *yard {
	t.Helper()
	cfg := yardmaster.Defaults(gangHirer{})
	cfg.Offers = []fleet.Offer{
		{
			Name:      "p/small/north",
			Provider:  "p",
			Type:      "small",
			Region:    "north",
			GPU:       "NVIDIA L4",
			GPUs:      1,
			GPUMemory: 24 << 30,
			CPUs:      8000,
			Memory:    32 << 30,
			Hourly:    1e6,
			Boot:      job.Duration(4 * time.Minute),
		},
	}

	y := &yard{Yard: yardmaster.New(cfg), t: t, now: start}
	y.ok(yardmaster.PutUser{User: "alice", Role: tenant.Admin, By: "test"})

	s := gang(3)
	for _, change := range changes {
		change(s)
	}

	y.submit("alice", s)
	y.round()

	if got, want := y.leases(), "l1 requested, l2 requested, l3 requested"; got != want {
		t.Fatalf("the leases are %q, want %q", got, want)
	}

	return y
}

// leases lists the leases that have not ended in words.
func (y *yard) leases() string {
	var words []string
	for n := range uint64(9) {
		if l := y.Lease(id.NewLease(n + 1)); l != nil {
			words = append(words, fmt.Sprint(l.ID, " ", l.State))
		}
	}

	return strings.Join(words, ", ")
}

// grants lets the cloud make the machine of a lease.
func (y *yard) grants(l id.Lease) {
	y.t.Helper()
	y.ok(
		yardmaster.LeaseGranted{
			Lease:    l,
			Provider: "p",
			Machine:  fleet.Instance{ID: "i-" + string(l), Lease: l, State: fleet.InstanceUp, Billed: -1},
		},
	)
}

// joins lets the machine of a lease be made and become a node.
func (y *yard) joins(l id.Lease) {
	y.t.Helper()

	offer := y.Lease(l).Offer
	y.joinsAs(l, offer.Node().Inventory)
}

// joinsAs lets the machine of a lease become a node with this hardware.
func (y *yard) joinsAs(l id.Lease, inv fleet.Inventory) {
	y.t.Helper()
	if y.Lease(l).State == fleet.LeaseRequested {
		y.grants(l)
	}

	token := id.Token("boot-" + l)
	y.ok(
		yardmaster.AddToken{
			By: "alice",
			Token: tenant.Token{
				ID:       token,
				Kind:     tenant.JoinToken,
				Owner:    "alice",
				Class:    string(fleet.OnDemand),
				Lease:    l,
				UsesLeft: 1,
				Expires:  start.AddDate(1, 0, 0),
			},
		},
	)

	y.ok(yardmaster.Join{Token: token, Name: "cloud-" + string(l), Key: "key-" + string(l), Inventory: inv})
	y.round()
}

// TestOneOfAGangIsGivenBackByHand gives one of three leases back: while their job waits
// the others are of no use to it, and once it runs they are what it runs on.
func TestOneOfAGangIsGivenBackByHand(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		before func(y *yard)
		want   string
	}{
		"none has come": {func(*yard) {}, "l1 releasing, l2 releasing, l3 releasing"},
		"another is a node": {func(y *yard) { y.joins("l2") },
			"l1 releasing, l2 releasing, l3 releasing"},
		"it is a node": {func(y *yard) { y.joins("l1") },
			"l1 releasing, l2 releasing, l3 releasing"},
		"another is a node and runs something else": {func(y *yard) {
			y.joins("l2")
			j := y.submit("alice", spec(1))
			y.round()
			y.running(j, 0)
		}, "l1 releasing, l2 active, l3 releasing"},
		"the job runs": {func(y *yard) {
			for _, l := range []id.Lease{"l1", "l2", "l3"} {
				y.joins(l)
			}

			y.running("j1", 0, 1, 2)
		}, "l1 active, l2 active, l3 active"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := provisioningYard(t)
			tc.before(y)
			y.ok(yardmaster.ReleaseLease{Lease: "l1", By: "alice"})
			y.check()

			if got := y.leases(); got != tc.want {
				t.Errorf("the leases are %q, want %q", got, tc.want)
			}

			stops := map[id.Node]bool{}
			for _, o := range y.Orders() {
				stops[o.Node] = o.Stop != job.StopNone
			}

			for node, stopped := range stops {
				if !stopped {
					t.Errorf("what runs on %s is not stopped", node)
				}
			}
		})
	}
}

// TestMachinesOfAJobWithoutMoneyAreReleased lets the boot of its machines use up the budget of a job.
func TestMachinesOfAJobWithoutMoneyAreReleased(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		budget job.Money
		other  bool // another job starts on one of them first
		want   string
	}{
		"it never starts":              {budget: 100_000, want: "l1 releasing, l2 releasing, l3 releasing"},
		"another job uses one of them": {budget: 100_000, other: true, want: "l1 active, l2 releasing, l3 releasing"},
		"enough is left":               {budget: 10_000_000, want: "l1 active, l2 active, l3 active"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := provisioningYard(t, func(s *job.Spec) { s.Budget = tc.budget })

			for _, l := range []id.Lease{"l1", "l2", "l3"} {
				y.grants(l)
			}

			y.now = y.now.Add(4 * time.Minute) // 3 × $0.067

			for _, l := range []id.Lease{"l1", "l2", "l3"} {
				y.joins(l)
			}

			if tc.other {
				j := y.submit("alice", spec(1))
				y.round()
				y.running(j, 0)
			}

			y.pass(time.Second, "cloud-l1", "cloud-l2", "cloud-l3")
			y.check()

			if got := y.leases(); got != tc.want {
				t.Errorf("the leases are %q, want %q", got, tc.want)
			}

			for _, o := range y.Orders() {
				if o.Stop != job.StopNone {
					t.Errorf("%s is stopped", o.Job)
				}
			}
		})
	}
}

func TestAGangIsProvisionedAnewAfterOneWasGivenBack(t *testing.T) {
	t.Parallel()
	y := provisioningYard(t)
	y.ok(yardmaster.ReleaseLease{Lease: "l2", By: "alice"})
	y.round()

	if got, want := y.leases(), "l1 releasing, l2 releasing, l3 releasing, l4 requested, l5 requested, l6 requested"; got != want {
		t.Errorf("the leases are %q, want %q", got, want)
	}
}

// TestAProviderIsBackWhenItHasAnsweredForAWhile lets a provider fail every now and then.
func TestAProviderIsBackWhenItHasAnsweredForAWhile(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	fails, answers := yardmaster.ProviderFailed{Provider: "p", Why: "503"}, yardmaster.InstancesListed{Provider: "p"}
	y.Take()

	step := func(d time.Duration, m yardmaster.Message, failing bool, want ...string) {
		t.Helper()
		y.pass(d)
		y.ok(m)

		var got []string
		for _, e := range y.Take().Events {
			got = append(got, e.Kind)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s it is said:\n%s", y.now.Sub(start), diff)
		}

		if _, ok := y.Failing()["p"]; ok != failing {
			t.Errorf("after %s it fails: %v, want %v", y.now.Sub(start), ok, failing)
		}
	}

	step(0, fails, true, "provider.failed")

	for range 5 {
		step(5*time.Second, answers, true)
		step(30*time.Second, answers, true)
		step(25*time.Second, fails, true)
	}

	step(time.Hour, answers, true) // nobody has heard of it in between
	step(time.Minute-time.Second, yardmaster.Tick{}, true)
	step(time.Second, yardmaster.Tick{}, false, "provider.back")
	step(time.Second, answers, false)
	step(time.Second, fails, true, "provider.failed")
}

// TestANodeThatFallsSilentAgainIsSuspectAgain lets a suspect node be heard once.
func TestANodeThatFallsSilentAgainIsSuspectAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)

	state := func() fleet.State {
		n, _ := y.NodeByName("a")
		return n.State
	}

	after := yardmaster.Defaults(nil).SuspectAfter
	for _, wait := range []time.Duration{after, after + after/2, 2*after - 5*time.Second, 3 * after} {
		y.ok(yardmaster.NodeReport{Node: "a"})
		y.pass(after - 5*time.Second)

		if got := state(); got != fleet.Ready {
			t.Fatalf("it is %s before it was silent for %s", got, after)
		}

		y.pass(5 * time.Second)

		if got := state(); got != fleet.Suspect {
			t.Fatalf("it is %s after it was silent for %s, want suspect", got, after)
		}

		y.pass(wait - after)
	}
}

func TestAJobSaysWhichNodeIsBeingProvisionedForIt(t *testing.T) {
	t.Parallel()
	y := provisioningYard(t)
	want := "a node is being provisioned: p/small/north (lease l1, requested), expected at " +
		start.Add(4*time.Minute).Format("15:04 MST")

	w, waits := y.Why(y.now, "j1")
	if !waits || w.Blocker != place.BlockProvisioning || w.Sentence != want {
		t.Errorf("why it waits: %+v, want %q", w, want)
	}

	if b := y.Briefs(y.now, []id.Job{"j1"}); b[0].WaitReason != want {
		t.Errorf("the list says %q, want %q", b[0].WaitReason, want)
	}
}

// TestAJobThatIsQueuedAgainKeepsWhatIsProvisionedForIt lets the queue entry of a job that waits for nodes be made anew:
// because a node came that runs jobs of one user at a time, and because the rule of its data changed. Only the latter
// changes which nodes it may have.
func TestAJobThatIsQueuedAgainKeepsWhatIsProvisionedForIt(t *testing.T) {
	t.Parallel()
	y := provisioningYard(t)

	y.ok(yardmaster.AddToken{By: "alice", Token: tenant.Token{
		ID: "own", Kind: tenant.JoinToken, Owner: "alice", Class: string(fleet.Local), UsesLeft: 1,
		Expires: start.AddDate(1, 0, 0),
	}})
	y.ok(yardmaster.Join{Token: "own", Name: "alone", Key: "key-alone", Inventory: fleet.Inventory{
		CPUs: 8000, Memory: 32 << 30, SingleUser: true,
	}})
	y.round()

	if got, want := y.leases(), "l1 requested, l2 requested, l3 requested"; got != want {
		t.Errorf("after a node for one user at a time has joined the leases are %q, want %q", got, want)
	}

	y.ok(yardmaster.Override{Job: "j1", Place: job.PlaceLocal, Why: "its data must stay here", By: "alice"})

	if got, want := y.leases(), "l1 releasing, l2 releasing, l3 releasing"; got != want {
		t.Errorf("when the job may run on local nodes alone the leases are %q, want %q", got, want)
	}
}
