package alloc_test

import (
	"bytes"
	"strings"
	"testing"

	"trainyard/internal/solver"
	"trainyard/test/bench/alloc"
)

func TestEverySolverComesToTheSameOptimum(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	got, err := alloc.Run(&text, alloc.Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{"p99_ms_10_200", "p99_ms_30_1000", "p99_ms_50_4000"} {
		if got[key] <= 0 {
			t.Errorf("%s is %g", key, got[key])
		}
	}

	if len(solver.All()) == 0 {
		if _, made := got["optimum_mismatches"]; made || !strings.Contains(text.String(), "no solver is installed") {
			t.Errorf("without a solver nothing can be compared:\n%s", &text)
		}

		return
	}

	if n, made := got["optimum_mismatches"]; !made || n > 0 || got["solver_ms_30_1000"] <= 0 {
		t.Errorf("%g optima differ:\n%s", n, &text)
	}
}
