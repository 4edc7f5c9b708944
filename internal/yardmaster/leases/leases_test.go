package leases_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/provision/lifecycle"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/leases"
	"trainyard/internal/yardmaster/timers"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// office is where nodes are provisioned, with a clock and what was told.
type office struct {
	*leases.Leases
	now    time.Time
	limits *quota.Tracker
	feed   batch.Feed
	timers timers.Timers
}

func offer() fleet.Offer {
	o := fleet.Offer{Provider: "p", Type: "small", Region: "north", Boot: job.Duration(4 * time.Minute), Hourly: 2_000_000}
	o.Name = o.NameOf()
	return o
}

func newOffice() *office {
	o := &office{now: start, limits: quota.New()}
	o.Leases = leases.New(
		lifecycle.Defaults(),
		[]fleet.Offer{offer()},
		o.limits,
		&o.feed,
		&o.timers,
		func(id.Node) bool { return true },
	)

	return o
}

func (o *office) provision(t *testing.T, j id.Job, count int) {
	t.Helper()
	w := lifecycle.Request{Offer: offer(), Count: count, Job: j, Owner: "ada", Reason: "it waits"}
	if err := o.Provision(o.now, w, quota.Commitment{RemainingCost: 1, RemainingGPUHours: -1}); err != nil {
		t.Fatalf("provision: %v", err)
	}

	o.settle()
}

func (o *office) settle() { o.Settle(o.now, func(*fleet.Lease) {}) }

// pass lets time pass until what falls due has happened.
func (o *office) pass(d time.Duration) {
	o.now = o.now.Add(d)
	for due, ok := o.timers.Due(o.now); ok; due, ok = o.timers.Due(o.now) {
		due(o.now)
	}

	o.settle()
}

// states says how the leases stand, by number.
func (o *office) states() string {
	var list []string
	for _, l := range o.Live() {
		list = append(list, fmt.Sprint(l.ID, " ", l.State))
	}

	return strings.Join(list, ", ")
}

// told lists the kinds of event since the last call.
func (o *office) told() []string {
	var b batch.Batch
	o.feed.Take(&b)

	var kinds []string
	for _, e := range b.Events {
		kinds = append(kinds, e.Kind)
	}

	return kinds
}

// owes says what ada pays in an hour and how many nodes she has, as the limits know.
func (o *office) owes() string {
	s := o.limits.Status(o.now, tenant.Subject{User: "ada"})
	return fmt.Sprintf("$%g for %d nodes", s.Hourly, s.Nodes)
}

func (o *office) grant(l id.Lease, machine string) {
	o.Granted(o.now, l, "p", fleet.Instance{ID: machine, Lease: l, State: fleet.InstanceUp, Billed: -1})
	o.settle()
}

func TestWhatAJobNoLongerWaitsForIsGivenBackUnlessItHasCome(t *testing.T) {
	t.Parallel()
	o := newOffice()
	o.provision(t, "j1", 2)
	o.grant("l1", "i-1")
	o.grant("l2", "i-2")

	if err := o.Join(o.now, "l1", "a"); err != nil {
		t.Fatal(err)
	}

	o.settle()

	arrival := o.Arrivals()["j1"]
	sentence, ready := arrival.Sentence, arrival.Ready
	if !o.Awaits("j1") || !strings.Contains(sentence, "(lease l2, booting)") || !ready.Equal(start.Add(4*time.Minute)) {
		t.Errorf("it awaits %v: %q, ready at %s", o.Awaits("j1"), sentence, ready)
	}

	o.Abandon(o.now, "j1")
	o.settle()

	if got := o.states(); got != "l1 active, l2 releasing" {
		t.Errorf("the leases are %s", got)
	}

	if sentence := o.Arrivals()["j1"].Sentence; o.Awaits("j1") || sentence != "" {
		t.Errorf("it still awaits: %q", sentence)
	}
}

func TestWhatIsBeingProvisionedCountsUntilItHasComeOrWillNot(t *testing.T) {
	t.Parallel()
	o := newOffice()
	o.provision(t, "j1", 1)
	o.provision(t, "j2", 1)

	if got := o.owes(); got != "$4 for 2 nodes" {
		t.Errorf("asked for: %s", got)
	}

	o.grant("l1", "i-1")

	if err := o.Join(o.now, "l1", "a"); err != nil {
		t.Fatal(err)
	}

	o.settle()

	if got := o.owes(); got != "$2 for 2 nodes" { // what the node costs is told by who runs there
		t.Errorf("one has come: %s", got)
	}

	o.Refused(o.now, "l2", fleet.RefusedCapacity, "there is none")
	o.settle()

	if got := o.owes(); got != "$0 for 1 nodes" {
		t.Errorf("the other will not: %s", got)
	}
}

func TestANodeThatHasJustComeIsLeftToItsJob(t *testing.T) {
	t.Parallel()
	o := newOffice()
	o.provision(t, "j1", 2)
	o.grant("l1", "i-1")
	l := o.Of("l1")

	if err := o.Join(o.now, "l1", "a"); err != nil {
		t.Fatal(err)
	}

	o.pass(2 * time.Minute)

	if o.KeepUntil(o.now, l).IsZero() {
		t.Error("it may be asked whether it is of use while the other one is still to come")
	}

	o.grant("l2", "i-2")

	if err := o.Join(o.now, "l2", "b"); err != nil {
		t.Fatal(err)
	}

	o.settle()

	if !o.KeepUntil(o.now, l).IsZero() || o.KeepUntil(o.now, o.Of("l2")).IsZero() {
		t.Error("the one that has just come is left alone, the other one not")
	}

	o.pass(time.Minute)

	if !o.KeepUntil(o.now, o.Of("l2")).IsZero() {
		t.Error("it is still left alone after a minute")
	}
}

func TestLeasesOfAGangAreFellowsWhileItsJobWaits(t *testing.T) {
	t.Parallel()
	o := newOffice()
	o.provision(t, "j1", 3)
	o.provision(t, "j2", 1)

	fellows := o.GangOf(o.Of("l2"))
	if len(fellows) != 2 || fellows[0].ID != "l1" || fellows[1].ID != "l3" {
		t.Errorf("the fellows of l2 are %v", fellows)
	}

	fellows = o.GangOf(o.Of("l4"))
	if len(fellows) != 0 {
		t.Errorf("the fellows of l4 are %v", fellows)
	}
}

func TestARefusalIsRemembered(t *testing.T) {
	t.Parallel()
	o := newOffice()
	o.provision(t, "j1", 1)
	o.Refused(o.now, "l1", fleet.RefusedCapacity, "there is none")
	o.settle()

	if o.states() != "" || o.Awaits("j1") || o.Of("l1") != nil {
		t.Errorf("the leases are %s", o.states())
	}

	if len(o.Market.Available(o.now)) != 0 || len(o.Market.Backoffs(o.now)) != 1 {
		t.Error("what was refused is offered again at once")
	}
}

func TestAProviderIsBackWhenItAnswersForAMinute(t *testing.T) {
	t.Parallel()
	o := newOffice()
	o.Failed(o.now, "p", "", "503")
	o.Failed(o.now, "p", "", "504")
	o.Listed(o.now, o.now, "p", nil)
	o.pass(30 * time.Second)
	o.Failed(o.now, "p", "", "505")
	o.pass(time.Minute)

	if diff := cmp.Diff(map[string]string{"p": "503"}, o.Failing()); diff != "" {
		t.Errorf("failing:\n%s", diff)
	}

	if diff := cmp.Diff([]string{"provider.failed"}, o.told()); diff != "" {
		t.Errorf("told:\n%s", diff)
	}

	o.Listed(o.now, o.now, "p", nil)
	o.pass(time.Minute)

	if diff := cmp.Diff([]string{"provider.back"}, o.told()); diff != "" || len(o.Failing()) > 0 {
		t.Errorf("failing %v, told:\n%s", o.Failing(), diff)
	}
}

func TestLeasesAreTakenUpAfterARestart(t *testing.T) {
	t.Parallel()
	o := newOffice()
	o.provision(t, "j1", 2)
	var b batch.Batch
	o.Take(&b)
	next := newOffice()
	next.Load(o.now, &batch.State{Leases: b.Leases, LastLease: 2})

	if next.states() != "l1 requested, l2 requested" || !next.Awaits("j1") {
		t.Errorf("the leases are %s, awaited %v", next.states(), next.Awaits("j1"))
	}

	o.Take(&b)
	if len(b.Leases) != 0 {
		t.Errorf("taken again: %v", b.Leases)
	}

	next.pass(time.Hour) // nobody has answered

	if got := next.states(); got != "l1 releasing, l2 releasing" {
		t.Errorf("after an hour the leases are %s", got)
	}
}
