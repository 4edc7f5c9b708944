package walls_test

import (
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/job"
)

// TestS01_AJobReadsAndChangesNothingOfOthers attacks the node and the jobs of others from a job on a node that is root.
func TestS01_AJobReadsAndChangesNothingOfOthers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	y := newYard(t)
	y.rootAgent(t, "n1", "--isolation", "users")
	ada, bob := y.user(t, "ada"), y.user(t, "bob")

	victim := ada.submit(t, script(
		"umask 0; echo GOLD | tee secret $HOME/secret /tmp/secret /dev/shm/secret $TRAINYARD_CHECKPOINT_DIR/secret",
		"export TOKEN=GOLD; while :; do sleep 0.1; done"))
	y.await(t, "the victim runs", func() bool { return strings.Contains(ada.output(t, victim), "GOLD") })

	data := filepath.Join(y.AgentData("n1"), "agent")
	got := bob.runs(t,
		"id -u; set +e",
		// Its rights.
		"grep -q 'CapBnd:.*[1-9a-f]' /proc/self/status && echo BROKEN capabilities",
		"unshare -Ur true 2>/dev/null && echo BROKEN namespaces",
		"mount -t tmpfs x /mnt 2>/dev/null && echo BROKEN mount",
		// The files of the agent, the server and the other job.
		"find "+data+" -name '*.pem' -o -name launch.json -o -name secret 2>/dev/null | sed 's/^/BROKEN found /'",
		"cat "+data+"/identity/* 2>/dev/null && echo BROKEN key",
		"cat "+y.Folder+"/*/ca/* "+y.Folder+"/*/yard.db 2>/dev/null && echo BROKEN server",
		"cat /tmp/secret /dev/shm/secret 2>/dev/null && echo BROKEN private folders",
		// The processes of the agent, the supervisor and the other job.
		"for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/environ 2>/dev/null | grep -q GOLD && echo BROKEN environment $p; done",
		"kill -9 $PPID 2>/dev/null && echo BROKEN parent",
		// What later jobs execute.
		"echo x >> $TRAINYARD_SDK 2>/dev/null && echo BROKEN wheel",
		"echo x > $(dirname $TRAINYARD_SDK)/other.whl 2>/dev/null && echo BROKEN wheels",
		"echo over")

	uid, rest, _ := strings.Cut(got, "\n")
	if uid == "0" || strings.Contains(rest, "BROKEN") || strings.Contains(rest, "GOLD") || !strings.Contains(rest,
		"over") {
		t.Errorf("the attacker's job with uid %s says:\n%s", uid, rest)
	}

	if d, err := ada.Job(t.Context(), victim); err != nil || d.State != job.Running {
		t.Errorf("the victim's job is %v, %v", d.State, err)
	}

	if other := strings.TrimSpace(ada.runs(t, "id -u")); other == uid {
		t.Errorf("both users have uid %s", uid)
	}
}

// TestS01_ASetUpIsNotSharedAndNotChanged poisons what the next job with the same set-up executes.
func TestS01_ASetUpIsNotSharedAndNotChanged(t *testing.T) {
	t.Parallel()
	needRoot(t)
	y := newYard(t)
	y.rootAgent(t, "n1", "--isolation", "users")
	ada, bob := y.user(t, "ada"), y.user(t, "bob")

	const setup = "setup: echo 'echo good' > $TRAINYARD_SETUP_DIR/tool\n"

	attack := setup + script(
		"chmod u+w $TRAINYARD_SETUP_DIR $TRAINYARD_SETUP_DIR/tool 2>/dev/null",
		"echo 'echo BROKEN' > $TRAINYARD_SETUP_DIR/tool",
		"rm -f $TRAINYARD_SETUP_DIR/tool; echo tried")
	bob.ended(t, bob.submit(t, attack))

	for _, u := range []*user{bob, ada} {
		j := u.submit(t, setup+script("sh $TRAINYARD_SETUP_DIR/tool"))
		u.ended(t, j)

		if got := u.output(t, j); !strings.Contains(got, "good") || strings.Contains(got, "BROKEN") {
			t.Errorf("the set-up of %s did: %q", u.name, got)
		}
	}
}
