package walls_test

import (
	"strings"
	"testing"

	"trainyard/internal/job"
)

// TestS19_AJobCannotFillTheNodeWithProcesses forks without end.
func TestS19_AJobCannotFillTheNodeWithProcesses(t *testing.T) {
	t.Parallel()
	needRoot(t)
	y := newYard(t)
	y.rootAgent(t, "n1", "--isolation", "users", "--job-max-pids", "50")
	bob := y.user(t, "bob")

	got := bob.runs(t, "for i in $(seq 1000); do sleep 1000 & done", "echo BROKEN")
	if strings.Contains(got, "BROKEN") || !strings.Contains(got, "Resource temporarily unavailable") {
		t.Errorf("1000 processes of a job that may have 50: %s", got)
	}
}

// TestS19_AJobCannotFillTheDiskOfTheNode writes more than a run may.
func TestS19_AJobCannotFillTheDiskOfTheNode(t *testing.T) {
	t.Parallel()
	needRoot(t)
	y := newYard(t)
	y.rootAgent(t, "n1", "--isolation", "users", "--job-max-disk", "16MB")
	bob := y.user(t, "bob")

	for _, place := range []string{".", "/tmp", "$HOME", "$XDG_CACHE_HOME", "$TRAINYARD_CHECKPOINT_DIR"} {
		j := bob.submit(t, script("head -c 64000000 /dev/zero > "+place+"/f", "sleep 1000"))
		d := bob.ended(t, j)

		if d.Cause != job.CauseDiskLimit || !strings.Contains(d.Reason, "may use 16 MB") {
			t.Errorf("64 MB in %s: the job ended as %s: %s", place, d.Cause, d.Reason)
		}

		bob.runs(t, "rm -f $XDG_CACHE_HOME/f")
	}
}
