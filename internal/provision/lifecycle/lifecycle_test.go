package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/provision/lifecycle"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// bench is a set of leases with a clock.
type bench struct {
	*lifecycle.Leases
	now   time.Time
	heard bool
}

func newBench(cfg lifecycle.Config) *bench { return &bench{Leases: lifecycle.New(cfg), now: start} }

func (b *bench) pass(d time.Duration) { b.now = b.now.Add(d) }

func (b *bench) provision(t *testing.T, count int) []*fleet.Lease {
	t.Helper()
	o := fleet.Offer{Provider: "p", Type: "small", Region: "north", Boot: job.Duration(4 * time.Minute)}
	o.Name = o.NameOf()
	list, err := b.Provision(b.now, lifecycle.Request{Offer: o, Count: count, Job: "j1", Owner: "ada", Reason: "it waits"})
	if err != nil {
		t.Fatalf("provision: %v", err)
	}

	return list
}

func up(machine string, lease id.Lease) fleet.Instance {
	return fleet.Instance{ID: machine, Lease: lease, Region: "north", State: fleet.InstanceUp, Billed: -1}
}

func gone(machine string, lease id.Lease, why string) fleet.Instance {
	return fleet.Instance{ID: machine, Lease: lease, State: fleet.InstanceGone, Why: why, Billed: -1}
}

func (b *bench) granted(machine string) { b.Granted(b.now, "l1", "p", up(machine, "l1")) }

func (b *bench) listed(machines ...fleet.Instance) { b.Listed(b.now, b.now, "p", machines) }

func (b *bench) sweep() { b.Sweep(b.now, func(id.Node) bool { return b.heard }) }

// states says how the leases stand: their states and machines, by number.
func (b *bench) states() string {
	var list []string
	for _, l := range b.Live() {
		text := string(l.ID) + " " + string(l.State)
		if l.Instance != "" {
			text += " " + l.Instance
		}

		if l.Stray {
			text += " stray"
		}

		list = append(list, text)
	}

	return strings.Join(list, ", ")
}

// into brings lease l1 into a state.
var into = map[string]func(b *bench){
	"requested":      func(*bench) {},
	"asked, unclear": func(b *bench) { b.Unclear(b.now, "l1", "timeout") },
	"booting":        func(b *bench) { b.granted("i-1") },
	"active": func(b *bench) {
		b.granted("i-1")
		b.join("n1")
	},
	"active, machine unknown": func(b *bench) { b.join("n1") },
	"releasing": func(b *bench) {
		b.granted("i-1")
		b.giveBack()
	},
	"releasing, machine unknown": func(b *bench) { b.giveBack() },
	"over": func(b *bench) {
		b.granted("i-1")
		b.Gone(b.now, "l1", "")
	},
	"asked, machine taken a stray": func(b *bench) { b.listed(up("i-1", "")) },
}

func (b *bench) join(node id.Node) {
	if err := b.Join(b.now, "l1", node); err != nil {
		panic(err)
	}
}

func (b *bench) giveBack() {
	if _, err := b.StartRelease(b.now, "l1", "not wanted"); err != nil {
		panic(err)
	}
}

func TestWhatBecomesOfALease(t *testing.T) {
	t.Parallel()
	const settle = 10 * time.Minute
	tests := []struct {
		from, answer string
		give         func(b *bench)
		want         string
	}{
		{"requested", "a machine is given", func(b *bench) { b.granted("i-1") }, "l1 booting i-1"},
		{"asked, unclear", "a machine is given", func(b *bench) { b.granted("i-1") }, "l1 booting i-1"},
		{"booting", "the same machine again", func(b *bench) { b.granted("i-1") }, "l1 booting i-1"},
		{"booting", "another machine", func(b *bench) { b.granted("i-2") }, "l1 booting i-1, l2 releasing i-2 stray"},
		{"active", "another machine", func(b *bench) { b.granted("i-2") }, "l1 active i-1, l2 releasing i-2 stray"},
		{"active, machine unknown", "a machine is given", func(b *bench) { b.granted("i-1") }, "l1 active i-1"},
		{"releasing, machine unknown", "a machine is given", func(b *bench) { b.granted("i-1") }, "l1 releasing i-1"},
		{"releasing", "another machine", func(b *bench) { b.granted("i-2") }, "l1 releasing i-1, l2 releasing i-2 stray"},
		{"over", "a machine is given", func(b *bench) { b.granted("i-2") }, "l2 releasing i-2 stray"},
		{"requested", "a machine without a name", func(b *bench) { b.granted("") }, "l1 requested"},
		{
			"asked, machine taken a stray",
			"it is the one that was asked for",
			func(b *bench) { b.granted("i-1") },
			"l1 booting i-1",
		},
		{
			"asked, machine taken a stray",
			"its tag is shown",
			func(b *bench) { b.listed(up("i-1", "l1")) },
			"l1 requested, l2 releasing i-1 stray",
		},

		{"requested", "no", func(b *bench) { b.Refused(b.now, "l1", "no_capacity") }, ""},
		{"booting", "an old no", func(b *bench) { b.Refused(b.now, "l1", "no_capacity") }, "l1 booting i-1"},
		{"active", "an old no", func(b *bench) { b.Refused(b.now, "l1", "no_capacity") }, "l1 active i-1"},
		{"releasing, machine unknown", "no", func(b *bench) { b.Refused(b.now, "l1", "no_capacity") }, ""},
		{"releasing", "an old no", func(b *bench) { b.Refused(b.now, "l1", "no_capacity") }, "l1 releasing i-1"},
		{"over", "an old no", func(b *bench) { b.Refused(b.now, "l1", "no_capacity") }, ""},

		{"requested", "nobody knows", func(b *bench) { b.Unclear(b.now, "l1", "timeout") }, "l1 requested"},
		{"booting", "nobody knows", func(b *bench) { b.Unclear(b.now, "l1", "timeout") }, "l1 booting i-1"},
		{"over", "nobody knows", func(b *bench) { b.Unclear(b.now, "l1", "timeout") }, ""},

		{"requested", "listed", func(b *bench) { b.listed(up("i-1", "l1")) }, "l1 booting i-1"},
		{"active, machine unknown", "listed", func(b *bench) { b.listed(up("i-1", "l1")) }, "l1 active i-1"},
		{"releasing, machine unknown", "listed", func(b *bench) { b.listed(up("i-1", "l1")) }, "l1 releasing i-1"},
		{
			"booting",
			"listed with another",
			func(b *bench) { b.listed(up("i-1", "l1"), up("i-2", "l1")) },
			"l1 booting i-1, l2 releasing i-2 stray",
		},
		{"over", "listed late", func(b *bench) { b.listed(up("i-1", "l1")) }, "l2 releasing i-1 stray"},
		{
			"booting",
			"a machine of nobody",
			func(b *bench) { b.listed(up("i-1", "l1"), up("i-9", "")) },
			"l1 booting i-1, l2 releasing i-9 stray",
		},
		{
			"booting",
			"a machine of a lease never written",
			func(b *bench) { b.listed(up("i-1", "l1"), up("i-9", "l77")) },
			"l1 booting i-1, l2 releasing i-9 stray",
		},
		{"booting", "the same stray twice", func(b *bench) {
			b.listed(up("i-9", ""))
			b.listed(up("i-9", ""))
		}, "l1 booting i-1, l2 releasing i-9 stray"},
		{"booting", "a stray that has ended", func(b *bench) { b.listed(gone("i-9", "", "")) }, "l1 booting i-1"},

		{"requested", "listed as gone", func(b *bench) { b.listed(gone("i-1", "l1", "")) }, "l1 requested"},
		{"booting", "listed as gone", func(b *bench) { b.listed(gone("i-1", "l1", "")) }, ""},
		{"active", "taken back", func(b *bench) { b.listed(gone("i-1", "l1", "spot")) }, ""},
		{"releasing", "listed as gone", func(b *bench) { b.listed(gone("i-1", "l1", "")) }, ""},

		{"requested", "not listed for long", func(b *bench) {
			b.pass(settle)
			b.listed()
		}, "l1 requested"},
		{"booting", "not listed yet", func(b *bench) {
			b.pass(settle - 1)
			b.listed()
		}, "l1 booting i-1"},
		{"booting", "not listed for long", func(b *bench) {
			b.pass(settle)
			b.listed()
		}, ""},
		{"active", "not listed for long", func(b *bench) {
			b.pass(settle)
			b.listed()
		}, "l1 active i-1"},
		{"releasing", "not listed yet", func(b *bench) {
			b.pass(settle - 1)
			b.listed()
		}, "l1 releasing i-1"},
		{"releasing", "not listed for long", func(b *bench) {
			b.pass(settle)
			b.listed()
		}, ""},
		{"releasing", "not listed, and told to end only now", func(b *bench) {
			b.pass(settle - 1)
			b.Accepted(b.now, "l1")
			b.pass(1)
			b.listed()
		}, "l1 releasing i-1"},
		{"releasing, machine unknown", "not listed yet", func(b *bench) {
			b.pass(settle - 1)
			b.listed()
		}, "l1 releasing"},
		{"releasing, machine unknown", "not listed for long", func(b *bench) {
			b.pass(settle)
			b.listed()
		}, ""},
		{"releasing, machine unknown", "not listed, and a call ended only now", func(b *bench) {
			b.pass(settle - 1)
			b.Unclear(b.now, "l1", "timeout")
			b.pass(1)
			b.listed()
		}, "l1 releasing"},
		{"releasing, machine unknown", "a list that was asked for before", func(b *bench) {
			asked := b.now
			b.pass(settle)
			b.Listed(b.now, asked, "p", nil)
		}, "l1 releasing"},
		{"booting", "not in another provider's list", func(b *bench) {
			b.pass(settle)
			b.Listed(b.now, b.now, "q", nil)
		}, "l1 booting i-1"},
		{
			"requested",
			"its tag at another provider",
			func(b *bench) { b.Listed(b.now, b.now, "q", []fleet.Instance{up("i-1", "l1")}) },
			"l1 requested, l2 releasing i-1 stray",
		},

		{"requested", "swept in time", func(b *bench) {
			b.pass(16*time.Minute - 1)
			b.sweep()
		}, "l1 requested"},
		{"requested", "swept too late", func(b *bench) {
			b.pass(16 * time.Minute)
			b.sweep()
		}, "l1 releasing"},
		{"booting", "swept too late", func(b *bench) {
			b.pass(16 * time.Minute)
			b.sweep()
		}, "l1 releasing i-1"},
		{"active", "silent, swept in time", func(b *bench) {
			b.pass(15*time.Minute - 1)
			b.sweep()
		}, "l1 active i-1"},
		{"active", "silent, swept too late", func(b *bench) {
			b.pass(15 * time.Minute)
			b.sweep()
		}, "l1 releasing i-1"},
		{"active", "heard, swept late", func(b *bench) {
			b.heard = true
			b.pass(15 * time.Minute)
			b.sweep()
		}, "l1 active i-1"},
		{"releasing", "swept", func(b *bench) {
			b.pass(time.Hour)
			b.sweep()
		}, "l1 releasing i-1"},

		{"requested", "released", func(b *bench) { b.giveBack() }, "l1 releasing"},
		{"active", "given back twice", func(b *bench) {
			b.giveBack()
			b.giveBack()
		}, "l1 releasing i-1"},
	}

	for _, tt := range tests {
		t.Run(tt.from+", "+tt.answer, func(t *testing.T) {
			t.Parallel()
			b := newBench(lifecycle.Defaults())
			b.provision(t, 1)
			into[tt.from](b)
			tt.give(b)

			if got := b.states(); got != tt.want {
				t.Errorf("the leases are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWhoMayJoin(t *testing.T) {
	t.Parallel()

	for from, want := range map[string]string{
		"requested": "", "booting": "", "active": "", "active, machine unknown": "",
		"releasing": "lease_over", "releasing, machine unknown": "lease_over", "over": "lease_over",
	} {
		b := newBench(lifecycle.Defaults())
		b.provision(t, 1)
		into[from](b)

		if got := code(b.Join(b.now, "l1", "n1")); got != want {
			t.Errorf("%s: joining was answered with %q, want %q", from, got, want)
		}

		if got := code(b.Join(b.now, "l1", "n2")); got != "lease_over" {
			t.Errorf("%s: a second node joined: %q", from, got)
		}
	}
}

func code(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}

	return ""
}

// TestAnswersInEveryOrder gives one lease the same answers in all orders: whatever comes
// first, no two leases have the same machine, and when the provider shows nothing for
// long enough nothing is left.
func TestAnswersInEveryOrder(t *testing.T) {
	t.Parallel()
	answers := []struct {
		name string
		give func(b *bench)
	}{
		{"granted", func(b *bench) { b.granted("i-1") }},
		{"granted another", func(b *bench) { b.granted("i-2") }},
		{"refused", func(b *bench) { b.Refused(b.now, "l1", "no_quota") }},
		{"listed without tags", func(b *bench) { b.listed(up("i-1", ""), up("i-2", "")) }},
		{"listed", func(b *bench) { b.listed(up("i-1", "l1"), up("i-2", "l1")) }},
		{"joined", func(b *bench) { _ = b.Join(b.now, "l1", "n1") }}, // denied in some orders
		{"returned", func(b *bench) { _, _ = b.StartRelease(b.now, "l1", "not wanted") }},
	}

	orders := 0
	permute(len(answers), func(order []int) {
		orders++
		b := newBench(lifecycle.Defaults())
		b.provision(t, 1)

		var told []string
		for _, i := range order {
			b.pass(time.Second)
			answers[i].give(b)
			told = append(told, answers[i].name)
			checkMachines(t, b, told)
		}

		_, _ = b.StartRelease(b.now, "l1", "not wanted") // in some orders it is over
		b.pass(10 * time.Minute)
		b.listed()

		if got := b.states(); got != "" {
			t.Fatalf("after %v and an empty list the leases are %s", told, got)
		}
	})

	if orders != 5040 {
		t.Errorf("%d orders, want 7!", orders)
	}
}

func checkMachines(t *testing.T, b *bench, told []string) {
	t.Helper()
	seen := map[string]id.Lease{}
	for _, l := range b.Live() {
		if other, taken := seen[l.Instance]; taken && l.Instance != "" {
			t.Fatalf("after %v leases %s and %s both have machine %s", told, other, l.ID, l.Instance)
		}

		seen[l.Instance] = l.ID
	}
}

// permute calls fn with every order of n things.
func permute(n int, fn func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}

	var from func(k int)
	from = func(k int) {
		if k == n {
			fn(slices.Clone(order))
			return
		}

		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			from(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}

	from(0)
}

func TestAGangComesWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	second := up("i-2", "l2")
	tests := []struct {
		name string
		give func(b *bench)
		want string
	}{
		{"one is refused", func(b *bench) {
			b.Granted(b.now, "l2", "p", second)
			b.Refused(b.now, "l1", "no_capacity")
		}, "l2 releasing i-2, l3 releasing"},
		{"one is gone before it joined", func(b *bench) {
			b.granted("i-1")
			b.Gone(b.now, "l1", "")
		}, "l2 releasing, l3 releasing"},
		{"one is gone after it joined", func(b *bench) {
			b.granted("i-1")
			b.join("n1")
			b.Gone(b.now, "l1", "spot")
		}, "l2 requested, l3 requested"},
		{"one does not join in time", func(b *bench) {
			b.granted("i-1")
			b.join("n1")
			b.heard = true
			b.pass(16 * time.Minute)
			b.sweep()
		}, "l1 releasing i-1, l2 releasing, l3 releasing"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(lifecycle.Defaults())
			b.provision(t, 3)
			tt.give(b)

			if got := b.states(); got != tt.want {
				t.Errorf("the leases are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestALeaseIsRenewedWhileItsNodeIsHeard(t *testing.T) {
	t.Parallel()
	cfg := lifecycle.Defaults()
	b := newBench(cfg)
	l := b.provision(t, 1)[0]
	b.granted("i-1")
	b.join("n1")

	b.heard = true
	for range 100 {
		b.pass(cfg.SweepInterval())
		b.sweep()

		if left := l.Ends.Sub(b.now); left <= cfg.Term/3 || left > cfg.Term {
			t.Fatalf(
				"after %s the lease holds for another %s, want more than %s and at most %s",
				b.now.Sub(start),
				left,
				cfg.Term/3,
				cfg.Term,
			)
		}
	}

	b.giveBack()
	ends := l.Ends
	b.pass(cfg.SweepInterval())
	b.sweep()

	if !l.Ends.Equal(ends) {
		t.Errorf("a lease that is given back was renewed until %s", l.Ends)
	}
}

func TestNoMoreIsProvisionedThanAllowed(t *testing.T) {
	t.Parallel()
	cfg := lifecycle.Defaults()
	cfg.MaxNodes = 3
	b := newBench(cfg)
	b.provision(t, 2)

	if _, err := b.Provision(
		b.now,
		lifecycle.Request{Count: 2, Job: "j2", Reason: "it waits"},
	); code(err) != "too_many_provisioned" {
		t.Errorf("provisioning 2 more of 3 was answered with %v", err)
	}

	if got := len(b.Live()); got != 2 {
		t.Errorf("%d leases were written, want all or none: 2", got)
	}

	b.giveBack()

	if _, err := b.Provision(b.now, lifecycle.Request{Count: 2, Job: "j2", Reason: "it waits"}); err != nil {
		t.Errorf("one is given back and 2 more were refused: %v", err)
	}
}

func TestTakeTellsEveryChangeOnce(t *testing.T) {
	t.Parallel()
	b := newBench(lifecycle.Defaults())
	b.provision(t, 1)
	b.granted("i-1")
	var kinds []string
	tell := func() []string {
		kinds = nil
		out := b.Take()
		for _, c := range out.Changed {
			kinds = append(kinds, fmt.Sprint(c.ID, " ", c.State, " ", c.Seq))
		}

		for _, c := range out.Events {
			kinds = append(kinds, c.Kind)
		}

		for _, c := range out.Closed {
			kinds = append(kinds, fmt.Sprint(c.ID, " closed"))
		}

		for _, c := range out.Gone {
			kinds = append(kinds, fmt.Sprint(c.Node, " gone"))
		}

		return kinds
	}

	if diff := cmp.Diff([]string{"l1 booting 2", "lease.requested", "lease.booting"}, tell()); diff != "" {
		t.Errorf("provisioned and granted:\n%s", diff)
	}

	if b.Pending() || len(tell()) != 0 {
		t.Errorf("told twice: %v", kinds)
	}

	b.join("n1")
	b.Gone(b.now, "l1", "spot")

	if diff := cmp.Diff(
		[]string{"l1 ended 4", "lease.active", "lease.ended", "l1 closed", "n1 gone"},
		tell(),
	); diff != "" {
		t.Errorf("joined and gone:\n%s", diff)
	}

	b.Gone(b.now, "l1", "spot")
	b.Accepted(b.now, "l1")

	if b.Pending() {
		t.Errorf("a lease that is over changed: %v", tell())
	}
}

// TestLoadGoesOnWhereTheStoreIs provisions, stores, loads and goes on; numbers are never given twice.
func TestLoadGoesOnWhereTheStoreIs(t *testing.T) {
	t.Parallel()
	b := newBench(lifecycle.Defaults())
	b.provision(t, 3)
	b.granted("i-1")
	b.Refused(b.now, "l3", "no_capacity") // disbands the gang

	var stored []fleet.Lease
	for _, c := range b.Take().Changed {
		stored = append(stored, *c)
	}

	next := newBench(lifecycle.Defaults())
	next.pass(9 * time.Minute)
	next.Load(next.now, stored, 7)

	if got, want := next.states(), "l1 releasing i-1, l2 releasing"; got != want {
		t.Fatalf("loaded are %q, want %q", got, want)
	}

	if next.Pending() {
		t.Error("loading changed something")
	}

	next.pass(time.Minute)
	next.listed(up("i-1", "l1"))

	if got, want := next.states(), "l1 releasing i-1, l2 releasing"; got != want {
		t.Errorf("a call may have been under way at the restart a minute ago: %q, want %q", got, want)
	}

	if got := next.provision(t, 1)[0].ID; got != "l8" {
		t.Errorf("the next lease is %s, want l8", got)
	}
}
