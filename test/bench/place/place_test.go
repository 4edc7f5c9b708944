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

	for _, key := range []string{"full_ms_1k", "incremental_ms_1k", "incremental_p99_ms_1k", "full_idle_starts_1k"} {
		if figures[key] <= 0 {
			t.Errorf("%s is %g", key, figures[key])
		}
	}

	if !strings.Contains(out.String(), "one job ends, one comes") {
		t.Errorf("the table is not complete:\n%s", out.String())
	}
}
