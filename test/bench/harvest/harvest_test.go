package harvest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"trainyard/test/bench/harvest"
)

// The trace is generated, a few nodes for some hours: what is tried is the
// benchmark, and that the figures are what they must be.
func TestHarvestBeatsEqualShareAndKeepsBelowItsBound(t *testing.T) {
	t.Parallel()
	var text, again bytes.Buffer
	got, err := harvest.Run(&text, harvest.Options{Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	t.Log(text.String())

	for _, n := range []string{"10", "20", "30"} {
		share, kind, bound := got["share_hpo_"+n], got["share_hpo_"+n+"_travel"], got["bound_hpo_"+n]
		if share <= 0 || share > kind || kind > bound || bound > 1.2 {
			t.Errorf("%s at once: share %g, %g with checkpoints that travel, bound %g", n, share, kind, bound)
		}
	}

	for _, key := range []string{
		"share_mix_10", "share_mix_30", "share_mix_speedup_10", "equal_share_hpo_10", "equal_share_mix_10",
		"share_mix_10_travel", "equal_share_mix_10_travel", "share_hpo_10_travel_lost12",
		"share_hpo_10_shared", "equal_share_hpo_30_shared", "fixed_samples_hpo_10", "fixed_samples_mix_30",
	} {
		if got[key] <= 0 {
			t.Errorf("%s is %g", key, got[key])
		}
	}

	if got["share_hpo_10_travel"] <= got["equal_share_hpo_10_travel"] {
		t.Errorf("harvest %g, equal share %g", got["share_hpo_10_travel"], got["equal_share_hpo_10_travel"])
	}

	for _, part := range []string{
		"as the product has them", "with checkpoints that travel (published assumption, 1 s lost)",
	} {
		if !bytes.Contains(text.Bytes(), []byte(part)) {
			t.Errorf("the tables do not say %q:\n%s", part, &text)
		}
	}

	if _, err := harvest.Run(
		&again,
		harvest.Options{Quick: true},
	); err != nil ||
		!bytes.Equal(text.Bytes(), again.Bytes()) {
		t.Errorf("one after the other and two at once differ (%v):\n%s\n%s", err, &text, &again)
	}
}

func TestReadsTheRealTraceWhereItIs(t *testing.T) {
	t.Parallel()
	data := os.Getenv("TRAINYARD_DATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "..", "shared", "data")
	}

	if _, err := os.Stat(filepath.Join(data, "bftrainer-summit")); err != nil {
		t.Skip("the Summit trace is not here: ", err)
	}

	var text bytes.Buffer
	got, err := harvest.Run(&text, harvest.Options{Data: data, Quick: true})
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Contains(text.Bytes(), []byte("Summit's log of idle nodes from 20h12m23s on")) || got["share_hpo_10"] <= 0 {
		t.Errorf("%v\n%s", got, &text)
	}
}
