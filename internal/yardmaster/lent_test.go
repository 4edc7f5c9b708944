package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// runs lets node a say that a run is running.
func (y *lender) runs(run id.Run) {
	y.t.Helper()
	y.heard(yardmaster.RankReport{Run: run, State: job.RunRunning, Started: y.now})
}

// finishes lets node a say that a run has ended well.
func (y *lender) finishes(run id.Run) {
	y.t.Helper()
	y.heard(yardmaster.RankReport{Run: run, State: job.RunEnded, Started: start, Ended: y.now})
}

// wantContinued checks whether a run was ordered to continue after it was suspended.
func (y *lender) wantContinued(run id.Run, want bool) {
	y.t.Helper()

	o := y.ordered(run)
	if got := o.Suspend.Number == 2; got != want || o.Stop != job.StopNone {
		y.t.Fatalf("the order of %s is %+v, want that it continues: %v", run, o, want)
	}
}

// TestTheLastToLendContinuesFirst: j1 lends its GPU to j2, and j2 lends it to j3.
func TestTheLastToLendContinuesFirst(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(y *lender){
		"":                              func(*lender) {},
		"after a restart of the server": func(y *lender) { y.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			second := checkpointed()
			second.Speed = nil
			second.Expect = job.Duration(20 * time.Minute)

			y := newLender(t, second, func(*fleet.Inventory) {})
			y.suspended()
			y.runs("j2.1")
			y.lasts(time.Minute)

			y.submit("alice", brief())
			y.carriesOut(takeOver)
			y.heard(yardmaster.RankReport{
				Run: "j2.1", State: job.RunRunning, Started: y.now.Add(-time.Minute),
				Suspension: job.Suspension{Number: 1, On: true, Memory: 1 << 30},
			})
			y.status("j2", job.StatusSuspended)
			y.runs("j3.1")
			y.commit()
			happens(y)

			y.finishes("j3.1")
			y.wantContinued("j2.1", true)
			y.wantContinued("j1.1", false)

			y.heard(yardmaster.RankReport{
				Run: "j2.1", State: job.RunRunning, Started: start, Suspension: job.Suspension{Number: 2},
			})
			y.finishes("j2.1")
			y.wantContinued("j1.1", true)
		})
	}
}

// TestASuspendedJobWaitsForItsCPUsToo: others may have got them meanwhile.
func TestASuspendedJobWaitsForItsCPUsToo(t *testing.T) {
	t.Parallel()
	first, third := checkpointed(), spec(0)
	first.Resources.CPUs, third.Resources.CPUs = 2000, 3000
	y := newLenderOf(t, first, brief(), func(inv *fleet.Inventory) { inv.CPUs = 4000 })
	y.suspended()
	y.runs("j2.1")
	y.submit("alice", third)
	y.carriesOut(func(v *place.View) place.Plan { return startOn(v, "a", 0) })
	y.runs("j3.1")

	y.finishes("j2.1")
	y.wantContinued("j1.1", false)
	y.finishes("j3.1")
	y.wantContinued("j1.1", true)
}

// TestASuspendedJobWaitsForItsNode: a node that is silent may be gone.
func TestASuspendedJobWaitsForItsNode(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspends()
	y.restart() // the promise to j2 is forgotten
	y.says(job.Suspension{Number: 1, On: true})

	for range 8 { // the yard does not take itself for suspended
		y.now = y.now.Add(5 * time.Second)
		y.ok(yardmaster.Tick{})
	}

	y.ok(yardmaster.Cancel{Job: "j2", By: "alice"})
	y.wantContinued("j1.1", false)

	y.heard()
	y.wantContinued("j1.1", true)
}

// TestAGPUIsNotKeptForEver: j2 waits for the GPU that was lent to it, and no plan starts it.
func TestAGPUIsNotKeptForEver(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspends()
	y.restart()
	y.says(job.Suspension{Number: 1, On: true})
	y.lasts(55 * time.Second)
	y.wantContinued("j1.1", false)
	y.now = y.now.Add(5 * time.Second)
	y.ok(yardmaster.Tick{})
	y.wantContinued("j1.1", true)
}

// TestASuspendedJobOverItsQuotaIsRequeued: it is not above the rules because it ran before.
func TestASuspendedJobOverItsQuotaIsRequeued(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspended()
	y.runs("j2.1")
	y.submit("alice", spec(1))
	y.carriesOut(func(v *place.View) place.Plan { return startOn(v, "a", 2) })
	y.runs("j3.1")
	y.quota(tenant.Quota{Subject: tenant.Subject{User: "alice"}, GPUs: 1})
	y.finishes("j2.1")

	if o := y.ordered("j1.1"); o.Stop != job.StopTerm {
		t.Fatalf("the order of j1.1 is %+v, want that it stops", o)
	}

	y.heard(yardmaster.RankReport{Run: "j1.1", State: job.RunEnded, Started: start, Ended: y.now, Signalled: true})

	if j := y.job("j1"); j.State.Final() || !strings.Contains(j.Reason, "quota") {
		t.Errorf("j1 is %s: %s", j.State, j.Reason)
	}
}

// TestTheTimeOfALoanIsNotRunTime: a job with a limit of its run time is not stopped while it is suspended, and has as
// much left afterwards as it had before.
func TestTheTimeOfALoanIsNotRunTime(t *testing.T) {
	t.Parallel()
	limited := checkpointed()
	limited.MaxDuration = job.Duration(5 * time.Minute)
	y := newLenderOf(t, limited, brief(), func(*fleet.Inventory) {})
	y.suspended()
	y.runs("j2.1")
	y.lasts(10 * time.Minute)
	y.status("j1", job.StatusSuspended)
	y.finishes("j2.1")
	y.says(job.Suspension{Number: 2})
	y.lasts(195 * time.Second) // of the 200 that are left
	y.status("j1", job.StatusRunning)
	y.lasts(10 * time.Second)

	if o := y.ordered("j1.1"); o.Stop == job.StopNone {
		t.Errorf("the order of j1.1 is %+v, want that it stops", o)
	}
}

// TestProgressStandsStillDuringALoan: j1 has done 100 units when it is suspended, and goes on from there.
func TestProgressStandsStillDuringALoan(t *testing.T) {
	t.Parallel()

	for name, happens := range map[string]func(y *lender){
		"":                              func(*lender) {},
		"after a restart of the server": func(y *lender) { y.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newLender(t, brief(), func(*fleet.Inventory) {})
			wantDone := func(want float64) {
				t.Helper()
				if p := y.JobStatuses([]id.Job{"j1"}).Answer()[0].Progress; p == nil || p.Done < want-5 || p.Done > want+5 {
					t.Errorf("progress of j1 is %+v, want %g units", p, want)
				}
			}

			y.suspended()
			wantDone(100)
			y.runs("j2.1")
			y.commit()
			happens(y)
			y.lasts(10 * time.Minute)
			wantDone(100)

			y.finishes("j2.1")
			y.says(job.Suspension{Number: 2})
			wantDone(100)
			y.lasts(50 * time.Second)
			wantDone(150)
		})
	}
}

// TestASuspensionIsCountedOnce: an agent reports again and again that it has suspended a program, and that more of its
// memory was moved.
func TestASuspensionIsCountedOnce(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspended()
	y.commit()
	y.says(job.Suspension{Number: 1, On: true, Memory: 31 << 30})

	if got := eventsOf(y.Take(), "run.suspended"); len(got) != 0 || y.job("j1").Stops != 1 {
		t.Errorf("events %q after %d stops, want one stop", got, y.job("j1").Stops)
	}
}

// TestAStoppedJobIsNotSuspended: the report that it was crosses the order to stop.
func TestAStoppedJobIsNotSuspended(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspends()
	y.ok(yardmaster.Pause{Job: "j1", By: "alice"})
	y.commit()
	y.says(job.Suspension{Number: 1, On: true, Memory: 30 << 30})
	y.status("j1", job.StatusPausing)

	if got := eventsOf(y.Take(), "run.suspended"); len(got) != 0 {
		t.Errorf("events %q", got)
	}
}

// TestALentGPUIsNotUsedOfAQuota: alice may use two GPUs, and does while one of her three jobs is suspended.
func TestALentGPUIsNotUsedOfAQuota(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.quota(tenant.Quota{Subject: tenant.Subject{User: "alice"}, GPUs: 2})
	y.suspended()
	y.runs("j2.1")
	y.submit("alice", spec(1))
	y.carriesOut(func(v *place.View) place.Plan { return startOn(v, "a", 2) })

	if o := y.ordered("j3.1"); o.Run == "" {
		t.Fatalf("j3 is not started: %s", y.job("j3").Reason)
	}

	y.runs("j3.1")
	y.finishes("j2.1")
	y.wantContinued("j1.1", true)

	// Now two GPUs are in use again.
	y.submit("alice", spec(1))

	if j := y.job("j4"); !strings.Contains(j.Reason, "quota") {
		t.Errorf("j4 is %s: %s, want that the quota holds it", j.State, j.Reason)
	}
}
