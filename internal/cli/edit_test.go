package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/job"
)

// Newcomer (c) 9: a job that waits is changed; a deadline is meant where the person is.
func TestEditSendsWhatIsChanged(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("POST /api/v1/jobs/train/edit", api.Job{ID: "j7", State: job.Pending, Status: job.StatusPending})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "edit", "train", "--set", "deadline=2026-12-01T09:00", "--set",
		"resources.gpus=1..4"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	due := time.Date(2026, 12, 1, 9, 0, 0, 0, time.Local)
	body, _ := y.sent("POST /api/v1/jobs/train/edit")

	var sent struct{ Set []string }
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}

	at, ok := strings.CutPrefix(sent.Set[0], "deadline=")
	if got, err := time.Parse(time.RFC3339, at); !ok || err != nil || !got.Equal(due) {
		t.Errorf("sent %q, want the deadline %s", sent.Set[0], due)
	}

	if diff := cmp.Diff([]string{"resources.gpus=1..4"}, sent.Set[1:]); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}

	if got := p.stdout.String(); !strings.HasPrefix(got, "j7 changed: deadline=") {
		t.Errorf("said %q", got)
	}

	for _, args := range [][]string{{"edit", "train"}, {"edit", "--set", "priority=1"}} {
		if code := newPerson(t).at(t, y).types(t.Context(), args...); code != exit.Usage {
			t.Errorf("%v: exit code %d, want %d", args, code, exit.Usage)
		}
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "edit", "train", "--set", "deadline=soon"); code == exit.OK ||
		!strings.Contains(p.stderr.String(), "deadline: must be") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

func TestADryRunOfAnEditSaysWhatWouldChange(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("POST /api/v1/jobs/train/edit/preview", api.EditPreview{
		Before: api.EditPlace{Position: 9, Why: &api.Why{Sentence: "4 GPUs needed, 0 free"}},
		After:  api.EditPlace{Position: 1, Why: &api.Why{Sentence: "starts on gpu-1 as soon as j2 has stopped"}},
		Starts: true,
		Passed: api.PassedJobs{Count: 8, Jobs: []api.AffectedJob{{Job: "j3", Owner: "bob"}, {Job: "j4", Owner: "eva"}}},

		Preempted: []api.AffectedJob{{Job: "j2", Owner: "bob"}},
	})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "edit", "train", "--set", "priority=90", "--dry-run"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	for _, want := range []string{
		"9 now, then 1", "4 GPUs needed, 0 free", "starts on gpu-1", "8 jobs: j3 (bob), j4 (eva) and 6 more", "1 job: j2 (bob)",
	} {
		if got := p.stdout.String(); !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}
