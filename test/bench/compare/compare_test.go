package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const someTolerances = `[
  {"figures": "*_ms*", "better": "lower", "allowed": 0.5, "why": "time"},
  {"figures": "*_per_s*", "better": "higher", "allowed": 0.5, "why": "rate"},
  {"figures": "heap_mb", "better": "lower", "allowed": 0.5, "floor": 10, "why": "memory"}
]`

func TestFiguresAreJudgedByTheirTolerance(t *testing.T) {
	t.Parallel()

	list, err := parseTolerances([]byte(someTolerances))
	if err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name, figure string
		before, now  float64
		want         verdict
	}{
		{"a time within its tolerance", "full_ms_small", 10, 15, within},
		{"a time beyond it", "full_ms_small", 10, 15.1, worse},
		{"a time much shorter", "full_ms_small", 10, 1, better},
		{"a rate within its tolerance", "jobs_per_s_fifo", 100, 50, within},
		{"a rate beyond it", "jobs_per_s_fifo", 100, 49, worse},
		{"a rate much higher", "jobs_per_s_fifo", 100, 400, better},
		{"an equal count", "starts", 7, 7, within},
		{"a count one higher", "starts", 7, 8, changed},
		{"a count one lower", "starts", 7, 6, changed},
		{"a count that was nothing", "mismatches", 0, 1, changed},
		{"a time that was nothing", "a_ms", 0, 1, worse},
		{"a change below the floor", "heap_mb", 0, 10, within},
		{"a change above the floor", "heap_mb", 0, 11, worse},
		{"a share above the floor", "heap_mb", 100, 150, within},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			rows := compare(map[string]float64{tt.figure: tt.before}, map[string]float64{tt.figure: tt.now}, list)
			if len(rows) != 1 || rows[0].verdict != tt.want {
				t.Errorf("rows = %+v, want one that is %s", rows, tt.want)
			}
		})
	}
}

func TestBadTolerancesAreRefused(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		`[{"figures": "[", "better": "lower"}]`:                "not a pattern",
		`[{"figures": "", "better": "lower"}]`:                 "not a pattern",
		`[{"figures": "a", "better": "less"}]`:                 "better must be",
		`[{"figures": "a", "better": "same", "allowed": -1}]`:  "must not be negative",
		`[{"figures": "a", "better": "same", "tolerance": 1}]`: "unknown field",
	} {
		if _, err := parseTolerances([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}

// folders writes figures into two folders and returns the arguments that compare them.
func folders(t *testing.T, stored, measured map[string]string) []string {
	t.Helper()

	dir := t.TempDir()
	for folder, files := range map[string]map[string]string{"old": stored, "new": measured} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}

		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}

	rules := filepath.Join(dir, "tolerances.json")
	if err := os.WriteFile(rules, []byte(someTolerances), 0o600); err != nil {
		t.Fatal(err)
	}

	return []string{"-old", filepath.Join(dir, "old"), "-new", filepath.Join(dir, "new"), "-tolerances", rules}
}

func TestFoldersAreCompared(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name             string
		stored, measured map[string]string
		want             []string // parts of the output
		fails            string   // part of the error
	}{
		{
			"nothing got worse",
			map[string]string{"a.json": `{"x_ms": 10, "n": 1}`}, map[string]string{"a.json": `{"x_ms": 11, "n": 1, "m": 2}`},
			[]string{"x_ms   10   11  +10.0 %", "m    -    2        -", "new"}, "",
		},
		{
			"a figure got worse",
			map[string]string{"a.json": `{"x_ms": 10}`}, map[string]string{"a.json": `{"x_ms": 100}`},
			[]string{"+900.0 %", "WORSE"}, errRegressed.Error(),
		},
		{
			"a figure is gone",
			map[string]string{"a.json": `{"x_ms": 10, "n": 1}`}, map[string]string{"a.json": `{"n": 1}`},
			[]string{"GONE"}, errRegressed.Error(),
		},
		{
			"one of two was measured",
			map[string]string{"a.json": `{"n": 1}`, "b.json": `{"n": 1}`}, map[string]string{"b.json": `{"n": 1}`},
			[]string{"a.json: not measured"}, "",
		},
		{"none was measured", map[string]string{"a.json": `{"n": 1}`}, nil, []string{"not measured"}, "nothing to compare"},
		{"no JSON", map[string]string{"a.json": `{"n": 1}`}, map[string]string{"a.json": `n`}, nil, "read figures"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			var out bytes.Buffer
			err := run(folders(t, tt.stored, tt.measured), &out, &out)
			switch {
			case tt.fails == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
				t.Errorf("error %v, want one with %q", err, tt.fails)
			}

			for _, part := range tt.want {
				if !strings.Contains(out.String(), part) {
					t.Errorf("output has no %q:\n%s", part, out.String())
				}
			}
		})
	}
}

func TestStoredFiguresComparedWithThemselvesAreEqual(t *testing.T) {
	t.Parallel()

	args := folders(t, nil, map[string]string{"a.json": `{"n": 1, "x_ms": 2.5}`})
	if err := run(append(args, "-store"), &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}

	if err := run(args, &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		t.Errorf("error %v, want none", err)
	}

	err := run(append(folders(t, nil, nil), "-store"), &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || errors.Is(err, errRegressed) {
		t.Errorf("error %v, want one for an empty folder", err)
	}
}

// TestTheTolerancesOfTheRepositoryAreGood reads the file that make bench-compare uses.
func TestTheTolerancesOfTheRepositoryAreGood(t *testing.T) {
	t.Parallel()

	list, err := readTolerances("../../../docs/baseline/tolerances.json")
	if err != nil {
		t.Fatal(err)
	}

	for figure, want := range map[string]direction{
		"full_busy_ms_500": lower, "jobs_per_s_fifo": higher, "heap_mb_100k": lower, "full_busy_starts_500": same,
		"submit_per_s_sqlite_1": higher, "start_ms_p99": lower,
	} {
		if got := toleranceOf(figure, list).Better; got != want {
			t.Errorf("%s: better is %s, want %s", figure, got, want)
		}
	}
}
