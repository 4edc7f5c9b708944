package elastic_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"trainyard/test/bench/elastic"
)

func TestTheBenchmarkWorksWithoutThePublicTraces(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	figures, err := elastic.Run(&out, elastic.Options{Data: t.TempDir(), Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	var again strings.Builder
	if _, err := elastic.Run(&again, elastic.Options{Data: "nowhere", Quick: true, Parallel: 1}); err != nil {
		t.Fatal(err)
	}

	if a, b, _ := strings.Cut(out.String(), "left out"); !strings.HasPrefix(again.String(), a) || b == "" {
		t.Errorf(
			"two runs with another number of simulations at once print different tables:\n%s\n%s",
			out.String(),
			again.String(),
		)
	}

	if r := figures["generated_vs_best_other"]; r <= 0 || r > 1 {
		t.Errorf("the mean completion is %g of the best other policy's, want less than 1:\n%s", r, out.String())
	}

	if _, there := figures["pollux_w6_s"]; there {
		t.Error("a figure on a public workload was given without it")
	}
}

func TestTheBenchmarkWorksWithThePublicTraces(t *testing.T) {
	t.Parallel()
	data := os.Getenv("TRAINYARD_DATA")
	if data == "" {
		data = "../../../../shared/data"
	}

	if _, err := os.Stat(data); err != nil {
		t.Skipf("the public traces are not here: %v", err)
	}

	figures, err := elastic.Run(io.Discard, elastic.Options{Data: data, Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{
		"fifo_vc6c71a0_s", "las_vc6c71a0_s", "best_vc6c71a0_s", "gavel_jct_h", "gavel_makespan_h", "pollux_w6_s",
		"pollux_ratio_worst", "sia_w1_s", "pollux_w6_learned_s", "pollux_ratio_learned", "sia_w1_learned_s",
		"gavel_jct_untold_h", "gavel_jct_las_h", "gavel_fair_jct_h", "gavel_fair_jct_alike_h", "gavel_fair_jct_tflops_h",
	} {
		if figures[key] <= 0 {
			t.Errorf("%s is %g", key, figures[key])
		}
	}
}
