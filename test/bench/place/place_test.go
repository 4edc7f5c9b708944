package place_test

import (
	"strings"
	"testing"

	"trainyard/test/bench/place"
)

func TestTheBenchmarkWorksOnASmallYard(t *testing.T) {
	var out strings.Builder
	figures, err := place.Run(&out, place.Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}

	for _, scale := range []string{"1k", "1k_fifo", "10k_100k", "10k_100k_fifo"} {
		for _, key := range []string{"full_ms_", "incremental_ms_", "incremental_p99_ms_", "full_idle_starts_"} {
			if figures[key+scale] <= 0 {
				t.Errorf("%s is %g", key+scale, figures[key+scale])
			}
		}
	}

	if figures["full_busy_provisions_1k"] <= 0 { // the plain names are figures of rules, which weighs offers
		t.Error("the default policy provisions nothing in a busy yard")
	}

	for _, part := range []string{"one job ends, one comes", "rules", "fifo"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in the table:\n%s", part, out.String())
		}
	}
}
