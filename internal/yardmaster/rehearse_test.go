package yardmaster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// TestADryRunSeesTheYardAsItWasAsked: the answer is made outside the loop, and what happens meanwhile is not in it.
func TestADryRunSeesTheYardAsItWasAsked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.node("b", 4)

	for range 3 { // the last one is queued
		y.submit("alice", spec(4))
	}

	y.Round(y.now)

	file := []yardmaster.Candidate{{Spec: spec(4)}, {Spec: spec(1)}, {Spec: spec(8)}}
	rehearsals := make([]*yardmaster.Rehearsal, 2)
	for i := range rehearsals {
		var err error
		if rehearsals[i], err = y.Rehearse(y.now, "alice", file); err != nil {
			t.Fatal(err)
		}
	}

	want := rehearsals[0].Previews(nil)

	y.ok(yardmaster.NodeReport{Node: "a", Foreign: []int{0}})

	for _, j := range []id.Job{"j1", "j3"} {
		y.ok(yardmaster.Cancel{Job: j, By: "alice"})
	}

	y.node("c", 8)
	y.submit("alice", spec(2))
	y.ok(yardmaster.PutQuota{By: "alice", Quota: tenant.Quota{Subject: tenant.Subject{User: "alice"}, GPUs: 1}})
	y.Round(y.now)
	y.Take()

	if diff := cmp.Diff(want, rehearsals[1].Previews(nil)); diff != "" {
		t.Errorf("asked before the yard went on and answered after it (-before +after):\n%s", diff)
	}

	now, err := y.Rehearse(y.now, "alice", file)
	if err != nil {
		t.Fatal(err)
	}

	if cmp.Equal(want, now.Previews(nil)) {
		t.Error("the yard went on, and a dry run says the same as before")
	}
}

// A job that waits for two reasons has the same one in a dry run as after its submission.
func TestADryRunKnowsWhatTheNextPlanLeavesOfAQuota(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.quota(tenant.Quota{GPUs: 2})
	y.submit("alice", spec(2)) // starts with the next plan

	nowhere := spec(1)
	nowhere.Resources.GPU = []job.GPUKind{{Model: "no such model"}}

	rehearsal, err := y.Rehearse(y.now, "alice", []yardmaster.Candidate{{Spec: nowhere}})
	if err != nil {
		t.Fatal(err)
	}

	said := rehearsal.Previews(nil)[0].Why

	j := y.submit("alice", nowhere)
	y.Round(y.now)

	then, waits := y.Why(y.now, j)
	if !waits || then.Blocker != place.BlockLimit || said.Blocker != then.Blocker {
		t.Errorf("%q (%s) in the dry run, then %q (%s)", said.Sentence, said.Blocker, then.Sentence, then.Blocker)
	}
}

// TestADryRunCopiesTheQueueAtOnce: what a dry run takes in the loop is one copy of all queued jobs, not one of each.
func TestADryRunCopiesTheQueueAtOnce(t *testing.T) {
	y := newYard(t)
	y.node("a", 1)

	allocations := func() float64 {
		return testing.AllocsPerRun(5, func() {
			if _, err := y.Rehearse(y.now, "alice", []yardmaster.Candidate{{Spec: spec(1)}}); err != nil {
				t.Fatal(err)
			}
		})
	}

	y.submit("alice", spec(1))
	few := allocations()

	for range 500 {
		y.submit("alice", spec(1))
	}

	if many := allocations(); many > few+20 {
		t.Errorf("a dry run takes %v allocations with 501 queued jobs, and %v with one", many, few)
	}
}
