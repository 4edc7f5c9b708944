package report

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAReportIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "build", "figures.json")
	want := Report{
		Origin:  Origin{Commit: "abc", Measured: "2026-11-15 21:00 UTC", Machine: "2 cores", Run: "quick"},
		Figures: map[string]float64{"b_ms": 1.5, "a_per_s": 5000},
	}

	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}

	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"a_per_s": 5000`) || !strings.Contains(string(text), `"commit": "abc"`) {
		t.Errorf("not one flat object:\n%s", text)
	}
}

func TestARunOfChangedSourcesSaysSo(t *testing.T) {
	t.Parallel()

	o := Origin{Commit: "0123456789abcdef-dirty", Measured: "today", Machine: "2 cores", Run: "quick"}
	if got, want := o.Describe(), "2 cores, today, commit 0123456789ab-dirty, run: quick"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
}

func TestAReportRefusesWhatWouldMislead(t *testing.T) {
	t.Parallel()

	for name, figures := range map[string]map[string]float64{
		"not a number": {"a": math.NaN()}, "infinite": {"a": math.Inf(1)}, "called as an origin": {"commit": 1},
	} {
		path := filepath.Join(t.TempDir(), "figures.json")
		r := Report{Origin: Origin{Commit: "abc"}, Figures: figures}

		if err := r.Save(path); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a file was written", name)
		}
	}

	path := filepath.Join(t.TempDir(), "figures.json")
	for _, text := range []string{`{"a": "fast"}`, `{"a": [1]}`, `a`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestARunLeavesNoFiguresOfAnEarlierOne(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "figures.json")
	old := Report{Figures: map[string]float64{"slurm_submit_per_s_1": 578}}
	if err := old.Save(path); err != nil {
		t.Fatal(err)
	}

	o, err := Begin(t.Context(), path, "full", time.Date(2026, 11, 15, 21, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the figures of an earlier run are still there")
	}
	if o.Measured != "2026-11-15 21:00 UTC" || o.Commit == "" || o.Machine == "" || o.Run != "full" {
		t.Errorf("origin = %+v", o)
	}
}
