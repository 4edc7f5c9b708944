package yardmaster_test

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
	"trainyard/internal/money"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var alice = tenant.Subject{User: "alice"}

// quota sets the quota of alice.
func (y *yard) quota(q tenant.Quota) {
	y.t.Helper()

	q.Subject = alice
	y.ok(yardmaster.PutQuota{Quota: q, By: "root"})
}

// startFirst submits job j1 of alice and starts it on node a.
func (y *yard) startFirst(s *job.Spec) {
	y.t.Helper()

	y.submit("alice", s)
	y.round()

	y.ok(yardmaster.NodeReport{
		Node:  "a",
		Ranks: []yardmaster.RankReport{{Run: "j1.1", State: job.RunRunning, Started: y.now}},
	})
}

func TestQuotasAreNumberedAndAnnounced(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.Take()

	var f *fault.Error
	if _, err := y.Step(
		y.now,
		yardmaster.PutQuota{Quota: tenant.Quota{Subject: alice, Removed: true}, By: "root"},
	); !errors.As(err, &f) ||
		f.Code != "quota_not_found" {
		t.Errorf("removed a quota that is not there: %v", err)
	}

	y.quota(tenant.Quota{GPUs: 2})
	y.quota(tenant.Quota{GPUs: 4})
	y.quota(tenant.Quota{Removed: true})

	b := y.Take()

	var got []string
	for i, q := range b.Quotas {
		got = append(got, fmt.Sprintf("%d: %d GPUs, %s", q.Seq, q.GPUs, b.Events[i].Reason))
	}

	want := []string{
		"1: 2 GPUs, quota of user/alice set by root",
		"2: 4 GPUs, quota of user/alice set by root",
		"3: 0 GPUs, quota of user/alice removed by root",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("quotas and events:\n%s", diff)
	}
}

func TestJobsOverQuotaAreHeldBackAndRequeuedInOrder(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.node("a", 8)
	y.quota(tenant.Quota{GPUs: 2})
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})

	first := y.submit("alice", spec(2))
	y.round()

	large := y.submit("alice", spec(2))
	small := y.submit("alice", spec(1))
	other := y.submit("bob", spec(1))
	y.round()

	reasons := func() []string {
		var list []string
		for _, j := range []id.Job{first, large, small, other} {
			r, _ := yardmaster.JobOf(y.Yard, j)
			list = append(list, string(r.State)+": "+r.Reason)
		}

		return list
	}

	held := reasons()
	if want := "pending: quota reached: alice may use 2 GPUs at a time; 2 needed, 0 left"; held[1] != want {
		t.Errorf("the large job is %q, want %q", held[1], want)
	}

	if !strings.HasPrefix(held[2], "pending: quota reached: ") || !strings.HasPrefix(held[3], "starting: ") {
		t.Errorf("the others are %q", held[2:])
	}

	y.quota(tenant.Quota{GPUs: 4})
	y.round()

	after := reasons()
	if !strings.HasPrefix(after[1], "starting: ") || !strings.HasPrefix(after[2], "pending: quota reached: ") {
		t.Errorf("with two more GPUs the jobs are %q", after)
	}
}

// TestBudgetsAreCheckedWhenTheyAreUsedUp: quotas are checked every minute, and sooner if a
// budget is used up before that.
func TestBudgetsAreCheckedWhenTheyAreUsedUp(t *testing.T) {
	t.Parallel()

	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Class: fleet.Local, Hourly: []money.PerHour{360}}}}
	y := newYardOf(t, cfg)
	y.node("a", 1)

	s := spec(1)
	s.Budget, s.Expect = 1_000_000, job.Duration(time.Hour)
	y.startFirst(s)

	if next := y.NextTimer(); !next.Equal(start.Add(11 * time.Second)) { // $1 at 10 cents a second, and one second
		t.Errorf("the next timer is at %s", next)
	}

	y.now = start.Add(11 * time.Second)
	y.ok(yardmaster.Tick{})

	if j, _ := yardmaster.JobOf(y.Yard, "j1"); j.State != job.Pausing ||
		!strings.Contains(j.Reason, "of its budget of $1.00") {
		t.Errorf("the job is %s: %s", j.State, j.Reason)
	}
}

func TestExhaustedQuotaIsAnnounced(t *testing.T) {
	t.Parallel()

	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Class: fleet.Local, Hourly: []money.PerHour{360}}}}
	y := newYardOf(t, cfg)
	y.node("a", 1)
	y.quota(tenant.Quota{Budget: 1_000_000, Period: tenant.Month})

	s := spec(1)
	s.Expect = job.Duration(time.Hour)
	y.startFirst(s)
	y.Take()

	y.now = start.Add(11 * time.Second)
	y.ok(yardmaster.Tick{})

	var kinds []string
	for _, e := range y.Take().Events {
		kinds = append(kinds, e.Kind)
	}

	if diff := cmp.Diff([]string{"budget.used_up"}, kinds); diff != "" {
		t.Errorf("events:\n%s", diff)
	}
}

func TestUnmeteredYardChecksNoQuotas(t *testing.T) {
	t.Parallel()

	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.Unmetered, cfg.SuspectAfter = true, 0
	y := newYardOf(t, cfg)
	y.Load(start, yardmaster.State{})
	y.node("a", 1)

	s := spec(1)
	s.Budget = job.Money(1_000_000)
	y.submit("alice", s)
	y.round()

	if next := y.NextTimer(); !next.IsZero() {
		t.Errorf("a timer is set for %s", next)
	}

	if b := y.Take(); !b.Ledger.Empty() {
		t.Errorf("an unmetered yard posted %+v", b.Ledger)
	}
}
