package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// after is State.After or RunState.After as a function of texts.
type after func(state, event string) (string, error)

func jobAfter(s, ev string) (string, error) {
	to, err := job.State(s).After(job.Event(ev))
	return string(to), err
}

func runAfter(s, ev string) (string, error) {
	to, err := job.RunState(s).After(job.RunEvent(ev))
	return string(to), err
}

func texts[T ~string](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, string(v))
	}

	return out
}

// walkPairs tries every event in every state and returns what is reached from the first state.
func walkPairs(t *testing.T, states, events []string, after after) map[string]bool {
	t.Helper()
	reached := map[string]bool{states[0]: true}
	for range states { // far enough to reach the last one
		for _, s := range states {
			for _, ev := range events {
				to, err := after(s, ev)
				switch {
				case err == nil && !slices.Contains(states, to):
					t.Fatalf("%s, %s leads to %q, which is no state", s, ev, to)
				case err != nil && (fault.KindOf(err) != fault.Conflict || to != s):
					t.Fatalf("%s, %s gives %q and %v, want the same state and a conflict", s, ev, to, err)
				case err == nil && reached[s]:
					reached[to] = true
				}
			}

			if _, err := after(s, "nonsense"); fault.KindOf(err) != fault.Conflict {
				t.Fatalf("%s takes an event that is none: %v", s, err)
			}
		}
	}

	return reached
}

// ends returns the states from which one of the final states can be reached.
func ends(states, events []string, after after, final func(string) bool) map[string]bool {
	can := map[string]bool{}
	for range states {
		for _, s := range states {
			can[s] = can[s] || final(s)
			for _, ev := range events {
				if to, err := after(s, ev); err == nil && can[to] {
					can[s] = true
				}
			}
		}
	}

	return can
}

func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	states, events := texts(job.States()), texts(job.Events())
	final := func(s string) bool { return job.State(s).Final() }
	reached := walkPairs(t, states, events, jobAfter)
	can := ends(states, events, jobAfter, final)
	finals := 0

	for _, name := range states {
		s := job.State(name)
		if !reached[name] {
			t.Errorf("%s is never reached", s)
		}

		if !can[name] {
			t.Errorf("a job that is %s never ends", s)
		}

		if n := btoi(s.Final()) + btoi(s.Waiting()) + btoi(s.Live()) + btoi(s == job.Paused); n != 1 {
			t.Errorf("%s is of %d of: ended, waiting, live, paused", s, n)
		}

		if s.Final() {
			finals++

			for _, ev := range events {
				if to, err := jobAfter(name, ev); err == nil {
					t.Errorf("a job that has %s goes on to %s by %s", s, to, ev)
				}
			}

			continue
		}

		if to, err := s.After(job.EventCancel); s != job.Cancelling &&
			(err != nil || to != job.Cancelling && to != job.Cancelled) {
			t.Errorf("a job that is %s cannot be cancelled: %s, %v", s, to, err)
		}
	}

	if finals != 3 {
		t.Errorf("%d states are final, want 3", finals)
	}
}

// TestRunEndsWithTheJobsState checks what the yardmaster relies on: whatever a
// job with a live run is doing, the run may end well or badly.
func TestRunEndsWithTheJobsState(t *testing.T) {
	t.Parallel()

	for _, s := range job.States() {
		for _, ev := range []job.Event{job.EventSucceed, job.EventFail} {
			if to, err := s.After(ev); s.Live() && (err != nil || !to.Final()) {
				t.Errorf("the run of a job that is %s ends by %s: %s, %v", s, ev, to, err)
			}
		}

		if to, err := s.After(job.EventStopped); (err == nil) != (s == job.Pausing || s == job.Cancelling) ||
			err == nil && to.Live() {
			t.Errorf("the run of a job that is %s stops as asked: %s, %v", s, to, err)
		}

		if _, err := s.After(job.EventPlace); (err == nil) != s.Waiting() {
			t.Errorf("a job that is %s is placed: %v", s, err)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}

	return 0
}

func TestLifeOfARun(t *testing.T) {
	t.Parallel()
	states, events := texts(job.RunStates()), texts(job.RunEvents())
	final := func(s string) bool { return s == string(job.RunEnded) }
	reached := walkPairs(t, states, events, runAfter)

	can := ends(states, events, runAfter, final)
	for _, s := range states {
		if !reached[s] || !can[s] {
			t.Errorf("%s is reached: %v, ends: %v", s, reached[s], can[s])
		}

		if _, err := runAfter(s, string(job.RunEnd)); (err == nil) == final(s) {
			t.Errorf("a run that is %s ends: %v", s, err)
		}
	}
}

func TestCatalogueHasEveryCauseOnce(t *testing.T) {
	t.Parallel()
	causes := []job.Cause{
		job.CauseUserCode,
		job.CauseHostOOM,
		job.CauseGPUOOM,
		job.CauseNodeLost,
		job.CauseSetupFailed,
		job.CauseImageFailed,
		job.CauseDataFailed,
		job.CauseLaunchFailed,
		job.CauseDiskLimit,
		job.CauseSupervisorLost,
		job.CauseRestoreFailed,
		job.CauseCancelled,
		job.CauseTimedOut,
		job.CausePreempted,
		job.CauseNeedFailed,
	}

	lines := map[job.Cause]int{}
	for _, h := range job.Catalogue() {
		lines[h.Cause]++

		if got, ok := job.HandlingOf(h.Cause); !ok || got != h {
			t.Errorf("HandlingOf(%s) = %+v, want %+v", h.Cause, got, h)
		}

		if h.Meaning == "" || h.Status == "" {
			t.Errorf("%s has no words: %+v", h.Cause, h)
		}

		limited := h.Next == job.NextElsewhere || h.Next == job.NextEscalate
		if limited != (h.Limit > 0) {
			t.Errorf("%s: %s at most %d times", h.Cause, h.Next, h.Limit)
		}
	}

	for _, c := range causes {
		if lines[c] != 1 {
			t.Errorf("%s is in the catalogue %d times", c, lines[c])
		}

		delete(lines, c)
	}

	if len(lines) > 0 {
		t.Errorf("causes that this test does not know: %v", lines)
	}

	if h, ok := job.HandlingOf(job.CauseNone); ok {
		t.Errorf("no cause is handled as %+v", h)
	}
}

func TestEveryStateHasAWord(t *testing.T) {
	t.Parallel()
	words := map[job.Status]job.StatusWord{}
	for _, w := range job.StatusWords() {
		if _, twice := words[w.Status]; twice || w.Meaning == "" {
			t.Errorf("%s: %+v", w.Status, w)
		}

		words[w.Status] = w
	}

	for _, s := range job.States() {
		if w, ok := words[job.StatusOf(s, job.CauseNone)]; !ok || w.State != s {
			t.Errorf("%s is shown as %q, which means %+v", s, job.StatusOf(s, job.CauseNone), w)
		}
	}

	for _, h := range job.Catalogue() {
		got := job.StatusOf(job.Failed, h.Cause)
		if _, ok := words[got]; !ok || got != h.Status {
			t.Errorf("a job that failed of %s is shown as %q", h.Cause, got)
		}

		if got := job.StatusOf(job.Running, h.Cause); got != job.StatusRunning {
			t.Errorf("a job that runs after %s is shown as %q", h.Cause, got)
		}
	}

	suspended := job.Job{State: job.Running, Suspended: time.Unix(1, 0)}
	if got := suspended.Status(); words[got].State != job.Running || got == job.StatusRunning {
		t.Errorf("a suspended job is shown as %s", got)
	}

	j := job.Job{State: job.Failed, Cause: job.CauseGPUOOM}
	if got := j.Status(); got != job.StatusOutOfMemory {
		t.Errorf("status = %s, want %s", got, job.StatusOutOfMemory)
	}
}

func TestDiagramsShowTheTables(t *testing.T) {
	t.Parallel()

	for name, d := range map[string]struct {
		text           string
		states, events []string
		after          after
	}{
		"job": {job.Diagram(), texts(job.States()), texts(job.Events()), jobAfter},
		"run": {job.RunDiagram(), texts(job.RunStates()), texts(job.RunEvents()), runAfter},
	} {
		arrows := map[string]bool{}
		for line := range strings.Lines(d.text) {
			head, by, _ := strings.Cut(strings.TrimSpace(line), ": ")
			for ev := range strings.SplitSeq(by, ", ") {
				arrows[head+": "+ev] = true
			}
		}

		want := 1 + 1 // the heading and the begin
		for _, s := range d.states {
			out := 0
			for _, ev := range d.events {
				if to, err := d.after(s, ev); err == nil {
					out++

					if arrow := fmt.Sprintf("%s --> %s: %s", s, to, ev); !arrows[arrow] {
						t.Errorf("%s: %q is not drawn", name, arrow)
					}
				}
			}

			want += out
			if out == 0 {
				want++
			}
		}

		if len(arrows) != want {
			t.Errorf("%s: %d arrows are drawn, want %d:\n%s", name, len(arrows), want, d.text)
		}
	}
}

func TestTablesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	table := job.CatalogueTable()
	for _, want := range []string{
		"| `user_code` | the program failed | retried up to the job's `retry`, with increasing delays | `FAILED` |\n",
		"| `gpu_oom` | out of GPU memory | retried on a node with more memory, at most 2 times, if there is one; then its owner is asked | `OUT_OF_MEMORY` |\n",
		"| `preempted` | preempted by other work | requeued at once | `PREEMPTED` |\n",
		"| `timed_out` | exceeded its max_duration | the job ends | `TIMEOUT` |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the catalogue lacks %s in\n%s", want, table)
		}
	}

	if got, want := strings.Count(table, "\n"), 2+len(job.Catalogue()); got != want {
		t.Errorf("the catalogue has %d lines, want %d", got, want)
	}

	table = job.StatusTable()
	for _, w := range job.StatusWords() {
		if !strings.Contains(table, fmt.Sprintf("| `%s` | %s | `%s` |\n", w.Status, w.Meaning, w.State)) {
			t.Errorf("the words lack %s in\n%s", w.Status, table)
		}
	}
}

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	t.Parallel()
	var got []string
	for _, n := range []int{-1, 0, 1, 2, 3, 4, 5, 1 << 30} {
		got = append(got, job.Duration(job.Backoff(n, 5e9, 30e9)).String())
	}

	if want := "5s 5s 5s 10s 20s 30s 30s 30s"; strings.Join(got, " ") != want {
		t.Errorf("waits %v, want %s", got, want)
	}
}
