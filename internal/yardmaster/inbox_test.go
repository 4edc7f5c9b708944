package yardmaster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// smallNode adds a node with one small GPU.
func (y *yard) smallNode(name string) {
	y.t.Helper()
	y.gpuMemoryNode(name, 24<<30, 1)
}

// gpuMemoryNode adds a node with GPUs of so much memory.
func (y *yard) gpuMemoryNode(name string, memory job.Bytes, gpus int) {
	y.t.Helper()
	inv := fleet.Inventory{Address: name, CPUs: 64000, Memory: 256 << 30}
	for i := range gpus {
		inv.GPUs = append(inv.GPUs, fleet.GPU{Index: i, UUID: fmt.Sprint(name, i), Model: "NVIDIA L4", Memory: memory})
	}

	y.ok(yardmaster.Join{Token: "join", Name: name, Inventory: inv})
}

// open returns the open questions.
func (y *yard) open() []inbox.Question {
	y.t.Helper()
	y.check()

	return yardmaster.OpenQuestions(y.Yard)
}

// question returns the open question of a kind.
func (y *yard) question(kind inbox.Kind) inbox.Question {
	y.t.Helper()

	for _, q := range y.open() {
		if q.Kind == kind {
			return q
		}
	}

	y.t.Fatalf("no question is %s: %+v", kind, y.open())

	return inbox.Question{}
}

// optionIDs names the options of a question.
func optionIDs(q inbox.Question) string {
	var names []string
	for i := range q.Options {
		names = append(names, q.Options[i].ID)
	}

	return strings.Join(names, " ")
}

// refused sends a message that must be refused with a code, and returns what is said.
func (y *yard) refused(m yardmaster.Message, code string) string {
	y.t.Helper()
	_, err := y.Step(y.now, m)

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		y.t.Fatalf("%T: %v, want code %s", m, err, code)
	}

	return f.Error()
}

var gpuOOM = yardmaster.RankReport{Cause: job.CauseGPUOOM, ExitCode: 1, Reason: "out of GPU memory"}

// held returns a yard with a job that ran out of the memory of the only GPU that it may use.
func held(t *testing.T, set func(*yardmaster.Config)) (*yard, id.Job) {
	t.Helper()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	set(&cfg)

	y := newYardOf(t, cfg)
	y.smallNode("small")

	s := spec(1)
	s.Resources.GPU = []job.GPUKind{{Model: "L4"}}
	s.Expect = job.Duration(2 * time.Hour)
	j := y.submit("alice", s)
	y.round()
	y.running(j, 0)
	y.ends(j, 0, gpuOOM)
	y.round()

	return y, j
}

func priced(c *yardmaster.Config) {
	c.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{0, 3}}}}
}

// A job that ran out of memory where nothing greater may be used is held, and its owner has a choice.
func TestOutOfMemoryWithoutALargerNodeAsks(t *testing.T) {
	t.Parallel()
	y, j := held(t, priced)

	got := y.job(j)
	if got.State != job.Paused || got.Reason != "out of GPU memory; no node it may use has GPUs with more than 24 GB" {
		t.Errorf("job is %s: %s, want it held", got.State, got.Reason)
	}

	q := y.question(inbox.OutOfMemory)
	if q.ID != "j1.q1" || q.Owner != "alice" || q.Sentence != got.Reason || optionIDs(q) != "wait retry cancel" ||
		q.Unless != "the job fails" || !q.Expires.Equal(y.now.Add(24*time.Hour)) {
		t.Errorf("question is %+v", q)
	}

	said := y.refused(yardmaster.Accept{Question: q.ID, Option: "nonsense", By: "alice"}, "unknown_option")
	if !strings.Contains(said, "j1.q1 has no option") {
		t.Errorf("said %q", said)
	}
}

// A node that joins is an option soon.
func TestOpenQuestionsKeepUp(t *testing.T) {
	t.Parallel()
	y, _ := held(t, priced)
	y.Load(y.now, yardmaster.State{}) // starts its regular checks
	y.node("large", 1)
	y.pass(time.Minute, "small", "large")

	if q := y.question(inbox.OutOfMemory); optionIDs(q) != "other-gpu wait retry cancel" {
		t.Errorf("options are %s", optionIDs(q))
	}
}

func TestOtherGPUsAreAnOption(t *testing.T) {
	t.Parallel()
	y := newYardOf(t, func() yardmaster.Config {
		cfg := yardmaster.Defaults(ordered.FIFO{})
		priced(&cfg)

		return cfg
	}())
	y.smallNode("small")
	y.node("large", 1)

	s := spec(1)
	s.Resources.GPU = []job.GPUKind{{Model: "L4"}}
	s.Expect = job.Duration(2 * time.Hour)
	j := y.submit("alice", s)
	y.round()
	y.running(j, 0)
	y.ends(j, 0, gpuOOM)

	q := y.question(inbox.OutOfMemory)
	if optionIDs(q) != "other-gpu wait retry cancel" {
		t.Fatalf("options are %s", optionIDs(q))
	}

	o := q.Options[0]
	if o.Sentence != "let it use node large with 1× A100 80GB" || o.Cost == nil || *o.Cost <= 0 || !o.End.After(y.now) {
		t.Errorf("option is %+v", o)
	}

	y.Take()
	y.ok(yardmaster.Accept{Question: q.ID, By: "alice"}) // the recommended one

	b := y.Take()
	if len(b.Questions) != 1 || b.Questions[0].State != inbox.Accepted || b.Questions[0].Chosen != "other-gpu" ||
		b.Questions[0].By != "alice" {
		t.Errorf("stored %+v, want it accepted", b.Questions)
	}

	y.round()

	if got := y.job(j); got.State != job.Starting || yardmaster.NodeOf(y.Yard, j) != "large" ||
		fmt.Sprint(got.Spec.Resources.GPU) != "[L4 NVIDIA A100-SXM4-80GB]" || got.Amended.By != "alice" {
		t.Errorf("job is %s with %v, amended %+v; want it on large", got.State, got.Spec.Resources.GPU, got.Amended)
	}

	if fmt.Sprint(s.Resources.GPU) != "[L4]" {
		t.Error("the spec as submitted has changed")
	}

	y.refused(yardmaster.Accept{Question: q.ID, By: "alice"}, "question_not_found")
}

// What is accepted is what was shown: an option that costs more by now, or is gone, is refused, and the question has
// the options of now.
func TestStaleOptionIsRefused(t *testing.T) {
	t.Parallel()

	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{GPU: "A100", Hourly: []money.PerHour{0, 3}}, {GPU: "H100", Hourly: []money.PerHour{0, 9}}}}
	y := newYardOf(t, cfg)
	y.smallNode("small")
	y.node("large", 1)
	y.ok(yardmaster.Join{Token: "join", Name: "larger", Inventory: fleet.Inventory{
		Address: "larger", CPUs: 64000, Memory: 256 << 30,
		GPUs: []fleet.GPU{{UUID: "larger", Model: "NVIDIA H100 NVL", Memory: 94 << 30}},
	}})

	s := spec(1)
	s.Resources.GPU, s.Expect = []job.GPUKind{{Model: "L4"}}, job.Duration(2*time.Hour)
	j := y.submit("alice", s)
	y.round()
	y.running(j, 0)
	y.ends(j, 0, gpuOOM)

	q := y.question(inbox.OutOfMemory)
	y.ok(yardmaster.Cordon{Node: "large", By: "root", On: true})
	y.ok(yardmaster.RemoveNode{Node: "large", By: "root"})

	said := y.refused(yardmaster.Accept{Question: q.ID, Option: "other-gpu", By: "alice"}, "option_stale")
	if !strings.Contains(said, "it would do something else now: let it use node larger") {
		t.Errorf("said %q", said)
	}

	fresh := y.question(inbox.OutOfMemory)
	if !strings.Contains(fresh.Options[0].Sentence, "larger") || fresh.ID != q.ID {
		t.Errorf("question is %+v, want the options of now", fresh)
	}

	y.ok(yardmaster.Accept{Question: q.ID, Option: "other-gpu", By: "alice"})
	y.round()

	if n := yardmaster.NodeOf(y.Yard, j); n != "larger" {
		t.Errorf("runs on %s", n)
	}
}

func TestUnansweredQuestionEndsTheJob(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		end    func(y *yard)
		state  job.State
		closed inbox.State
		reason string
	}{
		"nobody answers": {
			func(y *yard) { y.pass(24*time.Hour+time.Minute, "small") }, job.Failed, inbox.Expired,
			"question j1.q1 was not answered",
		},
		"dismissed": {
			func(y *yard) { y.ok(yardmaster.Dismiss{Question: "j1.q1", By: "bob"}) }, job.Failed, inbox.Dismissed,
			"question j1.q1 was dismissed by bob",
		},
		"cancelled": {
			func(y *yard) { y.ok(yardmaster.Accept{Question: "j1.q1", Option: "cancel", By: "bob"}) }, job.Cancelled,
			inbox.Accepted, "cancelled by bob",
		},
		"resumed instead": {
			func(y *yard) { y.ok(yardmaster.Resume{Job: "j1", By: "bob"}) }, job.Pending, inbox.Withdrawn, "resumed by bob",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			// Ended jobs are looked at for longer than the question is open.
			y, j := held(t, func(c *yardmaster.Config) { c.KeepFinal = 48 * time.Hour })
			y.Take()
			tc.end(y)
			y.check()

			b := y.Take()
			if len(y.open()) != 0 || len(b.Questions) != 1 || b.Questions[0].State != tc.closed {
				t.Fatalf("stored %+v, want one question that is %s", b.Questions, tc.closed)
			}

			got := y.job(j)
			if got.State != tc.state || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("job is %s: %s, want %s: %s", got.State, got.Reason, tc.state, tc.reason)
			}

			if tc.state == job.Failed && got.Status() != job.StatusOutOfMemory {
				t.Errorf("status is %s", got.Status())
			}

			if _, err := y.Step(y.now, yardmaster.Dismiss{Question: "j1.q1", By: "bob"}); fault.KindOf(err) != fault.NotFound {
				t.Errorf("dismissed once more: %v", err)
			}
		})
	}
}

// Without anybody to answer, jobs end as they always did.
func TestNobodyIsAsked(t *testing.T) {
	t.Parallel()

	for name, set := range map[string]func(*yardmaster.Config){
		"unattended": func(c *yardmaster.Config) { c.Unattended = true },
		"no time":    func(c *yardmaster.Config) { c.AskFor = 0 },
	} {
		y, j := held(t, set)
		if got := y.job(j); got.State != job.Failed || len(y.open()) != 0 {
			t.Errorf("%s: job is %s, questions %+v, want it failed", name, got.State, y.open())
		}
	}
}

// A question survives a restart, with its end.
func TestQuestionsSurviveARestart(t *testing.T) {
	t.Parallel()
	y, j := held(t, func(*yardmaster.Config) {})
	before := y.question(inbox.OutOfMemory)

	b := y.Take()
	stored := y.job(j)
	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: y.now.Add(time.Hour)}
	next.Load(next.now, yardmaster.State{
		Jobs: []job.Job{stored}, Nodes: b.Nodes, Questions: []inbox.Question{before}, LastJob: 1, LastEvent: 1000,
	})

	if got := next.question(inbox.OutOfMemory); got.ID != before.ID || !got.Expires.Equal(before.Expires) {
		t.Errorf("question is %+v, want %+v", got, before)
	}

	next.ok(yardmaster.Accept{Question: before.ID, Option: "retry", By: "alice"})

	if got := next.job(j); got.State != job.Pending || got.Floor != (job.Floor{}) {
		t.Errorf("job is %s with %+v, want it queued as it was", got.State, got.Floor)
	}
}

// A job that its nodes let down too often is held too, and the failures do not count any more after that.
func TestRetriesThatAreUsedUpAsk(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j := y.submit("alice", spec(1))

	fail := func() {
		y.round()
		y.report(j, 0, yardmaster.RankReport{State: job.RunEnded, Cause: job.CauseDataFailed, Reason: "no such bucket"})
		y.pass(6*time.Minute, "a")
	}

	for range 3 {
		fail()
	}

	q := y.question(inbox.RetriesOver)
	want := "no such bucket (run 3; not retried after 3 failures of this kind)"
	if got := y.job(j); got.State != job.Paused || q.Sentence != want || optionIDs(q) != "retry cancel" {
		t.Fatalf("job is %s, question %+v", got.State, q)
	}

	y.ok(yardmaster.Accept{Question: q.ID, Option: "retry", By: "alice"})
	fail()

	if got := y.job(j); got.State != job.Starting || got.Tried[job.CauseDataFailed] != 1 {
		t.Errorf("job is %s after %v, want it tried again", got.State, got.Tried)
	}
}

// What the yard does by itself is a notice: it can be stopped, and is gone when the job has ended.
func TestWhatTheYardDidIsANotice(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.smallNode("a")
	y.node("b", 1)
	y.ok(yardmaster.Cordon{Node: "b", By: "root", On: true})
	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	y.ends(j, 0, gpuOOM)

	q := y.question(inbox.MoreMemory)
	if !strings.HasPrefix(q.Sentence, "out of GPU memory; the next run gets GPUs with more than 24 GB") ||
		optionIDs(q) != "pause cancel" || y.job(j).State != job.Recovering {
		t.Fatalf("question is %+v", q)
	}

	y.ok(yardmaster.Cordon{Node: "b", By: "root"})
	y.round()
	y.running(j, 0)
	y.ok(yardmaster.Cordon{Node: "b", By: "root", On: true, Stop: true})
	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true})
	q = y.question(inbox.Preempted)

	y.ok(yardmaster.Accept{Question: q.ID, Option: "pause", By: "alice"})

	if got := y.job(j); got.State != job.Paused || got.Reason != "paused by alice" || len(y.open()) != 1 {
		t.Errorf("job is %s: %s, questions %+v; want it paused and the other notice open", got.State, got.Reason, y.open())
	}

	y.ok(yardmaster.Cancel{Job: j, By: "alice"})

	if got := y.open(); len(got) != 0 {
		t.Errorf("questions about a job that has ended: %+v", got)
	}
}

// A job that was stopped by its budget can have as much as the forecast says that it needs.
func TestUsedUpBudgetAsksForMore(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	priced(&cfg)
	y := newYardOf(t, cfg)
	y.Load(y.now, yardmaster.State{})
	y.ok(yardmaster.PutUser{User: "alice", Role: "admin", By: "test"})
	y.node("a", 1)

	s := spec(1)
	s.Budget = 1e6
	j := y.submit("alice", s)
	y.round()
	y.running(j, 0)
	y.pass(10*time.Minute, "a")
	y.ok(yardmaster.PutForecasts{Jobs: []yardmaster.JobForecast{{Job: j, Forecast: &job.Forecast{
		At: y.now, Basis: job.BasisSteps, Remaining: job.Band{Low: 3000, Mid: 3600, High: 4800},
		Cost: job.Band{Low: 3, Mid: 3.5, High: 4.5},
	}}}})
	y.pass(15*time.Minute, "a")

	if got := y.job(j).State; got != job.Pausing {
		t.Fatalf("job is %s, want it being paused by its budget", got)
	}

	q := y.question(inbox.OverBudget)
	y.refused(yardmaster.Accept{Question: q.ID, By: "alice"}, "job_state")
	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true})

	q = y.question(inbox.OverBudget)
	if optionIDs(q) != "raise-budget same-again cancel" || q.Unless != "the job stays paused" || !q.Expires.IsZero() {
		t.Fatalf("question is %+v", q)
	}

	o := q.Options[0]
	if o.Cost == nil || *o.Cost < 2.4 || *o.Cost > 2.5 || !o.EndLow.Before(o.End) || !o.End.Before(o.EndHigh) {
		t.Errorf("option is %+v, want what remains of the forecast", o)
	}

	y.ok(yardmaster.Accept{Question: q.ID, Option: "raise-budget", By: "alice"})
	y.round()

	// The upper end of the interval: $4.50 for the whole job.
	if got := y.job(j); got.State != job.Starting || got.Spec.Budget.Amount() < money.Amount(4.49) ||
		got.Spec.Budget.Amount() > money.Amount(4.52) {
		t.Errorf("job is %s with a budget of %s", got.State, got.Spec.Budget)
	}
}
