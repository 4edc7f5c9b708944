package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/relocate"
	"trainyard/internal/yardmaster"
)

// TestThreeForecastsInARow: the owner of a job that is too slow learns of it after three forecasts in a row that say
// so, also while no job is queued, and once.
func TestThreeForecastsInARow(t *testing.T) {
	t.Parallel()

	y := newYardOf(t, yardmaster.Defaults(relocate.Wrap(ordered.FIFO{}, relocate.Standard())))
	y.node("a", 2)

	hours := spec(2)
	hours.Expect = job.Duration(4 * time.Hour)
	j := y.submit("alice", hours)
	y.round()
	y.running(j, 0)

	got := 0

	const late, good = 20 * time.Hour, 3 * time.Hour

	for i, c := range []struct {
		left time.Duration
		want int // events so far
	}{
		{late, 0}, {late, 0}, {good, 0}, // not three in a row
		{late, 0}, {late, 0}, {late, 1}, {late, 1}, {good, 1}, {late, 1}, {late, 1}, {late, 1},
	} {
		y.pass(time.Minute, "a")
		y.foresee(j, c.left, job.BasisCurve)
		y.round()

		for _, e := range y.Take().Events {
			if e.Kind == "job.slow" {
				got++
			}
		}

		if got != c.want {
			t.Fatalf("after forecast %d there are %d events, want %d", i+1, got, c.want)
		}
	}
}

// dear makes the rule not provision for a job: its owner does not value its time enough.
func dear(c *yardmaster.Config, s *job.Spec) {
	priced(c)
	c.Offers[0].Hourly = 40e6
	s.Objective = job.ObjectiveBalanced
}

// onlyL4 lets a job run on the GPUs of a small node alone.
func onlyL4(c *yardmaster.Config, s *job.Spec) {
	priced(c)
	c.Offers = nil
	s.Resources.GPU = []job.GPUKind{{Model: "L4"}}
}

// TestOwnersOfSlowJobsAreAsked: with the price and the end of each option. To leave it is the default.
func TestOwnersOfSlowJobsAreAsked(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		set     func(*yardmaster.Config, *job.Spec)
		node    bool // a faster one of the yard is idle
		options string
		second  string // its sentence
	}{
		"an offer is faster, and not worth it by the rule": {
			dear, false, "leave faster-offer pause cancel", "move it to on-demand node p/fast/north (1× A100 80GB)",
		},
		"nothing is faster": {onlyL4, false, "leave pause cancel", ""},
		"it may not use what is faster": {
			onlyL4, true, "leave other-gpu pause cancel", "let it use node fast (local, 1× A100 80GB)",
		},
		"it may not run where it is faster": {func(c *yardmaster.Config, s *job.Spec) {
			dear(c, s)
			s.Place = job.PlaceLocal
		}, false, "leave any-place pause cancel",
			"set place: any, and move it to on-demand node p/fast/north (1× A100 80GB)"},
		"its budget does not allow what is faster": {func(c *yardmaster.Config, s *job.Spec) {
			dear(c, s)
			s.Budget = 70e6
		}, false, "leave pause cancel", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := crawling(t, tc.set)

			if tc.node {
				y.node("fast", 1)
			}

			if len(y.open()) != 0 {
				t.Fatalf("asked after two forecasts: %+v", y.open())
			}

			y.tooSlow()

			q := y.question(inbox.TooSlow)
			if optionIDs(q) != tc.options || q.Owner != "alice" || q.Unless != "it continues where it is" ||
				q.Sentence != "too slow on small with 1 GPU: it takes much longer than the 4h that were expected there" {
				t.Fatalf("question is %+v with options %s, want %s", q, optionIDs(q), tc.options)
			}

			leave := q.Options[0]
			if leave.End.Sub(y.now).Round(time.Minute) != 20*time.Hour || leave.Cost == nil {
				t.Errorf("to leave it ends %s and costs %v", leave.End.Sub(y.now), leave.Cost)
			}

			if tc.second == "" {
				return
			}

			faster := q.Options[1]
			if faster.Sentence != tc.second || !faster.End.Before(leave.End) || faster.EndHigh.IsZero() ||
				faster.Cost == nil || *faster.Cost <= 0 {
				t.Errorf("option is %+v", faster)
			}
		})
	}
}

// TestAnAcceptedOfferMovesTheJob: although the rule would not have provisioned it, and would release it.
func TestAnAcceptedOfferMovesTheJob(t *testing.T) {
	t.Parallel()
	y := crawling(t, dear)
	y.tooSlow()
	q := y.question(inbox.TooSlow)
	y.ok(yardmaster.Accept{Question: q.ID, Option: "faster-offer", By: "alice"})

	l := y.Lease("l1")
	if l == nil || l.By != "alice" || l.Job != "j1" || !strings.Contains(l.Reason, "accepted by alice: move it to") {
		t.Fatalf("lease is %+v", l)
	}

	for range 3 {
		y.pass(time.Minute, "small")
		y.foresee("j1", 20*time.Hour, job.BasisCurve)
		y.round()
	}

	y.Take()
	y.joins("l1")

	if b := y.Take(); len(b.Orders) != 1 || b.Orders[0].Run != "j1.1" || b.Orders[0].Save != 1 || len(y.open()) != 0 {
		t.Errorf("orders %+v and open %+v, want that j1 is asked to save", b.Orders, y.open())
	}
}

// TestAnAcceptedNodeMovesTheJob: also one that the job file excludes, by an amendment.
func TestAnAcceptedNodeMovesTheJob(t *testing.T) {
	t.Parallel()
	y := crawling(t, onlyL4)
	y.node("fast", 1)
	y.tooSlow()
	y.Take()
	y.ok(yardmaster.Accept{Question: y.question(inbox.TooSlow).ID, Option: "other-gpu", By: "alice"})
	y.stores("j1.1")
	y.stops("small", "j1.1")

	got := y.job("j1")
	if y.nodeOf("j1") != "fast" || got.Amended == nil || got.Amended.By != "alice" || got.Stops != 1 {
		t.Errorf("it runs on %q, amended %+v, after %d stops", y.nodeOf("j1"), got.Amended, got.Stops)
	}
}

// TestTheQuestionAboutASlowJobIsWithdrawn: when it is not true any more, and not by one good forecast.
func TestTheQuestionAboutASlowJobIsWithdrawn(t *testing.T) {
	t.Parallel()

	good := func(y *yard) {
		y.pass(time.Minute, "small")
		y.foresee("j1", 3*time.Hour, job.BasisCurve)
	}

	for name, tc := range map[string]struct {
		happens func(y *yard)
		why     string // "" if it stays open
	}{
		"one good forecast": {good, ""},
		"three good forecasts": {func(y *yard) {
			for range 3 {
				good(y)
			}
		}, "job j1 is no longer too slow"},
		"it ends":      {func(y *yard) { y.ends("j1", 0, yardmaster.RankReport{}) }, "job j1 is succeeded"},
		"it is paused": {func(y *yard) { y.ok(yardmaster.Pause{Job: "j1", By: "alice"}) }, "job j1 is pausing"},
		"its node is lost": {func(y *yard) {
			y.ok(yardmaster.NodeGone{Node: "small", By: "test", Reason: "it burned"})
		}, "job j1 is recovering"},
		"it is left": {func(y *yard) {
			y.ok(yardmaster.Accept{Question: "j1.q1", By: "alice"})
			y.tooSlow() // it is not asked again
		}, "alice accepted: leave it where it is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := crawling(t, onlyL4)
			y.tooSlow()
			y.Take()
			tc.happens(y)

			if tc.why == "" {
				y.question(inbox.TooSlow)
				return
			}

			b := y.Take()
			if len(y.open()) != 0 || len(b.Questions) == 0 || b.Questions[0].Reason != tc.why {
				t.Errorf("open are %+v, stored %+v; want it closed because %q", y.open(), b.Questions, tc.why)
			}
		})
	}
}

// TestTheQuestionAboutASlowJobKeepsUp: a node that joins is an option soon, and when a node is provisioned for the job
// there is nothing to decide.
func TestTheQuestionAboutASlowJobKeepsUp(t *testing.T) {
	t.Parallel()
	y := crawling(t, onlyL4)
	y.Load(y.now, yardmaster.State{}) // starts its regular checks
	y.tooSlow()
	y.node("fast", 1)
	y.pass(2*time.Minute, "small", "fast")

	if q := y.question(inbox.TooSlow); optionIDs(q) != "leave other-gpu pause cancel" {
		t.Errorf("options are %s", optionIDs(q))
	}
}

// TestNobodyIsAskedWhereNobodyAnswers: in the simulator.
func TestNobodyIsAskedWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	y := crawling(t, func(c *yardmaster.Config, s *job.Spec) {
		onlyL4(c, s)
		c.Unattended = true
	})
	y.tooSlow()

	if len(y.open()) != 0 {
		t.Errorf("open are %+v", y.open())
	}
}
