package simulator_test

import (
	"strings"
	"testing"

	"trainyard/test/bench/simulator"
)

func TestTheBenchmarkWorksWithoutThePublicTraces(t *testing.T) {
	var out strings.Builder
	figures, err := simulator.Run(&out, simulator.Options{Data: t.TempDir(), Quick: true})
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{"jobs_per_s_fifo", "events_per_s_fifo", "jobs_per_s_rules", "jobs_per_s_andreas", "peak_rss_mb", "heap_mb_1m"} {
		if figures[key] <= 0 {
			t.Errorf("%s is %g", key, figures[key])
		}
	}

	if _, there := figures["ratio_vs_python"]; there {
		t.Error("a figure on Philly's jobs was given without them")
	}

	if !strings.Contains(out.String(), "left out") {
		t.Errorf("the table does not say what is left out:\n%s", out.String())
	}
}
