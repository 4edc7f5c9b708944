package swf_test

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/test/bench/swf"
)

// TestBothSidesAgree runs a small version on generated jobs, of which the run times
// are known exactly: then there is nothing in which the two could differ.
func TestBothSidesAgree(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	got, err := swf.Run(&text, swf.Options{Data: t.TempDir(), Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range []string{"fcfs", "sjf_easy", "wfp3", "unicep", "f1"} {
		if v := got[p+"_generated_bsld"]; v < 1 || math.IsNaN(v) {
			t.Errorf("%s has a bounded slowdown of %g", p, v)
		}
	}

	if _, err := exec.LookPath("python3"); err != nil {
		if _, made := got["worst_diff_pct"]; made || !strings.Contains(text.String(), "python3 is not installed") {
			t.Errorf("without Python there is nothing to compare with:\n%s", &text)
		}

		return
	}

	if worst, made := got["worst_diff_pct"]; !made || worst > 0.01 {
		t.Errorf("they differ by %g %%:\n%s", worst, &text)
	}
}

// TestOnThePublishedLogs does the same on windows of a real log.
func TestOnThePublishedLogs(t *testing.T) {
	t.Parallel()
	data := os.Getenv("TRAINYARD_DATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "..", "shared", "data")
	}

	var text bytes.Buffer
	got, err := swf.Run(&text, swf.Options{Data: data, Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(text.String(), "instead: jobs") {
		t.Skipf("the shared data are not there: rlscheduler and swf in %s", data)
	}

	if got["fcfs_lublin1_bsld"] < 1 {
		t.Errorf("FCFS on Lublin-1: %g\n%s", got["fcfs_lublin1_bsld"], &text)
	}
}
