package edl_test

import (
	"bytes"
	"testing"

	"trainyard/test/bench/edl"
)

func TestElasticityShortensWaiting(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	got, err := edl.Run(&text, edl.Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}

	t.Log(text.String())

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
