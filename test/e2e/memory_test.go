package e2e_test

import (
	"os"
	"strings"
	"testing"

	"trainyard/internal/job"
)

// hungry is a job that saves its first steps with little memory and needs more than its limit after them.
const hungry = `
run: |
  python3 - <<'EOF'
  import os
  folder = os.environ["TRAINYARD_CHECKPOINT_DIR"]
  saved = os.path.join(folder, "step")
  step = int(open(saved).read()) if os.path.exists(saved) else 0
  limited = "trainyard" in open("/proc/self/cgroup").read()
  print("begins at", step)
  print("limited" if limited else "without a limit", flush=True)
  held = []
  while step < 10:
      if step >= 5:
          held.append(b"x" * (30 << 20))
      step += 1
      with open(saved + ".tmp", "w") as f:
          f.write(str(step))
      os.replace(saved + ".tmp", saved)
  print("finished with", len(held), flush=True)
  EOF
resources: {cpus: 0.5, memory: 100MB}
checkpoint: {dir: ckpt}
`

// A program that exceeds its memory limit is killed, gets more memory, and finishes from its last checkpoint, without
// anybody doing anything. Its owner finds a notice.
func TestAJobOutOfMemoryContinuesWithMore(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	id := y.submit(t, hungry)
	y.succeed(t, "wait", id)

	d := y.job(t, id)
	if len(d.Runs) == 1 && strings.Contains(y.succeed(t, "logs", id).out, "without a limit") {
		if os.Getenv("CI") == "true" {
			t.Fatal("programs cannot be limited here")
		}

		t.Skip("programs cannot be limited here")
	}

	if len(d.Runs) != 2 || d.Runs[0].Cause != job.CauseHostOOM || !strings.Contains(d.Runs[0].Reason, "limit of 100MB") {
		t.Fatalf("the runs are %+v, want the first out of memory and the second to succeed", d.Runs)
	}

	if n := y.beginning(t, id+".2"); n < 5 {
		t.Errorf("the second run began at %d, want it to continue from the last checkpoint", n)
	}

	if out := y.succeed(t, "inbox").out; strings.Contains(out, "out_of_memory") {
		t.Errorf("the owner was asked:\n%s", out)
	}

	if said := y.events(t, "inbox.noticed"); len(said) != 1 || !strings.Contains(said[0], "the next run gets 200 MB of memory") {
		t.Errorf("the notices are %q", said)
	}

	// The next one like it has enough from the start.
	next := y.submit(t, hungry)
	note := "needs 200 MB of memory: " + id + " like it ran out there"

	if said := y.events(t, "job.submitted"); !strings.Contains(said[len(said)-1], note) {
		t.Errorf("the next one is submitted as %q, want %q", said, note)
	}

	y.succeed(t, "wait", next)

	if d := y.job(t, next); len(d.Runs) != 1 {
		t.Errorf("the runs of the next one are %+v, want one", d.Runs)
	}
}
