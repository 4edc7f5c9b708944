package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestItRunsAProgramForEachJobAndPrintsWhatItHad(t *testing.T) {
	dir := t.TempDir()

	out, err := exec.CommandContext(t.Context(), "../../../native/gpushare/build.sh", dir, "fake").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	gpu := make([]byte, 4096+64*128) // native/gpushare/fake/state.h
	binary.LittleEndian.PutUint64(gpu, 16<<30)
	binary.LittleEndian.PutUint64(gpu[8:], 1<<29)

	if err := os.WriteFile(filepath.Join(dir, "gpu"), gpu, 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("FAKE_GPU", filepath.Join(dir, "gpu"))
	t.Setenv("LD_LIBRARY_PATH", dir)

	var stdout, stderr bytes.Buffer

	err = run(t.Context(), []string{
		"-library", filepath.Join(dir, "libtrainyard-gpu.so"), "-uuid", "GPU-fake",
		"-job", "a:weight=0.7,limit=0.9,cap=4", "-job", "b:weight=0.3,class=opportunistic",
		"--", filepath.Join(dir, "trainer"), "steps=50", "ignored={job}",
	}, &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}

	results := json.NewDecoder(&stdout)
	for _, name := range []string{"a", "b"} {
		var r result
		if err := results.Decode(&r); err != nil || r.Job != name || r.Error != "" || r.Grants == 0 || r.Held == 0 {
			t.Errorf("%s: %+v (%v)\n%s", name, r, err, stderr.String())
		}
	}
}

func TestJobsAreParsed(t *testing.T) {
	t.Parallel()

	for _, bad := range []string{"a:weight=x", "a:class=best", "a:colour=red"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
