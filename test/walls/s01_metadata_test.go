package walls_test

import (
	"fmt"
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

	mallory := y.user(t, "mallory")

	out := mallory.runs(t, "id -u", "bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' 2>&1 || true")
	if !strings.Contains(out, "3100") || !strings.Contains(out, "Permission denied") {
		t.Errorf("a connection to the metadata service gave %q", out)
	}

	// A socket that is bound to a device goes around the kernel's routing rules.
	const bound = "import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, %s, %s)"
	for _, arguments := range [][2]string{{"25", "b'lo'"}, {"62", "1"}} {
		code := fmt.Sprintf(bound, arguments[0], arguments[1])
		out := mallory.runs(t, "/usr/bin/python3 -c \""+code+"\" 2>&1 || true")

		if !strings.Contains(out, "Operation not permitted") {
			t.Errorf("a socket that is bound to a device by option %s gave %q", arguments[0], out)
		}
	}

	if n := y.node(t, "north"); n.Metadata != "blocked" {
		t.Errorf("the node says of its metadata service: %q", n.Metadata)
	}
}
