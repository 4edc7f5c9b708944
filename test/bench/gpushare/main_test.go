package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"trainyard/internal/agent/share/sharetest"
)

func TestItRunsAProgramForEachJobAndPrintsWhatItHad(t *testing.T) {
	dir := t.TempDir()

	if err := sharetest.Build(t.Context(), dir, ""); err != nil {
		t.Fatal(err)
	}

	for name, value := range sharetest.New(t, 16<<30, dir).Env() {
		t.Setenv(name, value)
	}

	var stdout bytes.Buffer

	stderr, err := os.Create(filepath.Join(dir, "stderr")) // programs and the broker write to it at the same time
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = stderr.Close() })

	said := func() string {
		text, _ := os.ReadFile(stderr.Name())
		return string(text)
	}

	err = run(t.Context(), []string{
		"-library", filepath.Join(dir, sharetest.Library), "-uuid", sharetest.UUID,
		"-job", "a:weight=0.7,limit=0.9,cap=4", "-job", "b:weight=0.3,class=opportunistic",
		"--", filepath.Join(dir, sharetest.Trainer), "steps=50", "ignored={job}",
	}, &stdout, stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, said())
	}

	results := json.NewDecoder(&stdout)
	for _, name := range []string{"a", "b"} {
		var r result
		if err := results.Decode(&r); err != nil || r.Job != name || r.Error != "" || r.Held == 0 {
			t.Errorf("%s: %+v (%v)\n%s", name, r, err, said())
		}

		// The other one needs none if it comes after the first has ended.
		if name == "a" && r.Grants == 0 {
			t.Errorf("a job with a limit was never granted the GPU: %+v", r)
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
