package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestClusterTakesAndRunsJobsAndLeavesNothing(t *testing.T) {
	t.Parallel()

	if err := installed(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}

		t.Skip(err)
	}

	c, err := Start(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}

	stop := func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}
	defer stop() // a second Stop does no harm

	marks := t.TempDir()
	for _, hold := range []bool{true, false} {
		batch, err := c.Batch("echo >"+marks+"/batch", hold)
		if err != nil {
			t.Fatal(err)
		}

		rest, err := c.REST("echo >"+marks+"/rest", hold)
		if err != nil {
			t.Fatal(err)
		}

		for _, submit := range []Submit{batch, rest, rest} {
			if err := submit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		if hold {
			if n, err := c.Pending(t.Context()); err != nil || n != 3 {
				t.Fatalf("pending = %d, %v; want the three held jobs", n, err)
			}
		}
	}

	if err := c.Interactive("echo >" + marks + "/srun")(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"batch", "rest", "srun"} {
		err := c.daemons.Await(t.Context(), time.Minute, func(context.Context) error {
			_, err := os.Stat(filepath.Join(marks, name))
			return err
		})
		if err != nil {
			t.Errorf("the job by %s did not run: %v", name, err)
		}
	}

	stop()

	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}

	if left := processesOf(t, c.dir); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

// processesOf returns the command lines of processes in whose environment dir occurs.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}

	var left []string
	for _, path := range environs {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), dir) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			left = append(left, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}

	return left
}

func TestARefusedSubmissionIsAnError(t *testing.T) {
	t.Parallel()

	if err := installed(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}

		t.Skip(err)
	}

	c, err := Start(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()

	c.token = "not a token"
	rest, err := c.REST("true", true)
	if err != nil {
		t.Fatal(err)
	}

	if err := rest(t.Context()); err == nil {
		t.Error("slurmrestd took a job from nobody in particular")
	}

	if _, err := c.output(t.Context(), "sbatch", "--partition=none", "--wrap=true"); err == nil ||
		!strings.Contains(err.Error(), "invalid partition") {
		t.Errorf("sbatch to no partition: error %v", err)
	}
}
