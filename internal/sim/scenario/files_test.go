package scenario_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim/scenario"
	"trainyard/test/golden"
)

// folder holds the scenarios.
const folder = "../../../scenarios"

// policies are all that scenarios may name.
func policies() place.Registry { return catalogue.All(nil) }

// files lists the scenarios.
func files(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.yard"))
	if err == nil {
		var more []string
		more, err = filepath.Glob(filepath.Join(folder, "*", "*.yard"))
		names = append(names, more...)
	}

	if err != nil {
		t.Fatal(err)
	}

	if len(names) < 20 {
		t.Fatalf("found %d scenarios in %s, want at least 20", len(names), folder)
	}

	return names
}

// load reads a scenario and makes its policy.
func load(t *testing.T, name string) (*scenario.Scenario, func() place.Policy) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	s, err := scenario.Parse(name, text)
	if err != nil {
		t.Fatal(err)
	}

	newPolicy, err := policies().Make(s.Policy)
	if err != nil {
		t.Fatal(err)
	}

	return s, newPolicy
}

// TestScenarios runs every file: what is decided must be what it expects, and
// once the yard is settled five more rounds must change nothing.
func TestScenarios(t *testing.T) {
	for _, name := range files(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yard"), func(t *testing.T) {
			t.Parallel()
			s, newPolicy := load(t, name)
			if s.About == "" {
				t.Error("no comment at its top says what it shows")
			}

			_, log, err := s.Run(newPolicy())
			if err != nil {
				t.Fatal(err)
			}

			if golden.Update() {
				golden.Write(t, name, s.With(log))
			} else if again, err := scenario.Parse(name, []byte(s.With(log))); err != nil {
				t.Fatal(err)
			} else if diff := cmp.Diff(strings.Split(s.Expect, "\n"), strings.Split(again.Expect, "\n")); diff != "" {
				t.Errorf("other decisions (-expected +made); renew them with -update if they are right:\n%s", diff)
			}

			moved, err := s.StillWater(newPolicy)
			if err != nil {
				t.Fatal(err)
			}

			if len(moved) > 0 {
				t.Errorf("five more rounds in an unchanged yard decided: %s", strings.Join(moved, "; "))
			}
		})
	}
}

// TestTheSameScenarioGivesTheSameBytes repeats scenarios in which chance, faults
// and preemption play a part, on one core and on many.
func TestTheSameScenarioGivesTheSameBytes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))

	for _, name := range []string{"elastic-shrink", "spot-loss", "andreas-deadlines", "generated", "random-faults"} {
		s, newPolicy := load(t, filepath.Join(folder, name+".yard"))
		_, first, err := s.Run(newPolicy())
		if err != nil {
			t.Fatal(err)
		}

		if first == "" {
			t.Fatalf("%s: nothing was decided", name)
		}

		for _, procs := range []int{1, 2, 8} {
			runtime.GOMAXPROCS(procs)

			for range 17 {
				if _, again, err := s.Run(newPolicy()); err != nil || again != first {
					t.Fatalf("%s: with GOMAXPROCS=%d two runs differ (%v)", name, procs, err)
				}
			}
		}
	}
}
