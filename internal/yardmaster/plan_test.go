package yardmaster_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// never stops no search.
func never() bool { return false }

// TestStaleParts: of a plan that was made beside the yard, what can no longer be had is
// dropped, each part with an event that says why, and the rest is carried out.
func TestStaleParts(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		happens func(y *yard)
		runs    []id.Job // of j1 on node a and j2 on node b
		dropped []string
	}{
		"nothing happens": {
			happens: func(*yard) {},
			runs:    []id.Job{"j1", "j2"},
		},
		"a job is cancelled": {
			happens: func(y *yard) { y.ok(yardmaster.Cancel{Job: "j1", By: "alice"}) },
			runs:    []id.Job{"j2"},
			dropped: []string{"the job is no longer queued"},
		},
		"a job leaves the line and comes back": {
			happens: func(y *yard) {
				y.ok(yardmaster.Pause{Job: "j1", By: "alice"})
				y.now = y.now.Add(time.Second)
				y.ok(yardmaster.Resume{Job: "j1", By: "alice"})
			},
			runs:    []id.Job{"j2"},
			dropped: []string{"the job is no longer queued"},
		},
		"a node is drained": {
			happens: func(y *yard) { y.ok(yardmaster.Cordon{Node: "b", By: "alice", On: true}) },
			runs:    []id.Job{"j1"},
			dropped: []string{"the plan for job j2 cannot be carried out: it does not fit on node b"},
		},
		"a node is lost": {
			happens: func(y *yard) { y.ok(yardmaster.NodeGone{Node: "b", By: "test", Reason: "unplugged"}) },
			runs:    []id.Job{"j1"},
			dropped: []string{"the plan for job j2 cannot be carried out: it does not fit on node b"},
		},
		"others use the GPUs": {
			happens: func(y *yard) { y.ok(yardmaster.NodeReport{Node: "b", Foreign: []int{0, 1, 2, 3}}) },
			runs:    []id.Job{"j1"},
			dropped: []string{"the plan for job j2 cannot be carried out: it does not fit on node b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.node("a", 4)
			y.node("b", 4)
			y.submit("alice", spec(4))
			y.submit("alice", spec(4))

			p := y.Begin(y.now)

			if y.PlanDue() {
				t.Error("another plan is wanted while one is made")
			}

			tc.happens(y)
			y.Take()
			applied := y.ok(yardmaster.PlanReady{Plan: p.Plan(never)})

			b := y.Take()

			var runs []id.Job
			for i := range b.Runs {
				runs = append(runs, b.Runs[i].Job)
			}

			slices.Sort(runs)
			if !slices.Equal(runs, tc.runs) {
				t.Errorf("%v run, want %v", runs, tc.runs)
			}

			var dropped []string
			for i := range b.Events {
				if b.Events[i].Kind == "plan.dropped" {
					dropped = append(dropped, b.Events[i].Reason)
				}
			}

			if want := (yardmaster.PlanApplied{Dropped: len(dropped)}); applied != want {
				t.Errorf("the answer is %+v, want %+v", applied, want)
			}

			if !slices.Equal(dropped, tc.dropped) {
				t.Errorf("dropped: %q, want %q", dropped, tc.dropped)
			}
		})
	}
}

// TestAStopOfARunThatEndedIsDropped: so is the start that needed its node.
func TestAStopOfARunThatEndedIsDropped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	first := y.submit("alice", spec(4))
	y.Round(y.now)
	run := id.NewRun(first, 1)

	v := y.View(y.now)
	plan := place.Plan{Stops: []place.Stop{{Running: v.Running[0], Reason: "for another"}}}
	y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{
		{Run: run, State: job.RunEnded, Started: y.now, Ended: y.now},
	}})

	if got := y.ok(yardmaster.PlanReady{Plan: plan}); got != (yardmaster.PlanApplied{Dropped: 1}) {
		t.Errorf("the answer is %+v, want one part dropped", got)
	}
}

// TestAViewStaysAsItIs: whatever happens in the yard, a view that was taken before is the
// same, and can be read back from what is written of it.
func TestAViewStaysAsItIs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.node("b", 4)

	for range 4 {
		y.submit("alice", spec(2))
	}

	y.Round(y.now)
	y.submit("alice", spec(8))

	v := y.View(y.now)
	before, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	y.now = y.now.Add(time.Minute)
	for _, r := range y.View(y.now).Running {
		y.runs(r.Allocations[0].Node, r.Run)
	}

	y.ok(yardmaster.Cancel{Job: "j1", By: "alice", Kill: true})
	y.ok(yardmaster.Cancel{Job: "j5", By: "alice"})
	y.ok(yardmaster.Cordon{Node: "b", By: "alice", On: true})
	y.submit("alice", spec(1))
	y.Round(y.now)

	after, err := json.Marshal(v)
	if err != nil || string(before) != string(after) {
		t.Errorf("the view has changed with the yard (%v):\n%s\n%s", err, before, after)
	}

	var read place.View
	if err := json.Unmarshal(before, &read); err != nil {
		t.Fatal(err)
	}

	if read.Queue.Len() != 1 || len(read.Running) != 4 {
		t.Errorf("read back: %d wait and %d run; want 1 and 4", read.Queue.Len(), len(read.Running))
	}
}

// TestAPlanIsMadeBesideTheYard: while a slow policy reads its view, everything that the
// view is made of changes. The race detector sees to it that the two share nothing that
// is written.
func TestAPlanIsMadeBesideTheYard(t *testing.T) {
	t.Parallel()

	all := catalogue.All(nil)
	for _, name := range []string{
		"afs-l", "andreas", "andreas-published", "conservative", "edl", "elastic-fifo", "elastic-srjf", "elastic-tiresias",
		"equal-share", "ffdl", "goodput", "goodput-fair", "goodput-makespan", "harvest", "tiresias",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newPolicy, err := all.Make(name)
			if err != nil {
				t.Fatal(err)
			}

			y := newYard(t)
			y.Yard = yardmaster.New(yardmaster.Defaults(newPolicy()))
			y.ok(yardmaster.PutUser{User: "alice", Role: tenant.Admin, By: "test"})
			y.ok(yardmaster.AddToken{By: "test", Token: tenant.Token{
				ID: "join", Kind: tenant.JoinToken, Owner: "alice", Class: "local", UsesLeft: 10, Expires: start.AddDate(1, 0, 0),
			}})

			if !y.Slow() {
				t.Fatal("it does not say that it is slow")
			}

			y.node("a", 4)
			y.node("b", 4)

			for range 10 {
				y.submit("alice", elastic())
				y.submit("alice", spec(2))
				p := y.Begin(y.now)
				plans := make(chan place.Plan)
				go func() { plans <- p.Plan(never) }()

				y.now = y.now.Add(time.Second)
				for _, r := range y.View(y.now).Running {
					y.runs(r.Allocations[0].Node, r.Run)
				}

				y.ok(yardmaster.Cancel{Job: y.submit("alice", spec(1)), By: "alice"})
				y.ok(yardmaster.PutDataset{By: "alice", Dataset: dataset.Dataset{ID: "films", Rule: job.PlaceAny, Size: 1}})
				y.ok(yardmaster.PutQuota{By: "alice", Quota: tenant.Quota{Subject: tenant.Subject{User: "alice"}, GPUs: 64}})
				y.ok(yardmaster.Tick{})

				y.ok(yardmaster.PlanReady{Plan: <-plans})
				y.Take()
			}

			if len(y.View(y.now).Running) == 0 {
				t.Error("nothing runs")
			}
		})
	}
}
