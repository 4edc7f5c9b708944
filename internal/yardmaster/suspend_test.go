package yardmaster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// lender is a yard with the node a of two GPUs, which can suspend programs, and a policy that does what a test says.
type lender struct {
	*storedYard
	policy *script
	old    bool // its agent cannot suspend programs
	posted []ledger.Posting
}

// commit stores what has changed.
func (y *lender) commit() {
	y.t.Helper()
	b := y.Take()
	y.posted = append(y.posted, b.Ledger.Postings...)
	if err := y.store.commit(b); err != nil {
		y.t.Fatal(err)
	}
}

// heard lets node a report, with what it says of some ranks.
func (y *lender) heard(ranks ...yardmaster.RankReport) {
	y.t.Helper()
	y.ok(yardmaster.NodeReport{Node: "a", Restores: true, Suspends: !y.old, Ranks: ranks})
	y.check()
}

// says lets node a report about the suspension of j1.
func (y *lender) says(s job.Suspension) {
	y.t.Helper()
	y.heard(yardmaster.RankReport{Run: "j1.1", State: job.RunRunning, Started: start, Suspension: s})
}

// lasts lets time pass while node a reports.
func (y *lender) lasts(d time.Duration) {
	y.t.Helper()

	for end := y.now.Add(d); y.now.Before(end); {
		y.now = y.now.Add(min(5*time.Second, end.Sub(y.now)))
		y.heard()
		y.ok(yardmaster.Tick{})
		y.check()
	}
}

// carriesOut carries out a plan; those after it change nothing.
func (y *lender) carriesOut(plan func(*place.View) place.Plan) {
	y.t.Helper()
	y.policy.plan = plan
	y.Round(y.now)
	y.check()
	y.policy.plan = func(*place.View) place.Plan { return place.Plan{} }
}

// brief is a job on one GPU that takes ten minutes.
func brief() *job.Spec {
	s := spec(1)
	s.Expect = job.Duration(10 * time.Minute)

	return s
}

// checkpointed is a job on one GPU that saves checkpoints, takes a unit of work a second and has 10,000 to do.
func checkpointed() *job.Spec {
	s := spec(1)
	s.Checkpoint = &job.Checkpoint{Dir: "ckpt", Every: job.Duration(time.Minute)}
	s.Speed = job.NewSpeed(10_000, 0, 0, job.Rate{GPUs: 1, PerSecond: 1})

	return s
}

// takeOver plans that j2 gets the GPU of j1.
func takeOver(v *place.View) place.Plan {
	p := startOn(v, "a", 1)
	p.Stops = []place.Stop{{Running: v.Running[0], Reason: "preempted for j2"}}

	return p
}

// newLender returns a yard in which j1 has run for 100 s on the first GPU of a, and j2 is queued.
func newLender(t *testing.T, j2 *job.Spec, change func(inv *fleet.Inventory)) *lender {
	t.Helper()
	return newLenderOf(t, checkpointed(), j2, change)
}

// newLenderOf is newLender with another job j1.
func newLenderOf(t *testing.T, j1, j2 *job.Spec, change func(inv *fleet.Inventory)) *lender {
	t.Helper()
	p := &script{}
	y := &lender{
		storedYard: newStoredYard(t, func() yardmaster.Config { return yardmaster.Defaults(p) }), policy: p,
	}
	inv := fleet.Inventory{
		Address: "a", CPUs: 64000, Memory: 256 << 30, Restores: true, Suspends: true,
		Snapshots: &fleet.Snapshots{Suspend: fleet.Ability{OK: true}},
	}

	for i := range 2 {
		inv.GPUs = append(inv.GPUs, fleet.GPU{Index: i, UUID: string(rune('0' + i)), Model: "NVIDIA H200", Memory: 141 << 30})
	}

	change(&inv)
	y.old = !inv.Suspends
	y.ok(yardmaster.Join{Token: "join", Name: "a", Inventory: inv})
	y.submit("alice", j1)
	y.carriesOut(func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.says(job.Suspension{})
	y.lasts(100 * time.Second)
	y.submit("alice", j2)
	y.commit()

	return y
}

// ordered returns the open order of a run.
func (y *lender) ordered(run id.Run) yardmaster.Order {
	y.t.Helper()
	for _, o := range y.Orders() {
		if o.Run == run {
			return o
		}
	}

	return yardmaster.Order{}
}

// suspends lets the plan preempt j1, which is suspended for j2.
func (y *lender) suspends() {
	y.t.Helper()
	y.carriesOut(takeOver)

	if o := y.ordered("j1.1"); !o.Suspend.On() || o.Stop != job.StopNone || o.Suspend.For != "j2" {
		y.t.Fatalf("the order of j1.1 is %+v, want that it is suspended for j2", o)
	}
	if o := y.ordered("j2.1"); o.Run != "" {
		y.t.Fatal("j2 was started before j1 was suspended")
	}
}

// suspended is suspends, and the node has done so.
func (y *lender) suspended() {
	y.t.Helper()
	y.suspends()
	y.says(job.Suspension{Number: 1, On: true, Memory: 30 << 30})
	y.status("j1", job.StatusSuspended)
}

func (y *lender) status(j id.Job, want job.Status) {
	y.t.Helper()
	if r := y.job(j); r.Status() != want {
		y.t.Fatalf("%s is %s (%s), want %s", j, r.Status(), r.Reason, want)
	}
}

func TestAPreemptedJobLendsItsGPUAndContinues(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspended()

	if o := y.ordered("j2.1"); o.Node != "a" || len(o.Launch.GPUs) != 1 || o.Launch.GPUs[0] != 0 {
		t.Fatalf("the order of j2 is %+v, want the GPU of j1", o)
	}

	v := y.View(y.now)
	if len(v.Running) != 1 || v.Running[0].Job != "j2" {
		t.Errorf("policies see %d running jobs, want j2 alone", len(v.Running))
	}

	if r := v.Rooms[0]; r.Free != 2 || r.Memory != (256-30)<<30 {
		t.Errorf("GPUs %b and %s are free, want the second GPU, and all but the 30 GiB that j1 has moved", r.Free, r.Memory)
	}

	y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunRunning, Started: y.now})
	y.lasts(10 * time.Minute)
	y.commit()
	y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunEnded, Started: start, Ended: y.now})

	b := y.Take()
	if o := y.ordered("j1.1"); o.Suspend.Number != 2 {
		t.Fatalf("the order of j1.1 is %+v, want that it continues", o)
	}

	want := "its GPU on a is free again; continues after it was suspended for 10m"
	if got := eventsOf(b, "run.resuming"); len(got) != 1 || got[0] != want {
		t.Errorf("events %q, want %q", got, want)
	}

	y.says(job.Suspension{Number: 2})
	y.status("j1", job.StatusRunning)
	y.lasts(50 * time.Second)

	// It has worked for 150 s and lent its GPU for 600 s.
	v = y.View(y.now)
	if got := v.Running[0].Done(y.now); got < 145 || got > 155 {
		t.Errorf("j1 has done %g units, want 150", got)
	}

	y.heard(yardmaster.RankReport{Run: "j1.1", State: job.RunEnded, Started: start, Ended: y.now})

	if j := y.job("j1"); j.State != job.Succeeded || j.Ran < 145*time.Second || j.Ran > 155*time.Second || j.Stops != 1 {
		t.Errorf("j1 %s, ran for %s and was stopped %d times; want 150 s and one", j.State, j.Ran, j.Stops)
	}
}

// TestASuspendedJobIsNotCharged compares the GPU time of a user with the time that the GPUs were really in use.
func TestASuspendedJobIsNotCharged(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.quota(tenant.Quota{Subject: tenant.Subject{User: "alice"}, GPUs: 2, GPUHours: 1000})
	y.suspended()
	y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunRunning, Started: y.now})

	rate := yardmaster.RateOf(y.Yard, "alice")
	y.lasts(10 * time.Minute)

	if got := yardmaster.RateOf(y.Yard, "alice"); got != rate {
		t.Errorf("alice is charged for %g GPUs, want %g", got, rate)
	}

	y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunEnded, Started: start, Ended: y.now})
	y.says(job.Suspension{Number: 2})
	y.status("j1", job.StatusRunning)

	y.commit()

	left, _ := y.Unposted(y.now)
	posted := 0.0

	for _, p := range slices.Concat(y.posted, left) {
		if p.Job == "j1" {
			posted += float64(p.GPUTime) / 1000
		}
	}

	if posted < 95 || posted > 105 {
		t.Errorf("j1 is charged for %g GPU-seconds, want the 100 s before it was suspended", posted)
	}
}

// savedBy is a checkpoint of a run.
func savedBy(run id.Run, node id.Node, at time.Time) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		Run: run, Name: "ckpt", Step: -1, Ranks: 1, Written: at,
		Parts: []checkpoint.Part{{Node: node, Manifest: "m", Size: 1}},
	}
}

// TestAJobIsStoppedIfItCannotBeSuspended keeps what preemption did before, and says why.
func TestAJobIsStoppedIfItCannotBeSuspended(t *testing.T) {
	t.Parallel()
	long, hungry := spec(1), brief()
	long.Expect = job.Duration(3 * time.Hour)
	hungry.Resources.Memory = 200 << 30

	for name, tc := range map[string]struct {
		j2     *job.Spec
		change func(inv *fleet.Inventory)
		why    string
	}{
		"by an older agent": {
			brief(), func(inv *fleet.Inventory) { inv.Suspends = false }, "node a cannot: its agent does not suspend programs",
		},
		"by its node": {
			brief(), func(inv *fleet.Inventory) { inv.Snapshots.Suspend = fleet.Ability{Reason: "old driver"} },
			"node a cannot: old driver",
		},
		"for so long":               {long, func(*fleet.Inventory) {}, "j2 is expected to run for 3h, longer than 1h"},
		"for nobody knows how long": {spec(1), func(*fleet.Inventory) {}, "how long j2 will run is unknown"},
		"with so little memory":     {hungry, func(*fleet.Inventory) {}, "node a has too little memory for both programs"},
		"on a node that never does": {brief(), func(inv *fleet.Inventory) { inv.Snapshots = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			large := checkpointed()
			large.Resources.Memory = 100 << 30

			y := newLenderOf(t, large, tc.j2, tc.change)
			y.carriesOut(takeOver)

			if o := y.ordered("j1.1"); o.Stop != job.StopTerm || o.Suspend.Number != 0 {
				t.Fatalf("the order of j1.1 is %+v, want that it stops", o)
			}

			want := "preempted for j2"
			if tc.why != "" {
				want += "; not suspended in place: " + tc.why
			}

			if got := eventsOf(y.Take(), "run.stopping"); len(got) != 1 || got[0] != want {
				t.Errorf("events %q, want %q", got, want)
			}

			y.heard(yardmaster.RankReport{Run: "j1.1", State: job.RunEnded, Started: start, Ended: y.now, Signalled: true})

			if j := y.job("j1"); j.State != job.Recovering || !strings.Contains(j.Reason, want) {
				t.Errorf("j1 is %s: %s, want %q", j.State, j.Reason, want)
			}
		})
	}
}

// newPair returns a yard in which j1 and j2 run on the two GPUs of a, which has four CPUs, and others are queued.
func newPair(t *testing.T, queued ...*job.Spec) *lender {
	t.Helper()
	y := newLender(t, checkpointed(), func(inv *fleet.Inventory) { inv.CPUs = 4000 })
	y.carriesOut(func(v *place.View) place.Plan { return startOn(v, "a", 2) })
	y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunRunning, Started: y.now})

	for _, s := range queued {
		y.submit("alice", s)
	}

	y.commit()

	return y
}

// takeBoth plans that the queued jobs get the GPUs of j1 and j2, which are both preempted.
func takeBoth(v *place.View) place.Plan {
	var p place.Plan
	for _, r := range v.Running {
		p.Stops = append(p.Stops, place.Stop{Running: r, Reason: "preempted"})
	}

	for i, it := range v.Queue.Items() {
		seat := place.Allocation{Node: "a", GPUs: 1 << i}
		p.Starts = append(p.Starts, place.Start{Item: it, Allocations: []place.Allocation{seat}, Reason: "urgent"})
	}

	return p
}

// TestOfTwoJobsOneIsSuspendedAtATime: which memory the first will take is not known until it is suspended.
func TestOfTwoJobsOneIsSuspendedAtATime(t *testing.T) {
	t.Parallel()
	y := newPair(t, brief(), brief())
	y.carriesOut(takeBoth)

	if first, second := y.ordered("j1.1"), y.ordered("j2.1"); !first.Suspend.On() || first.Stop != job.StopNone ||
		second.Suspend.On() || second.Stop != job.StopTerm {
		t.Errorf("orders %+v and %+v, want that one is suspended and the other stops", first, second)
	}

	want := "preempted; not suspended in place: another program there is just being suspended"
	if got := eventsOf(y.Take(), "run.stopping"); len(got) != 1 || got[0] != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestAJobWithTheCPUsOfTwo: it cannot start before both have stopped, so nothing is won by suspending one.
func TestAJobWithTheCPUsOfTwo(t *testing.T) {
	t.Parallel()
	s := brief()
	s.Resources.CPUs = 3500
	y := newPair(t, s)
	y.carriesOut(takeBoth)

	want := []string{
		"preempted; not suspended in place: node a has too few CPUs until other jobs have stopped there",
		"preempted; not suspended in place: no job gets its GPU at once",
	}
	if got := eventsOf(y.Take(), "run.stopping"); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestASuspendedJobLeavesWithinTheNotice: it cannot save, so it is not asked to and does not wait for the end of the
// notice. It continues elsewhere from the checkpoint that it has.
func TestASuspendedJobLeavesWithinTheNotice(t *testing.T) {
	t.Parallel()

	for name, begin := range map[string]func(y *lender){
		"that is suspended":             (*lender).suspended,
		"that is about to be suspended": (*lender).suspends,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newLender(t, brief(), func(*fleet.Inventory) {})
			y.stores("j1.1") // it saves on request
			begin(y)
			y.commit()

			left := 2 * time.Minute
			y.ok(yardmaster.NodeReport{Node: "a", Restores: true, Suspends: true, Reclaim: &left})
			y.check()

			if o := y.ordered("j1.1"); o.Stop != job.StopTerm || o.Save != 0 {
				t.Fatalf("the order of j1.1 is %+v, want that it stops at once", o)
			}

			y.heard(yardmaster.RankReport{Run: "j1.1", State: job.RunEnded, Started: start, Ended: y.now, Signalled: true})

			if o := y.ordered("j2.1"); o.Run != "" {
				if o.Stop != job.StopTerm {
					t.Fatalf("the order of j2.1 is %+v, want that it stops", o)
				}

				y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunEnded, Ended: y.now, Signalled: true})
			}

			got := y.job("j1")
			if got.State != job.Recovering || !strings.Contains(got.Reason, fleet.SpotReclaimed) || !got.NotBefore.IsZero() {
				t.Fatalf("j1 is %s (%s), not before %v", got.State, got.Reason, got.NotBefore)
			}

			y.node("b", 1)
			y.carriesOut(func(v *place.View) place.Plan { return startOn(v, "b", 1) })

			if o := y.ordered("j1.2"); o.Node != "b" || o.Launch.Restore == nil {
				t.Errorf("the order of j1.2 is %+v, want that it continues on b from its checkpoint", o)
			}
		})
	}
}

func TestANodeThatFailsToSuspendStopsTheJob(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		happens func(y *lender)
		why     string
	}{
		"and says why": {
			func(y *lender) { y.says(job.Suspension{Number: 1, Error: "90 GiB do not fit"}) }, "90 GiB do not fit",
		},
		"and says nothing": {func(y *lender) { y.lasts(5 * time.Minute) }, "did not suspend it within 5m"},
		"after a restart of the server": {
			func(y *lender) { y.restart(); y.lasts(5 * time.Minute) }, "did not suspend it within 5m",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newLender(t, brief(), func(*fleet.Inventory) {})
			y.suspends()
			y.commit()
			tc.happens(y)

			if o := y.ordered("j1.1"); o.Stop != job.StopTerm {
				t.Fatalf("the order of j1.1 is %+v, want that it stops", o)
			}

			if got := strings.Join(eventsOf(y.Take(), "run.suspend_failed"), "\n"); !strings.Contains(got, tc.why) {
				t.Errorf("events %q, want %q", got, tc.why)
			}
		})
	}
}

// TestASuspendedJobIsRequeued lets everything happen after which it cannot continue where it is.
func TestASuspendedJobIsRequeued(t *testing.T) {
	t.Parallel()

	for name, happens := range map[string]func(y *lender){
		"when its node is lost": func(y *lender) {
			y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: "it burned"})
		},
		"when its node is drained": func(y *lender) {
			y.ok(yardmaster.Cordon{Node: "a", By: "alice", On: true, Stop: true})
		},
		"when it waits for too long":    func(y *lender) { y.lasts(2 * time.Hour) },
		"too long, and after a restart": func(y *lender) { y.restart(); y.lasts(2 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newLender(t, brief(), func(*fleet.Inventory) {})
			y.suspended()
			y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunRunning, Started: y.now})
			y.ok(yardmaster.AddCheckpoint{Checkpoint: savedBy("j1.1", "a", y.now)})
			happens(y)

			if o := y.ordered("j1.1"); o.Run != "" {
				if o.Stop != job.StopTerm {
					t.Fatalf("the order of j1.1 is %+v, want that it stops", o)
				}

				y.heard(yardmaster.RankReport{Run: "j1.1", State: job.RunEnded, Started: start, Ended: y.now, Signalled: true})
			}

			y.check()
			y.status("j1", job.StatusRecovering)

			if j := y.job("j1"); !j.Suspended.IsZero() || j.Ran > 105*time.Second {
				t.Errorf("j1 is suspended since %s and has run for %s", j.Suspended, j.Ran)
			}
		})
	}
}

// TestASuspensionSurvivesRestartsOfTheServer restarts it at every step.
func TestASuspensionSurvivesRestartsOfTheServer(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspends()
	y.restart() // the promise to j2 is forgotten
	y.says(job.Suspension{Number: 1, On: true, Memory: 30 << 30})
	y.status("j1", job.StatusSuspended)

	if o := y.ordered("j1.1"); !o.Suspend.On() {
		t.Fatal("j1 continues before j2 had its GPU")
	}

	y.carriesOut(func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunRunning, Started: y.now})
	y.restart()
	y.lasts(time.Minute)
	y.says(job.Suspension{Number: 1, On: true, Memory: 30 << 30})
	y.status("j1", job.StatusSuspended)

	y.heard(yardmaster.RankReport{Run: "j2.1", State: job.RunEnded, Started: start, Ended: y.now})
	y.restart()

	if o := y.ordered("j1.1"); o.Suspend.Number != 2 {
		t.Fatalf("the order of j1.1 is %+v, want that it continues", o)
	}

	y.says(job.Suspension{Number: 1, On: true, Memory: 30 << 30}) // it has not heard of it yet
	y.says(job.Suspension{Number: 2})
	y.says(job.Suspension{Number: 1, On: true, Memory: 30 << 30}) // a late report
	y.status("j1", job.StatusRunning)
	y.lasts(10 * time.Minute)
	y.status("j1", job.StatusRunning)
}

// TestAJobContinuesIfNobodyWantsItsGPU cancels the other job before it could start.
func TestAJobContinuesIfNobodyWantsItsGPU(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspends()
	y.ok(yardmaster.Cancel{Job: "j2", By: "alice"})
	y.says(job.Suspension{Number: 1, On: true})

	if o := y.ordered("j1.1"); o.Suspend.Number != 2 {
		t.Errorf("the order of j1.1 is %+v, want that it continues at once", o)
	}
}

// TestAProgramThatDoesNotContinueIsStopped lets its node not answer.
func TestAProgramThatDoesNotContinueIsStopped(t *testing.T) {
	t.Parallel()
	y := newLender(t, brief(), func(*fleet.Inventory) {})
	y.suspends()
	y.ok(yardmaster.Cancel{Job: "j2", By: "alice"})
	y.says(job.Suspension{Number: 1, On: true})
	y.lasts(5 * time.Minute)

	if o := y.ordered("j1.1"); o.Stop != job.StopTerm {
		t.Errorf("the order of j1.1 is %+v, want that it stops", o)
	}
}
