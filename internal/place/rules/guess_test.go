package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
)

// TestAGuessIsNoTimeOfDay: newcomer 16. `run -- echo hello` was said to be "done by 15:56", an hour later.
func TestAGuessIsNoTimeOfDay(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*queue.Item, *queue.Past){
		"nothing is known": func(*queue.Item, *queue.Past) {},
		"other jobs of the user are known": func(it *queue.Item, past *queue.Past) {
			other := queue.KinOf(it)
			other.Program = queue.Program{Key: "other", Label: "other.py"}

			for range 30 {
				past.Add(other, time.Minute)
			}
		},
		"a single run of it is known": func(it *queue.Item, _ *queue.Past) {
			it.Lasts = time.Hour
			it.Outlook.Forecast = &job.Forecast{
				Basis: job.BasisHistory, Guess: true, Remaining: job.Band{Low: 1800, Mid: 3600, High: 7200},
			}
		},
	} {
		y := newYard()
		y.node("a", fleet.Local, 4, a100())

		past := &queue.Past{}
		it := y.submit(want{gpus: 1})
		change(it, past)

		v := y.view()
		v.Past = past

		first := y.policy.(place.Adviser).Options(v, it)[0]
		if !first.Guess || strings.Contains(first.Verdict, "est. finish") ||
			!strings.Contains(first.Verdict, "run time unknown, planned as ") {
			t.Errorf("%s: %+v", name, first)
		}
	}
}

// TestAnEstimateLiesInItsInterval: newcomer 14. "in 17s (12s to 16s)": the mean of past runs may lie beyond their
// quantiles.
func TestAnEstimateLiesInItsInterval(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("a", fleet.Local, 4, a100())
	it := y.submit(want{gpus: 1})
	it.Program = queue.Program{Key: "train", Label: "train.py"}

	past := &queue.Past{}
	for i := range 20 {
		past.Add(queue.KinOf(it), 10*time.Second+time.Duration(i/19)*time.Hour)
	}

	v := y.view()
	v.Past = past

	first := y.policy.(place.Adviser).Options(v, it)[0]
	if first.Guess || first.Finish.Before(first.Earliest) || first.Finish.After(first.Latest) {
		t.Errorf("%+v", first)
	}
}

// TestWhatIsExpectedOfJobsIsKeptForAWhile: until more of the past is known, and not of any number of kinds of jobs.
func TestWhatIsExpectedOfJobsIsKeptForAWhile(t *testing.T) {
	t.Parallel()

	y := newYard()
	policy, ok := y.policy.(*rules.Policy)
	if !ok {
		t.Fatalf("the policy is %T", y.policy)
	}

	past := &queue.Past{}
	round := func() {
		v := y.view()
		v.Past = past
		policy.Plan(v)
	}

	come := func(count int) {
		var list []*queue.Item
		for i := range count {
			list = append(list, y.submit(want{gpus: 1, user: id.User(fmt.Sprint("user", i))}))
		}

		round()

		for _, it := range list {
			y.line.Remove(it)
		}

		round()
	}

	come(3)

	if n := policy.Kins(); n != 3 {
		t.Errorf("%d kinds of jobs are known after they have left, want 3", n)
	}

	past.Add(queue.Kin{User: "user0", GPUs: 1}, time.Hour)
	round()

	if n := policy.Kins(); n != 0 {
		t.Errorf("%d kinds of jobs without a job are known of an earlier past, want none", n)
	}

	come(rules.MaxKins + 100)

	if n := policy.Kins(); n != rules.MaxKins {
		t.Errorf("%d kinds of jobs are known after they have left, want %d", n, rules.MaxKins)
	}
}

// TestTextsOfGPUsAreBounded: agents name their GPUs, and may name many.
func TestTextsOfGPUsAreBounded(t *testing.T) {
	t.Parallel()
	policy := rules.New(rules.Defaults())

	for i := range 3 * rules.MaxGPUTexts {
		model := fmt.Sprint("G", i%(2*rules.MaxGPUTexts))
		if kept, text := policy.GPUTexts(model); kept > rules.MaxGPUTexts || text != "1× "+model {
			t.Fatalf("%d texts are kept, the last is %q", kept, text)
		}
	}
}
