package slurm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/executable"
)

// clients puts programs into a folder that are found before Slurm's own, and returns a cluster whose clients they are.
func clients(t *testing.T, programs map[string]string) *Cluster {
	t.Helper()

	dir := t.TempDir()
	for name, text := range programs {
		if err := executable.Write(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	path := dir + string(os.PathListSeparator) + os.Getenv("PATH")
	t.Setenv("PATH", path)

	return &Cluster{dir: dir, env: []string{"PATH=" + path}}
}

// On a busy machine it may take long after the end of a client until all its output is here.
func TestASubmissionWhoseOutputComesLateCounts(t *testing.T) {
	c := clients(t, map[string]string{"sbatch": "(sleep 2; echo late) &\necho 17"})

	submit, err := c.Batch("true", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := submit(t.Context()); err != nil {
		t.Errorf("sbatch succeeded, and still: %v", err)
	}
}

func TestNobodyWaitsForWhatSrunLeavesBehind(t *testing.T) {
	c := clients(t, map[string]string{"srun": "sleep 120 &\nexit 0"})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	if err := c.Interactive("true")(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("srun has ended, and still: %v, %v", err, ctx.Err())
	}

	c = clients(t, map[string]string{"srun": "echo no such partition >&2\nexit 1"})
	if err := c.Interactive("true")(t.Context()); err == nil || !strings.Contains(err.Error(), "no such partition") {
		t.Errorf("error %v, want what srun said", err)
	}
}
