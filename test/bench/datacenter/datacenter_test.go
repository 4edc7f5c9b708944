package datacenter_test

import (
	"strings"
	"testing"

	"trainyard/test/bench/datacenter"
)

// TestQuick runs one small cell: ours costs less than every other rule.
func TestQuick(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	figures, err := datacenter.Run(&table, datacenter.Options{Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{"worst_cell_vs_best_baseline_pct", "worst_cell_vs_published_pct", "worst_cell_vs_best_baseline_pct_restart_cost"} {
		if got, ok := figures[key]; !ok || got > -50 {
			t.Errorf("%s is %g (%v), want less than -50", key, got, ok)
		}
	}

	if t.Failed() {
		t.Log(table.String())
	}
}
