package yardmaster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// TestAStartIsNotPromisedBeforeThePlan: what is free does not decide.
func TestAStartIsNotPromisedBeforeThePlan(t *testing.T) {
	t.Parallel()
	y, policy := scripted(t)
	policy.plan = func(*place.View) place.Plan { return place.Plan{} }
	j := y.submit("alice", spec(1))

	says := func(blocker place.Blocker, sentence string) {
		t.Helper()

		why, _ := y.Why(y.now, j)
		if why.Blocker != blocker || why.Sentence != sentence || !why.Start.IsZero() {
			t.Errorf("why %+v, want %s: %q", why, blocker, sentence)
		}

		if brief := y.Briefs(y.now, []id.Job{j})[0].WaitReason; brief != sentence {
			t.Errorf("the list says %q, want %q", brief, sentence)
		}
	}

	says(place.BlockNone, "a has room; considered in the next scheduling round")
	y.round()
	says(place.BlockPolicy, "a has room, but policy script lets the job wait")

	policy.plan = func(*place.View) place.Plan {
		return place.Plan{Waits: []place.Wait{{Job: j, Reason: "waits for the night"}}}
	}
	y.ok(yardmaster.NodeReport{Node: "a"})
	y.Round(y.now)
	says(place.BlockPolicy, "waits for the night")
}

// countingExplainer keeps the questions that it is asked.
type countingExplainer struct {
	yardmaster.Explainer
	asked map[yardmaster.Question]bool
}

func (e countingExplainer) Explain(q yardmaster.Question) place.Why {
	e.asked[q] = true
	return e.Explainer.Explain(q)
}

// TestHowLongJobsLastTakesNoExplanationsOfTheirOwn: how long a job is declared to last matters only beside a
// reservation, and there only whether it ends before that. What the plan says of a job is added to what all have.
func TestHowLongJobsLastTakesNoExplanationsOfTheirOwn(t *testing.T) {
	t.Parallel()
	y, policy := scripted(t)
	ahead := y.submit("alice", spec(8))
	reservation := &place.Reservation{Job: ahead, Nodes: []id.Node{"a", "b"}, At: y.now.Add(150 * time.Minute)}

	var jobs []id.Job
	for hours := range 20 {
		s := spec(1)
		s.Expect = job.Duration(time.Duration(hours) * time.Hour) // the first says nothing
		jobs = append(jobs, y.submit("alice", s))
	}

	check := func(questions int, says func(hours int) (sentence string, remedies int)) {
		t.Helper()
		y.ok(yardmaster.NodeReport{Node: "a"})
		y.Round(y.now)

		snap := y.Snapshot(y.now)
		explainer := countingExplainer{snap.Explainer(y.now), map[yardmaster.Question]bool{}}

		for hours, id := range jobs {
			stored, _ := yardmaster.JobOf(y.Yard, id)
			why, _ := snap.Why(y.now, &stored, explainer)
			sentence, remedies := says(hours)

			if why.Sentence != sentence || len(why.Remedies) != remedies {
				t.Errorf("a job of %d hours: %q with remedies %v, want %q with %d",
					hours, why.Sentence, place.Texts(why.Remedies), sentence, remedies)
			}
		}

		if got := len(explainer.asked); got != questions {
			t.Errorf("%d jobs that differ in how long they last took %d explanations, want %d", len(jobs), got, questions)
		}
	}

	policy.plan = func(*place.View) place.Plan { return place.Plan{Reservation: reservation} }
	check(2, func(hours int) (string, int) {
		sentence := fmt.Sprintf("a has room but is reserved for %s, which is ahead in the queue and is expected to start at %s",
			ahead, humanize.Time(reservation.At, y.now.UTC()))
		if hours == 1 || hours == 2 {
			return sentence, 0
		}

		return sentence, 1
	})

	policy.plan = func(*place.View) place.Plan {
		plan := place.Plan{}
		for _, j := range jobs {
			plan.Waits = append(plan.Waits, place.Wait{Job: j, Reason: "waits because it is " + string(j)})
		}

		return plan
	}
	check(1, func(hours int) (string, int) { return "waits because it is " + string(jobs[hours]), 0 })
}

func TestTheStartOfAHeldJobIsNotDueAtAnyMoment(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.quota(tenant.Quota{GPUHours: 1, Period: tenant.Day, OnExceeded: tenant.ExceededAsk})
	y.startFirst(spec(4))
	y.pass(time.Hour, "a")

	j := y.submit("alice", spec(1))
	y.round()

	why, _ := y.Why(y.now, j)
	midnight := tenant.Day.End(y.now)
	if why.Blocker != place.BlockLimit || !why.Start.IsZero() || !why.NotBefore.Equal(midnight) {
		t.Errorf("why %+v, want one that does not end before midnight", why)
	}

	if status := y.JobStatuses([]id.Job{j}).Answer()[0]; !status.Start.IsZero() || !status.Outside {
		t.Errorf("forecasts are told %+v, want that its start is not known", status)
	}

	events := y.Take().Events
	held := events[len(events)-1]
	for i := range events {
		if events[i].Kind == "job.held" {
			held = events[i]
		}
	}

	if held.Kind != "job.held" || held.Hold != tenant.HoldGPUHours || !held.NotBefore.Equal(midnight) {
		t.Errorf("the event is %+v, want one that says what holds it and until when", held)
	}
}

func TestTheStartOfAJobWhoseNodeBootsIsThatOfTheNode(t *testing.T) {
	t.Parallel()
	y := provisioningYard(t)
	y.pass(time.Minute)

	why, _ := y.Why(y.now, "j1")
	status := y.JobStatuses([]id.Job{"j1"}).Answer()[0]
	if want := start.Add(4 * time.Minute); !why.Start.Equal(want) || !status.Start.Equal(want) || !status.Outside ||
		!strings.HasSuffix(why.Sentence, "expected at "+want.Format("15:04 MST")) {
		t.Errorf("why %+v, status %+v, want a start at %s", why, status, want)
	}

	y.pass(10 * time.Minute) // it is late

	if why, _ := y.Why(y.now, "j1"); !why.Start.IsZero() || strings.Contains(why.Sentence, "expected") {
		t.Errorf("why %+v, want no time that has passed", why)
	}
}

func TestADryRunAsksThePolicy(t *testing.T) {
	t.Parallel()
	y, policy := scripted(t)
	policy.plan = func(v *place.View) place.Plan {
		plan := place.Plan{}
		for _, it := range v.Queue.Items() {
			if it.Shape.Need.GPUs == 1 {
				plan.Waits = append(plan.Waits, place.Wait{Job: it.Job, Reason: "small jobs wait for the night"})
				continue
			}

			plan.Starts = append(plan.Starts, place.Start{
				Item: it, Allocations: []place.Allocation{{Node: "b", GPUs: 0b1111}}, Reason: "a test",
			})
		}

		return plan
	}

	if p := y.preview("alice", spec(1)); p.Starts || p.Why.Sentence != "small jobs wait for the night" ||
		p.Why.Blocker != place.BlockPolicy {
		t.Errorf("a dry run says %+v, want what the policy says", p.Why)
	}

	large := spec(4)
	if p := y.preview("alice", large); !p.Starts || p.Why.Sentence != "starts on b now" || !p.Why.Start.Equal(y.now) {
		t.Errorf("a dry run says %+v, want a start on b", p.Why)
	}

	// Of two that the policy wants to start in one place one cannot.
	rehearsal, err := y.Rehearse(y.now, "alice", []yardmaster.Candidate{{Spec: large}, {Spec: large}})
	if err != nil {
		t.Fatal(err)
	}

	if two := rehearsal.Previews(nil); !two[0].Starts || two[1].Starts {
		t.Errorf("a dry run of two says %+v and %+v, want one start", two[0].Why, two[1].Why)
	}

	// A job of a pipeline does not start now, whatever is free (newcomer 15).
	later := spec(4)
	later.Needs = []string{"prepare"}

	if p := y.preview("alice", later); p.Starts || len(p.Options) > 0 || p.Why.Blocker != place.BlockNeeds ||
		p.Why.Sentence != "starts after prepare" {
		t.Errorf("a dry run of a job that needs another says %+v", p)
	}

	y.quota(tenant.Quota{GPUs: 3})

	if p := y.preview("alice", large); p.Starts || p.Why.Blocker != place.BlockLimit {
		t.Errorf("a dry run says %+v, want the quota", p.Why)
	}

	if len(y.Take().Jobs) > 0 || y.PlanDue() && yardmaster.JobsInMemory(y.Yard) != nil {
		t.Error("a dry run left something")
	}
}
