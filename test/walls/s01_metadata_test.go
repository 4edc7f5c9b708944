package walls_test

import (
	"strings"
	"testing"

	"trainyard/test/yardtest"
)

// TestS01_JobsCannotReachTheMetadataService has mallory ask the cloud for the credentials of the node. The kernel
// refuses it with a reason of its own, so the attack means the same on machines that are in no cloud.
func TestS01_JobsCannotReachTheMetadataService(t *testing.T) {
	t.Parallel()
	needRoot(t)

	// What blocks the service outlives the agent, so the agent has user ids that no other one has on this machine.
	const uids = "310000-310099"

	t.Cleanup(func() { yardtest.Unblock(uids) })
	yardtest.Unblock(uids) // left by a test that was killed

	y := newYard(t)
	y.rootAgent(t, "north", "--isolation", "users", "--job-uids", uids)

	out := y.user(t, "mallory").runs(t, "id -u", "bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' 2>&1 || true")
	if !strings.Contains(out, "3100") || !strings.Contains(out, "Permission denied") {
		t.Errorf("a connection to the metadata service gave %q", out)
	}

	if n := y.node(t, "north"); n.Metadata != "blocked" {
		t.Errorf("the node says of its metadata service: %q", n.Metadata)
	}
}
