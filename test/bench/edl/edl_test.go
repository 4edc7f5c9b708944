package edl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is computed is on the page, also where it does not flatter.
func TestThePageHasEveryRow(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "explanation", "benchmarks-policies.md"))
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range measures() {
		if !strings.Contains(string(page), "| "+m.words+" |") {
			t.Errorf("the page has no row %q", m.words)
		}
	}
}

func TestElasticityShortensWaiting(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	got, err := Run(&text, Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}

	t.Log(text.String())

	for _, m := range measures() {
		for _, w := range ways() {
			if _, there := got[m.key+"_"+w.key]; !there {
				t.Errorf("%s_%s is missing", m.key, w.key)
			}
		}

		if !strings.Contains(text.String(), m.words) {
			t.Errorf("the table has no row %q", m.words)
		}
	}

	if got["case1_pending_s_edl"] > got["case1_pending_s_off"]/2 ||
		got["case1_pending_s_ours"] > got["case1_pending_s_edl"] {
		t.Errorf("case 1: pending %g s without elasticity, %g s with EDL's, %g s with ours",
			got["case1_pending_s_off"], got["case1_pending_s_edl"], got["case1_pending_s_ours"])
	}

	// Without elasticity nobody waits in case 2; with ours nearly nobody may.
	if got["case2_pending_s_ours"] > 3 || got["case2_pending_s_edl"] < got["case2_pending_s_ours"] {
		t.Errorf("case 2: pending %g s with EDL's, %g s with ours", got["case2_pending_s_edl"], got["case2_pending_s_ours"])
	}

	if got["case2_offpeak_util_ours"] < got["case2_offpeak_util_off"]+20 {
		t.Errorf(
			"case 2: off peak %g %% of the CPUs are in use without elasticity, %g %% with ours",
			got["case2_offpeak_util_off"],
			got["case2_offpeak_util_ours"],
		)
	}
}
