package walls_test

import (
	"strings"
	"testing"

	"trainyard/internal/job"
)

// escape leaves its supervision: it hides a process and kills its parent. The process ends with the yard of the test.
var escape = []string{"(setsid env -i sleep 777 > /dev/null 2>&1 &)", "kill -9 $PPID", "sleep 1000"}

// TestS16_AnIsolatedJobCannotKillItsSupervisor tries to leave supervision on a node that is root.
func TestS16_AnIsolatedJobCannotKillItsSupervisor(t *testing.T) {
	t.Parallel()
	needRoot(t)
	y := newYard(t)
	y.rootAgent(t, "n1", "--isolation", "users")
	bob := y.user(t, "bob")

	j := bob.submit(t, script(escape...))
	d := bob.ended(t, j)

	// The shell runs with -e: the kill that fails ends the job, and with it all of its processes.
	if out := bob.output(t, j); d.Cause != job.CauseUserCode || len(d.Runs) != 1 ||
		!strings.Contains(out, "Operation not permitted") {
		t.Errorf("the job ended as %s after %d runs: %s\n%s", d.Cause, len(d.Runs), d.Reason, out)
	}
}

// TestS16_AnEscapeWithoutIsolationIsRecordedAsWhatItIs kills the supervisor where nothing prevents it: the record does
// not claim that all processes were ended, and the job is not run again for free.
func TestS16_AnEscapeWithoutIsolationIsRecordedAsWhatItIs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.plainAgent(t, "n1")
	bob := y.user(t, "bob")

	j := bob.submit(t, script(escape...)+"retry: 0\n")
	d := bob.ended(t, j)

	if d.Cause != job.CauseSupervisorLost || len(d.Runs) != 1 || !strings.Contains(d.Reason, "may have left processes") {
		t.Errorf("the job ended as %s after %d runs: %s", d.Cause, len(d.Runs), d.Reason)
	}
}
