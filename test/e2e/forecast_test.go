package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// trainingPython returns a Python with PyTorch, transformers and tensorboard.
func trainingPython(t *testing.T) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "setup-train.sh"), "--check")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("needs PyTorch, transformers and tensorboard: %s", &errs)
	}

	path, _, _ := strings.Cut(string(out), "\n")
	if err != nil || path == "" {
		t.Fatalf("needs PyTorch, transformers and tensorboard: %v %s", err, &errs)
	}

	return path
}

// seer is a yard with a client that asks for forecasts.
type seer struct {
	*yard
	client *api.Client
}

func newSeer(t *testing.T, flags ...string) *seer {
	t.Helper()
	s := &seer{yard: newYard(t, flags...)}
	if err := s.Trust(t.Context()); err != nil {
		t.Fatal(err)
	}

	token := strings.TrimSpace(s.succeed(t, "tokens", "create", "--scope", "admin", "-q").out)
	var err error
	s.client, err = s.Client(token)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.client.Close)
	s.join(t, []string{"north"})

	return s
}

// train submits a job file of examples/forecast as it is, but for the Python that it uses and
// arguments that are added.
func (s *seer) train(t *testing.T, name, python, args string) id.Job {
	t.Helper()
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples", "forecast"))
	if err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}

	folder := t.TempDir()
	seen, err := filepath.Rel(folder, examples)
	if err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if command, runs := strings.CutPrefix(strings.TrimSpace(line), "run: python3 "); runs {
			line = fmt.Sprintf("run: %s %s %s\n", python, command, args)
		} else if strings.HasPrefix(line, "workdir: .") {
			line = fmt.Sprintf("workdir: %s\n", seen)
		}

		out.WriteString(line)
	}

	file := filepath.Join(folder, name)
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	return id.Job(strings.TrimSpace(s.succeed(t, "submit", "-y", "-q", file).out))
}

// training is a job that is followed from its start to its end.
type training struct {
	kind, seed string
	id         id.Job
	said       []api.Forecast // as they were made
	began, end time.Time      // from the first thing it told
}

// ask takes down what is foretold of trainings now, and returns how many have not ended.
func (s *seer) ask(t *testing.T, all []*training) (left int) {
	t.Helper()

	for _, tr := range all {
		if !tr.end.IsZero() {
			continue
		}

		left++

		f, err := s.client.Forecast(t.Context(), tr.id)
		switch n := len(tr.said); {
		case ended(err):
			tr.end = s.endOf(t, tr.id)
		case err != nil:
			t.Fatal(err)
		case n == 0 || !f.At.Equal(tr.said[n-1].At):
			tr.said = append(tr.said, f)
		}
	}

	time.Sleep(300 * time.Millisecond)

	return left
}

// ended reports whether nothing is foretold because the job has ended.
func ended(err error) bool {
	f := (*fault.Error)(nil)
	return errors.As(err, &f) && f.Code == "job_state"
}

// endOf returns when the only run of a job ended, which must have been well.
func (s *seer) endOf(t *testing.T, j id.Job) time.Time {
	t.Helper()
	d, err := s.client.Job(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}

	if d.State != job.Succeeded || len(d.Runs) != 1 || d.Runs[0].Ended == nil {
		t.Fatalf("%s is %s after %d runs (%s):\n%s", j, d.State, len(d.Runs), d.Reason, s.succeed(t, "logs", string(j)).out)
	}

	return *d.Runs[0].Ended
}

// firstOf returns when a job first told anything of itself. What was before, imports above
// all, is long on a machine that does other things too, and says nothing of the training.
func (s *seer) firstOf(t *testing.T, j id.Job) time.Time {
	t.Helper()
	first := s.curve(t, j, "loss").Points[0].At
	return time.Unix(0, int64(first*1e9))
}

// silent reports whether it has told nothing yet that a forecast could go by.
func (tr *training) silent() bool {
	return tr.end.IsZero() && !slices.ContainsFunc(tr.said, func(f api.Forecast) bool { return f.Informed() })
}

// at returns the first forecast that was made when a part of the training had gone by and
// its program had told enough. If the machine was too busy to make one until the end, it is the last one before.
func (tr *training) at(part float64) (found api.Forecast, ok bool) {
	mark := tr.began.Add(job.Seconds(part * tr.end.Sub(tr.began).Seconds()))
	for _, f := range tr.said {
		if !f.Informed() {
			continue
		}

		found, ok = f, true
		if !f.At.Before(mark) {
			break
		}
	}

	return found, ok
}

// TestForecastsOfRealTrainings runs trainings of several kinds and holds what was said after
// 30 % of each against what happened then. How many of the intervals hold depends on how
// steadily the machine runs: that is judged only by make bench-live-forecast, which has the
// machine to itself, runs several seeds of each kind and names a file for the figures.
func TestForecastsOfRealTrainings(t *testing.T) {
	t.Parallel()
	python := trainingPython(t)
	s := newSeer(t)

	kinds := []struct {
		file, metric, source string
		basis                job.Basis
	}{
		{"huggingface.yaml", "loss", "Hugging Face's status messages", job.BasisSteps},
		{"cosine.yaml", "val_loss", "output (lines)", job.BasisCurve},
		{"events.yaml", "val_loss", "TensorBoard (runs)", job.BasisCurve},
		{"sdk.yaml", "val_loss", "SDK", job.BasisSteps},
		{"job.yaml", "val_loss", "output (lines)", job.BasisSteps},
	}

	seeds, out := 1, os.Getenv("TRAINYARD_LIVE_FORECAST")
	if out != "" {
		seeds = 4
	}

	var all []*training
	for i, k := range kinds {
		if i == 2 { // the first two have heavy imports, which would slow the others down
			s.await(
				t,
				"all of them train",
				func() bool { return s.ask(t, all) == 0 || !slices.ContainsFunc(all, (*training).silent) },
			)
		}

		for seed := range seeds {
			tr := &training{kind: k.file, seed: fmt.Sprint(seed + 1)}
			tr.id = s.train(t, k.file, python, "--seed "+tr.seed)
			all = append(all, tr)
			s.ask(t, all)
		}
	}

	s.await(t, "all trainings have ended", func() bool { return s.ask(t, all) == 0 })

	for _, tr := range all {
		tr.began = s.firstOf(t, tr.id)
	}

	held := 0

	table := fmt.Sprintf(
		"%-12s %4s %6s %5s %6s %6s %6s %6s\n",
		"training",
		"seed",
		"took",
		"part",
		"low",
		"mid",
		"high",
		"truth",
	)

	for i, tr := range all {
		k := kinds[i/seeds]
		f, ok := tr.at(0.3)
		if !ok {
			t.Errorf("%s with seed %s: nothing was foretold, in %d forecasts", tr.kind, tr.seed, len(tr.said))
			continue
		}

		// Those that have ended by then are history for the others, if the machine lets them run at very unequal speeds.
		based := f.Basis == k.basis || k.basis == job.BasisCurve && (f.Basis == job.BasisHistory || f.Basis == job.BasisBoth)
		if f.Source != k.source || !based || f.Metric != k.metric {
			t.Errorf(
				"%s with seed %s is foretold by %s of %s from %q (%s), want %s from %q",
				tr.kind,
				tr.seed,
				f.Basis,
				f.Metric,
				f.Source,
				f.Why,
				k.basis,
				k.source,
			)
		}

		if r := f.Remaining; !(0 <= r.Low && r.Low <= r.Mid && r.Mid <= r.High && r.High > 0) {
			t.Errorf("%s with seed %s: %+v is not an interval", tr.kind, tr.seed, r)
		}

		took := tr.end.Sub(tr.began).Seconds()
		truth := tr.end.Sub(f.At).Seconds()

		mark := "missed"
		if f.Remaining.Low <= truth && truth <= f.Remaining.High {
			held++
			mark = ""
		}

		table += fmt.Sprintf(
			"%-12s %4s %5.1fs %4.0f%% %5.1fs %5.1fs %5.1fs %5.1fs %s\n",
			strings.TrimSuffix(tr.kind, ".yaml"),
			tr.seed,
			took,
			100*(took-truth)/took,
			f.Remaining.Low,
			f.Remaining.Mid,
			f.Remaining.High,
			truth,
			mark,
		)
	}

	t.Logf(
		"%d of %d intervals held what was left (part: of the time since the first point, when it was foretold):\n%s",
		held,
		len(all),
		table,
	)

	if out != "" {
		figures := fmt.Sprintf("{\"intervals\": %d, \"intervals_held\": %d, \"held_pct\": %.1f}\n",
			len(all), held, 100*float64(held)/float64(len(all)))
		if err := os.WriteFile(out, []byte(figures), 0o600); err != nil {
			t.Fatal(err)
		}

		if 10*held < 7*len(all) {
			t.Errorf("%d of %d intervals held what was left, want 70 %%", held, len(all))
		}
	}
}
