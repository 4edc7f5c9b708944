package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/clock"
	"trainyard/test/bench/report"
)

func TestFiguresAreRoundedAndEachIsReportedOnce(t *testing.T) {
	t.Parallel()

	got, err := byName([]figure{{"b_ms", 1.23456, "ms", ""}, {"a_per_s", 5000, "jobs/s", "how"}})
	if diff := cmp.Diff(map[string]float64{"a_per_s": 5000, "b_ms": 1.235}, got); err != nil || diff != "" {
		t.Errorf("error %v, figures (-want +got):\n%s", err, diff)
	}

	if _, err := byName([]figure{{"a", 1, "", ""}, {"a", 2, "", ""}}); err == nil {
		t.Error("two figures of one name: no error")
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	err := printTable(&got, []figure{{"long_name", 12345.6, "jobs/s", "how"}, {"b", 1.234, "ms", ""}})
	if err != nil {
		t.Fatal(err)
	}

	want := "  long_name  12346   jobs/s\n          b   1.23       ms\nlong_name: how\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestFactorsOnlyWhereBothWereMeasured(t *testing.T) {
	t.Parallel()
	got := factors([]figure{
		{"submit_per_s_sqlite_64", 6000, "", ""}, {"slurm_submit_per_s_64", 500, "", ""},
		{"start_ms_p50", 20, "", ""}, {"slurm_start_ms_p50", 400, "", ""},
		{"slurm_start_ms_p99", 900, "", ""}, {"short_jobs_per_s", 150, "", ""}, {"hyperqueue_jobs_per_s", 200, "", ""},
	})

	values := map[string]float64{}
	for _, f := range got {
		values[f.name] = f.value
	}

	want := map[string]float64{"ahead_submit_64": 12, "ahead_start_p50": 20, "ahead_short": 0.75}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("factors (-want +got):\n%s", diff)
	}
}

// fixed is a section with a known result.
type fixed struct {
	name string
	err  error
}

func (f fixed) Name() string { return f.name }

func (f fixed) Run(context.Context) ([]figure, error) {
	return []figure{{f.name, 1, "", ""}}, f.err
}

func TestChooseSections(t *testing.T) {
	t.Parallel()
	all := []section{fixed{name: "a"}, fixed{name: "b"}, fixed{name: "c"}}
	got, err := choose(all, "c,a")
	if err != nil || len(got) != 2 || got[0].Name() != "a" || got[1].Name() != "c" {
		t.Errorf("choose = %v, %v; want a and c in their own order", got, err)
	}

	if got, err := choose(all, ""); err != nil || len(got) != 3 {
		t.Errorf("choose nothing = %v, %v; want all", got, err)
	}

	if _, err := choose(all, "a,d"); err == nil || !strings.Contains(err.Error(), `no section "d"; there are: a, b, c`) {
		t.Errorf("choose d: error %v", err)
	}
}

func TestAFailedSectionKeepsTheOthersFigures(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	s := settings{clock: clock.Wall{}, notes: &bytes.Buffer{}}
	got, err := measure(t.Context(), s, []section{fixed{"a", broken}, fixed{"b", nil}})
	if !errors.Is(err, broken) || len(got) != 2 {
		t.Errorf("measure = %v, %v; want both figures and the error", got, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	got, err = measure(ctx, s, []section{fixed{"a", nil}})
	if err == nil || len(got) != 0 {
		t.Errorf("measure after an interrupt = %v, %v; want none and an error", got, err)
	}
}

// A part that breaks off must not leave figures of an older build beside new ones.
func TestARunThatBreaksOffWritesNothingAndLeavesNothingOld(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "bench-core.json")
	broken := errors.New("slurm stopped with 64 clients")
	s := settings{clock: clock.Wall{}, notes: &bytes.Buffer{}}

	if err := record(t.Context(), s, []section{fixed{"a", nil}, fixed{"b", nil}}, path, "full", io.Discard); err != nil {
		t.Fatal(err)
	}

	got, err := report.Read(path)
	if err != nil {
		t.Fatal(err)
	}

	diff := cmp.Diff(map[string]float64{"a": 1, "b": 1}, got.Figures)
	if diff != "" || got.Commit == "" || got.Run != "full" {
		t.Errorf("%+v, figures (-want +got):\n%s", got.Origin, diff)
	}

	err = record(t.Context(), s, []section{fixed{"a", nil}, fixed{"b", broken}}, path, "full", io.Discard)
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the broken section", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is there after a run that broke off (%v)", err)
	}
}
