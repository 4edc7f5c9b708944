package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	if s.client, err = s.Client(token); err != nil {
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
	if v := os.Getenv("J_SDK"); v != "" { // JTEMP
		python = "env PYTHONPATH=" + v + " " + python // JTEMP
	} // JTEMP
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
	began, end time.Time
}

// follow asks about a job until it has ended.
func (s *seer) followAll(t *testing.T, all []*training) {
	t.Helper()
	s.await(t, "all trainings have ended", func() bool {
		left := 0
		for _, tr := range all {
			if !tr.end.IsZero() {
				continue
			}
			left++
			f, err := s.client.Forecast(t.Context(), tr.id)
			switch n := len(tr.said); {
			case ended(err):
				tr.began, tr.end = s.spanOf(t, tr.id)
			case err != nil:
				t.Fatal(err)
			case n == 0 || !f.At.Equal(tr.said[n-1].At):
				tr.said = append(tr.said, f)
			}
		}
		time.Sleep(300 * time.Millisecond)
		return left == 0
	})
}

// ended reports whether nothing is foretold because the job has ended.
func ended(err error) bool {
	f := (*fault.Error)(nil)
	return errors.As(err, &f) && f.Code == "job_state"
}

// spanOf returns from when to when the only run of a job ran, which must have ended well.
func (s *seer) spanOf(t *testing.T, j id.Job) (from, to time.Time) {
	t.Helper()
	d, err := s.client.Job(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if d.State != job.Succeeded || len(d.Runs) != 1 || d.Runs[0].Started == nil || d.Runs[0].Ended == nil {
		t.Fatalf("%s is %s after %d runs (%s):\n%s", j, d.State, len(d.Runs), d.Reason, s.succeed(t, "logs", string(j)).out)
	}
	return *d.Runs[0].Started, *d.Runs[0].Ended
}

// at returns the first forecast that was made when a part of the training had gone by.
func (tr *training) at(part float64) (api.Forecast, bool) {
	mark := tr.began.Add(job.Seconds(part * tr.end.Sub(tr.began).Seconds()))
	for _, f := range tr.said {
		if !f.At.Before(mark) {
			return f, true
		}
	}
	return api.Forecast{}, false
}

// TestForecastsOfRealTrainings runs trainings of several kinds, with several seeds each,
// and holds what was said after 30 % of each against what happened then.
func TestForecastsOfRealTrainings(t *testing.T) {
	t.Parallel()
	python := trainingPython(t)
	s := newSeer(t)
	kinds := []struct {
		file, metric, source string
		basis                job.Basis
	}{
		{"cosine.yaml", "val_loss", "output (lines)", job.BasisCurve},
		{"job.yaml", "", "output (lines)", job.BasisSteps},
		{"huggingface.yaml", "", "Hugging Face's status messages", job.BasisSteps},
		{"events.yaml", "val_loss", "TensorBoard (runs)", job.BasisCurve},
		{"sdk.yaml", "", "SDK", job.BasisSteps},
	}
	const seeds = 4
	var all []*training
	for seed := range seeds {
		for _, k := range kinds {
			tr := &training{kind: k.file, seed: fmt.Sprint(seed + 1)}
			tr.id = s.train(t, k.file, python, "--seed "+tr.seed)
			all = append(all, tr)
		}
	}
	s.followAll(t, all)

	held, asked := 0, 0
	table := fmt.Sprintf("%-18s %4s %6s %5s  %5s %5s %5s  %5s  %s\n", "training", "seed", "took", "part", "low", "mid", "high", "truth", "by")
	for i, tr := range all {
		k := kinds[i%len(kinds)]
		f, ok := tr.at(0.3)
		if asked++; !ok || !f.Informed() {
			t.Logf("%s with seed %s: nothing was foretold from 30 %% on (%d forecasts, the last: %+v)", tr.kind, tr.seed, len(tr.said), f.Forecast)
			continue
		}
		if f.Source != k.source || f.Basis != k.basis || k.metric != "" && f.Metric != k.metric {
			t.Errorf("%s with seed %s is foretold by %s of %s from %q (%s), want %s from %q", tr.kind, tr.seed, f.Basis, f.Metric, f.Source, f.Why, k.basis, k.source)
		}
		whole, truth := tr.end.Sub(tr.began).Seconds(), tr.end.Sub(f.At).Seconds()
		mark := "missed"
		if f.Remaining.Low <= truth && truth <= f.Remaining.High {
			held++
			mark = "held"
		}
		table += fmt.Sprintf("%-18s %4s %6.1f %4.0f%%  %5.1f %5.1f %5.1f  %5.1f  %s %s, %s\n", strings.TrimSuffix(tr.kind, ".yaml"), tr.seed, whole,
			100*(whole-truth)/whole, f.Remaining.Low, f.Remaining.Mid, f.Remaining.High, truth, f.Basis, f.Source, mark)
	}
	t.Logf("%d of %d intervals held what happened:\n%s", held, asked, table)
	if 10*held < 7*asked {
		t.Errorf("%d of %d intervals held, want 70 %%", held, asked)
	}
}
