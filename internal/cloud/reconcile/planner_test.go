package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

var errLost = errors.New("connection reset")

// clerk is a desk with a clock.
type clerk struct {
	*reconcile.Planner
	now time.Time
}

func newClerk(providers ...string) *clerk {
	return &clerk{reconcile.NewPlanner(reconcile.DefaultTiming(), providers...), start}
}

func (c *clerk) pass(d time.Duration) { c.now = c.now.Add(d) }

func lease(name id.Lease, state fleet.LeaseState, machine string) fleet.Lease {
	return fleet.Lease{
		ID:       name,
		State:    state,
		Instance: machine,
		Offer:    fleet.Offer{Provider: "p", Name: "p/small"},
		Ends:     start.Add(time.Hour),
	}
}

func (c *clerk) take(leases ...fleet.Lease) { c.Take(c.now, leases) }

// due returns the calls that are due, and in words.
func (c *clerk) due() ([]reconcile.Call, string) {
	calls, _ := c.Due(c.now)
	var words []string
	for _, call := range calls {
		words = append(words, strings.TrimSpace(fmt.Sprint(call.Kind, " ", call.Lease.ID)))
	}

	return calls, strings.Join(words, ", ")
}

// one returns the only call that is due.
func (c *clerk) one(t *testing.T, want string) reconcile.Call {
	t.Helper()
	calls, words := c.due()
	if words != want || len(calls) != 1 {
		t.Fatalf("after %s the calls that are due are %q, want %q", c.now.Sub(start), words, want)
	}

	return calls[0]
}

func (c *clerk) none(t *testing.T) {
	t.Helper()

	if _, words := c.due(); words != "" {
		t.Fatalf("after %s the calls that are due are %q, want none", c.now.Sub(start), words)
	}
}

// open lets the first list be answered.
func (c *clerk) open(t *testing.T) {
	t.Helper()
	c.Listed(c.now, c.one(t, "list"), nil, nil)
}

func TestNothingIsCreatedBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.take(lease("l1", fleet.LeaseRequested, ""), lease("l2", fleet.LeaseReleasing, "i-2"))

	calls, words := c.due()
	if words != "list, terminate l2" {
		t.Fatalf("due are %q, want the list and what is certain", words)
	}

	c.Listed(c.now, calls[0], nil, errLost)
	c.pass(5 * time.Second)
	list := c.one(t, "list")
	c.none(t)
	c.Listed(c.now, list, nil, nil)
	c.one(t, "create l1")
	c.none(t) // it is being made
}

func TestACallThatFailedIsMadeAgainLaterAndLater(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseReleasing, "i-1"))
	var waits []time.Duration

	var last time.Time
	for len(waits) < 7 {
		calls, _ := c.due()
		for _, call := range calls {
			switch call.Kind {
			case reconcile.CallTerminate:
				if !last.IsZero() {
					waits = append(waits, c.now.Sub(last))
				}

				last = c.now
				c.Terminated(c.now, call, errLost)
			case reconcile.CallList:
				c.Listed(c.now, call, nil, nil)
			case reconcile.CallCreate:
				t.Fatal("created")
			}
		}

		c.pass(time.Second)
	}

	s := time.Second
	if diff := cmp.Diff([]time.Duration{5 * s, 10 * s, 20 * s, 40 * s, 80 * s, 120 * s, 120 * s}, waits); diff != "" {
		t.Errorf("waits between attempts:\n%s", diff)
	}
}

func TestAnOrderToEndThatWasTakenIsGivenAgainIfNothingComesOfIt(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseReleasing, "i-1"))

	got := c.Terminated(c.now, c.one(t, "terminate l1"), nil)
	if diff := cmp.Diff([]yardmaster.Message{yardmaster.ReleaseAccepted{Lease: "l1"}}, got); diff != "" {
		t.Errorf("told:\n%s", diff)
	}

	c.pass(30 * time.Second)
	c.Listed(c.now, c.one(t, "list"), nil, nil)
	c.pass(90*time.Second - 1)

	if _, words := c.due(); words != "list" {
		t.Fatalf("due are %q, want the list alone", words)
	}

	c.pass(1)
	c.one(t, "terminate l1")
}

// TestAMachineThatTheProviderDoesNotKnowIsNoFailure ends a machine that is gone, or too
// new to be known: nobody can tell which, until it is listed or not.
func TestAMachineThatTheProviderDoesNotKnowIsNoFailure(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("terminate: %w", fault.New(fault.NotFound, "no_such_machine", "what is i-1"))
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseReleasing, "i-1"))

	for _, wait := range []time.Duration{5 * time.Second, 10 * time.Second} {
		got := c.Terminated(c.now, c.one(t, "terminate l1"), missing)
		if diff := cmp.Diff([]yardmaster.Message{yardmaster.ReleaseAccepted{Lease: "l1"}}, got); diff != "" {
			t.Errorf("told:\n%s", diff)
		}

		c.pass(wait - 1)
		c.none(t)
		c.pass(1)
	}

	c.Terminated(c.now, c.one(t, "terminate l1"), missing)
	c.take(lease("l1", fleet.LeaseEnded, "i-1")) // it was not listed for long enough
	c.pass(15 * time.Second)
	c.Listed(c.now, c.one(t, "list"), nil, nil)
	c.pass(5 * time.Minute)
	c.none(t)
}

func TestNothingIsCreatedForALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.pass(time.Hour) // as after a server that was down
	c.take(lease("l1", fleet.LeaseRequested, ""))
	c.open(t)
	c.none(t)
	late := lease("l2", fleet.LeaseRequested, "")
	late.Ends = c.now.Add(time.Second)
	c.take(late)
	c.Created(c.now, c.one(t, "create l2"), fleet.Instance{}, errLost)
	c.pass(time.Second)
	c.Listed(c.now, c.one(t, "list"), nil, nil)
	c.pass(10 * time.Second)
	c.none(t)
}

// TestAMachineThatIsListedAndNotTakenIsAskedForAgain is about one that was listed before
// it carried its lease: the yard took it for a stray and gives it back, so the lease still
// needs one. The desk leaves the yard time to say so first.
func TestAMachineThatIsListedAndNotTakenIsAskedForAgain(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseRequested, ""))
	c.Created(c.now, c.one(t, "create l1"), fleet.Instance{}, errLost)
	list := c.one(t, "list")
	c.pass(6 * time.Second)
	c.Listed(c.now, list, []fleet.Instance{{ID: "i-1", Lease: "l1", State: fleet.InstancePending}}, nil)
	c.take(lease("l2", fleet.LeaseReleasing, "i-1"))
	c.Terminated(c.now, c.one(t, "terminate l2"), nil)

	for range 3 {
		c.pass(30 * time.Second)
		c.Listed(c.now, c.one(t, "list"), nil, nil)
	}

	c.pass(30*time.Second - 1)
	c.none(t)
	c.pass(1)

	if _, words := c.due(); words != "list, create l1, terminate l2" {
		t.Errorf("due are %q, want that l1 is asked for and l2 given back again", words)
	}
}

func TestAfterAnUnclearCallTheProviderIsListedBeforeItIsAskedAgain(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseRequested, ""))
	create := c.one(t, "create l1")
	c.pass(30 * time.Second)
	old := c.one(t, "list")
	c.pass(time.Second)

	got := c.Created(c.now, create, fleet.Instance{}, errLost)
	if diff := cmp.Diff(
		[]yardmaster.Message{yardmaster.OutcomeUnknown{Lease: "l1", Why: "connection reset"}},
		got,
	); diff != "" {
		t.Errorf("told:\n%s", diff)
	}

	c.pass(time.Second)
	c.none(t)
	c.Listed(c.now, old, nil, nil) // asked for before the call ended: it shows nothing
	list := c.one(t, "list")       // at once
	c.pass(10 * time.Second)
	c.none(t) // not while it is out
	c.Listed(c.now, list, nil, errLost)
	c.pass(4 * time.Second)
	c.none(t)
	c.pass(time.Second)
	list = c.one(t, "list")
	c.Listed(c.now, list, nil, nil)
	c.one(t, "create l1")
}

func TestAMachineThatIsListedIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseRequested, ""))
	c.Created(c.now, c.one(t, "create l1"), fleet.Instance{}, errLost)
	list := c.one(t, "list")
	c.pass(6 * time.Second)
	c.Listed(c.now, list, []fleet.Instance{{ID: "i-1", Lease: "l1", State: fleet.InstancePending}}, nil)
	c.none(t) // the yard is being told
	c.take(lease("l1", fleet.LeaseBooting, "i-1"))
	c.none(t)
	c.take(lease("l1", fleet.LeaseReleasing, "i-1"))
	c.one(t, "terminate l1")
}

func TestAMachineThatIsListedAsEndedIsAskedForAgain(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseRequested, ""))
	c.Created(c.now, c.one(t, "create l1"), fleet.Instance{}, errLost)
	list := c.one(t, "list")
	c.pass(6 * time.Second)
	c.Listed(c.now, list, []fleet.Instance{{ID: "i-1", Lease: "l1", State: fleet.InstanceGone}}, nil)
	c.one(t, "create l1")
}

// TestAnAnswerIsWaitedForByTheYard asks what is due between an answer of the provider
// and the moment the yardmaster has stored it.
func TestAnAnswerIsWaitedForByTheYard(t *testing.T) {
	t.Parallel()
	refusal := fault.New(fault.OverLimit, fleet.RefusedCapacity, "none")
	for name, err := range map[string]error{"granted": nil, "refused": refusal} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClerk("p")
			c.open(t)
			c.take(lease("l1", fleet.LeaseRequested, ""))
			c.Created(c.now, c.one(t, "create l1"), fleet.Instance{ID: "i-1", Lease: "l1"}, err)
			c.pass(20 * time.Second)
			c.none(t)
			c.take(lease("l1", fleet.LeaseRequested, "")) // told of it once more as it was
			c.none(t)
		})
	}
}

func TestWhatTheYardIsTold(t *testing.T) {
	t.Parallel()
	refused := func(code, why string) []yardmaster.Message {
		return []yardmaster.Message{yardmaster.LeaseRefused{Lease: "l1", Code: code, Why: why}}
	}
	tests := []struct {
		name string
		err  error
		want []yardmaster.Message
	}{
		{
			"a machine",
			nil,
			[]yardmaster.Message{yardmaster.LeaseGranted{Lease: "l1", Provider: "p", Machine: fleet.Instance{ID: "i-1"}}},
		},
		{"no capacity", fault.New(fault.OverLimit, fleet.RefusedCapacity, "none"), refused(fleet.RefusedCapacity, "none")},
		{
			"no quota",
			fmt.Errorf("create: %w", fault.New(fault.OverLimit, fleet.RefusedQuota, "full")),
			refused(fleet.RefusedQuota, "create: full"),
		},
		{"too cheap", fault.New(fault.OverLimit, fleet.RefusedPrice, "bid"), refused(fleet.RefusedPrice, "bid")},
		{"unknown type", fault.New(fault.Invalid, "type", "what"), refused(fleet.RefusedInvalid, "what")},
		{"not allowed", fault.New(fault.Denied, "key", "no"), refused(fleet.RefusedDenied, "no")},
		{
			"unavailable",
			fault.New(fault.Unavailable, "down", "down"),
			[]yardmaster.Message{yardmaster.OutcomeUnknown{Lease: "l1", Why: "down"}},
		},
		{
			"not found",
			fault.New(fault.NotFound, "image", "gone"),
			[]yardmaster.Message{yardmaster.OutcomeUnknown{Lease: "l1", Why: "gone"}},
		},
		{"anything else", errLost, []yardmaster.Message{yardmaster.OutcomeUnknown{Lease: "l1", Why: "connection reset"}}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClerk("p")
			c.open(t)
			c.take(lease("l1", fleet.LeaseRequested, ""))

			got := c.Created(c.now, c.one(t, "create l1"), fleet.Instance{ID: "i-1"}, tt.err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("told:\n%s", diff)
			}
		})
	}
}

func TestProvidersWithLeasesAreListedOften(t *testing.T) {
	t.Parallel()
	c := newClerk("p", "q")
	calls, words := c.due()
	if words != "list, list" || calls[0].Provider != "p" || calls[1].Provider != "q" {
		t.Fatalf("due are %q of %v", words, calls)
	}

	for _, call := range calls {
		c.Listed(c.now, call, nil, nil)
	}

	c.pass(time.Minute)
	c.take(lease("l1", fleet.LeaseBooting, "i-1"))
	c.none(t)
	c.pass(30 * time.Second)

	if call := c.one(t, "list"); call.Provider != "p" {
		t.Fatalf("%s is listed, want p, which has a lease", call.Provider)
	} else {
		c.Listed(c.now, call, nil, nil)
	}

	c.take(lease("l1", fleet.LeaseEnded, "i-1"))
	c.pass(30 * time.Second)
	c.Listed(c.now, c.one(t, "list"), nil, nil)
	c.pass(8*time.Minute - 1)
	c.none(t)
	c.pass(1)

	if call := c.one(t, "list"); call.Provider != "q" {
		t.Fatalf("%s is listed, want q, ten minutes after its last", call.Provider)
	}
}

func TestALeaseOfAProviderThatIsNotSetUpIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newClerk("q")
	c.open(t)
	c.take(lease("l1", fleet.LeaseRequested, ""), lease("l2", fleet.LeaseReleasing, "i-2"))
	c.none(t)
}

func TestALeaseThatEndsDuringItsCallIsForgotten(t *testing.T) {
	t.Parallel()
	c := newClerk("p")
	c.open(t)
	c.take(lease("l1", fleet.LeaseRequested, ""))
	create := c.one(t, "create l1")
	c.take(lease("l1", fleet.LeaseEnded, ""))

	got := c.Created(c.now, create, fleet.Instance{ID: "i-1"}, nil)
	if len(got) != 1 {
		t.Errorf("the yard is told %v, want that there is a machine", got)
	}

	c.pass(5 * time.Minute)

	if calls, words := c.due(); words != "list" {
		t.Errorf("due are %q %v, want the list alone", words, calls)
	}
}
