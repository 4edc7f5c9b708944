package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/cloud/cloudtest"
	"trainyard/test/yardtest"
)

// demo prepares make demo-hybrid with this binary, in a folder of its own.
func demo(t *testing.T, folder string, env ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()

	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("python3 is not installed: %v", err)
		}

		t.Skip("python3 is not installed")
	}

	out := new(bytes.Buffer)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", "demo-hybrid.sh"))
	cmd.Env = append(os.Environ(), "TRAINYARD="+binary, "TMPDIR="+folder, "NO_COLOR=1")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = out, out

	// A group of its own, as on a terminal; what it leaves behind must not keep its output open for ever.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Minute

	return cmd, out
}

// checkNothingLeft checks that a demo has taken everything away that it made.
func checkNothingLeft(t *testing.T, folder string) {
	t.Helper()

	if left, err := yardtest.Processes(filepath.Join(folder, "demo-hybrid-")); err != nil || len(left) > 0 {
		t.Errorf("processes are left: %v (%v)", left, err)
	}

	if files, err := filepath.Glob(filepath.Join(folder, "demo-hybrid-*")); err != nil || len(files) > 0 {
		t.Errorf("files are left: %v (%v)", files, err)
	}
}

func TestTheDemoTellsItsStoryAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		provider, left string
		needs          func(*testing.T)
	}{
		{"process", `the cloud started (\d+) machines and ended (\d+) of them`, func(*testing.T) {}},
		{"ec2", `the EC2 API shows (\d+) machines that were started and (\d+) that were terminated`, needsMoto},
	}

	for _, tt := range tests {
		t.Run(tt.provider, func(t *testing.T) {
			t.Parallel()
			tt.needs(t)
			folder := newFolder(t)
			cmd, out := demo(t, folder, "PROVIDER="+tt.provider)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}

			text := out.String()
			for _, want := range []string{
				"big-memory [l1]: provisions ", // what only the cloud has is provisioned
				"refused: error: ",             // what fits nowhere is refused
				"warm-up: starts on lab-a100 (local, idle): 1× A100 40GB (fake)", // time: the fastest
				"Left premises:  No", // the rule of the data held
				"releases its machine: idle for",
				"On-demand nodes: creations, time, cost",
				"Leases:  none",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q", want)
				}
			}

			// On a slow machine the job with a budget of 20 seconds of an A100 may overrun it: then it is stopped.
			want := 11
			if !strings.Contains(text, "with-budget: succeeded\n") && strings.Contains(text, "with-budget: budget: ") {
				want = 10
			}

			if n := strings.Count(text, ": succeeded\n"); n != want {
				t.Errorf("%d jobs were done, want %d", n, want)
			}

			if m := regexp.MustCompile(tt.left).FindStringSubmatch(text); m == nil || m[1] != m[2] || m[1] == "0" {
				t.Errorf("machines that were started and ended: %v", m)
			}

			checkNothingLeft(t, folder)

			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// needsMoto skips a test where there is no server of the EC2 API.
func needsMoto(t *testing.T) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}

	if found, err := filepath.Glob(filepath.Join(cache, "trainyard", "moto-*", ".complete")); err != nil ||
		len(found) == 0 {
		cloudtest.SkipMoto(t, cloudtest.ErrNoMoto)
	}
}

func TestTheDemoIsEndedByCtrlC(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	cmd, out := demo(t, folder)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// A machine was provisioned: there is something to clean up.
	person{}.await(t, "a machine is there", func() bool {
		up, err := filepath.Glob(filepath.Join(folder, "demo-hybrid-*", "machines", "machines", "*", "up"))
		if err != nil {
			t.Fatal(err)
		}

		return len(up) > 0
	})

	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}

	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("it ended with %v, want code 130\n%s", err, out)
	}

	checkNothingLeft(t, folder)
}
