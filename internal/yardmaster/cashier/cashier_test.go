package cashier_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/cashier"
	"trainyard/internal/yardmaster/timers"
)

var start = time.Date(2026, 3, 1, 8, 0, 20, 0, time.UTC)

// till is a cashier with a clock and what it asked for.
type till struct {
	*cashier.Cashier
	now     time.Time
	feed    batch.Feed
	timers  timers.Timers
	spends  *cashier.Account // the job that runs on a budget, nil if none does
	hourly  float64
	alerts  []string
	lookups int
}

func newTill(unmetered bool) *till {
	c := &till{now: start}
	c.Cashier = cashier.New(nil, unmetered, &c.feed, &c.timers, cashier.Watcher{
		Charged:  func(*ledger.Posting) {},
		Budgeted: func(id.Job) bool { return c.spends != nil },
		Spending: func(visit func(*cashier.Account, float64)) {
			if c.spends != nil {
				visit(c.spends, c.hourly)
			}
		},
		Alert:  func(a *quota.Alert) { c.alerts = append(c.alerts, string(a.Kind)+" "+a.Subject.String()) },
		Looked: func() { c.lookups++ },
	})
	return c
}

func ada(j id.Job) *cashier.Account {
	return &cashier.Account{Payer: quota.Payer{Owner: "ada", Project: "vision", Job: j}}
}

func (c *till) limit(t *testing.T, l tenant.Quota) {
	t.Helper()
	if l.Subject == (tenant.Subject{}) {
		l.Subject = tenant.Subject{User: "ada"}
	}
	if _, err := c.Put(c.now, l, "root"); err != nil {
		t.Fatal(err)
	}
}

func TestALimitIsNumberedAndToldEachTime(t *testing.T) {
	t.Parallel()
	c := newTill(false)
	gone := tenant.Quota{Subject: tenant.Subject{User: "ada"}, Removed: true}
	var f *fault.Error
	if _, err := c.Put(c.now, gone, "root"); !errors.As(err, &f) || f.Code != "limit_not_found" {
		t.Errorf("removed what is not there: %v", err)
	}
	c.limit(t, tenant.Quota{GPUs: 2})
	c.limit(t, tenant.Quota{GPUs: 4})
	c.limit(t, gone)
	var b batch.Batch
	c.Take(&b)
	c.feed.Take(&b)
	var got []string
	for i, l := range b.Quotas {
		got = append(got, fmt.Sprintf("%d: %g GPUs, %s", l.Seq, float64(l.GPUs), b.Events[i].Reason))
	}
	want := []string{"1: 2 GPUs, limit of user/ada set by root", "2: 4 GPUs, limit of user/ada set by root", "3: 0 GPUs, limit of user/ada removed by root"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits and what was told:\n%s", diff)
	}
}

func TestWhatALimitForbids(t *testing.T) {
	t.Parallel()
	c := newTill(false)
	if why := c.Barred(c.now, ada("j1"), 100); why != "" {
		t.Errorf("nobody is limited, and yet: %s", why)
	}
	c.limit(t, tenant.Quota{GPUs: 2, Nodes: 1})
	c.Quotas.Use(c.now, ada("j1").Payer, fleet.Local, 1, 0)
	for _, x := range []struct {
		name, why, want string
	}{
		{"what is left", c.Barred(c.now, ada("j2"), 1), ""},
		{"more than is left", c.Barred(c.now, ada("j2"), 2), "it leaves 1 and this job needs 2"},
		{"one node", c.MayHire(c.now, ada("j2"), &place.Hire{Count: 1}), ""},
		{"two nodes", c.MayHire(c.now, ada("j2"), &place.Hire{Count: 2}), "1 more on-demand nodes"},
	} {
		if (x.want == "") != (x.why == "") || !strings.Contains(x.why, x.want) {
			t.Errorf("%s: %q, want %q", x.name, x.why, x.want)
		}
	}
	poor := ada("j3")
	poor.Budget, poor.Spent = 5_000_000, 4
	if why := c.MayHire(c.now, poor, &place.Hire{Count: 1, Cost: 2}); !strings.Contains(why, "has $1.00 left and this would cost $2.00") {
		t.Errorf("beyond a budget: %q", why)
	}
}

func TestJobsAreLetBackInOrderUntilOneHasToStay(t *testing.T) {
	t.Parallel()
	c := newTill(false)
	for _, w := range []quota.Payer{{Owner: "bob", Job: "j4"}, {Owner: "ada", Job: "j3"}, {Owner: "ada", Job: "j1"}, {Owner: "ada", Job: "j2"}} {
		c.SetAside(w)
	}
	if !c.Limited() {
		t.Error("nobody is limited while jobs are aside")
	}
	var asked []id.Job
	c.LetBack(func(j id.Job) bool {
		asked = append(asked, j)
		if j == "j2" {
			return false
		}
		owner := id.User("ada")
		if j == "j4" {
			owner = "bob"
		}
		c.BringBack(quota.Payer{Owner: owner, Job: j})
		return true
	})
	if diff := cmp.Diff([]id.Job{"j1", "j2", "j4"}, asked); diff != "" {
		t.Errorf("asked:\n%s", diff)
	}
}

func TestBudgetsAreLookedAtEachMinuteAndWhenOneIsUsedUp(t *testing.T) {
	t.Parallel()
	c := newTill(false)
	c.Watch(c.now)
	if next := c.timers.Next(); !next.Equal(start.Truncate(time.Minute).Add(time.Minute)) {
		t.Errorf("without limits the books are looked at at %s", next)
	}
	c.spends, c.hourly = ada("j1"), 360
	c.spends.Budget, c.spends.Spent = 5_000_000, 4
	c.Count(c.spends.Budget, 1)
	c.Watch(c.now)
	if next := c.timers.Next(); !next.Equal(start.Add(11 * time.Second)) { // $1 at 10 cents a second, and one second
		t.Errorf("with a budget that lasts 10 s the books are looked at at %s", next)
	}
	if c.timers.Len() != 1 {
		t.Errorf("%d looks are planned", c.timers.Len())
	}
	due, ok := c.timers.Due(start.Add(11 * time.Second))
	if !ok {
		t.Fatal("nothing fell due")
	}
	due(start.Add(11 * time.Second))
	if c.lookups != 1 || c.timers.Len() != 1 {
		t.Errorf("looked %d times, %d planned", c.lookups, c.timers.Len())
	}
	c.Count(job.Money(5_000_000), -1)
	if c.Limited() {
		t.Error("someone is limited when the job has ended")
	}
}

func TestALimitThatIsUsedUpIsTold(t *testing.T) {
	t.Parallel()
	c := newTill(false)
	c.limit(t, tenant.Quota{Budget: 10_000_000, Period: tenant.Month})
	c.Quotas.Spend(c.now, c.now, ada("j1").Payer, 0, 10)
	c.Watch(c.now)
	at := c.timers.Next()
	due, ok := c.timers.Due(at)
	if !ok {
		t.Fatal("nothing fell due")
	}
	due(at)
	if diff := cmp.Diff([]string{string(quota.UsedUp) + " user/ada"}, c.alerts); diff != "" {
		t.Errorf("alerts:\n%s", diff)
	}
}

func TestMetersAreReadOnceInOrderUnlessThereAreNone(t *testing.T) {
	t.Parallel()
	for _, unmetered := range []bool{false, true} {
		c := newTill(unmetered)
		c.Touch("b")
		c.Touch("a")
		c.Touch("b")
		c.Lease(c.now, &fleet.Lease{ID: "l1", Node: "c", State: fleet.LeaseActive})
		c.Watch(c.now)
		var read []id.Node
		for range 2 {
			c.Read(func(n id.Node) { read = append(read, n) })
		}
		want, timers := []id.Node{"a", "b", "c"}, 1
		if unmetered {
			want, timers = nil, 0
		}
		if diff := cmp.Diff(want, read); diff != "" || c.timers.Len() != timers {
			t.Errorf("unmetered %v: %d timers, read:\n%s", unmetered, c.timers.Len(), diff)
		}
	}
}
