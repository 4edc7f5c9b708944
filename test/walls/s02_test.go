package walls_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/test/yardtest"
)

// TestS02_ANodeWithoutIsolationHasOneTenant has mallory submit a job that would run beside alice's on a node whose
// agent is not root, where it could read all her files.
func TestS02_ANodeWithoutIsolationHasOneTenant(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.plainAgent(t, "south", "--mix-users", "no")
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")

	hers := alice.submit(t, script("echo started", "while ! test -e done; do sleep 0.1; done"))
	y.await(t, "alice's job runs", func() bool { return strings.Contains(alice.output(t, hers), "started") })

	stolen := mallory.submit(t, script("cat /proc/*/environ || true", "echo mine ran"))

	y.await(t, "mallory is told why the job waits", func() bool {
		d, err := mallory.Job(t.Context(), stolen)
		must(t, err)

		return d.Why != nil && strings.Contains(d.Why.Sentence,
			"jobs of different users are not isolated from each other on south (in use by alice)")
	})

	if n := y.node(t, "south"); n.Tenant != "alice" || !n.SingleUser || len(n.Jobs) != 1 {
		t.Errorf("the node is dedicated to %q, single user %v, and has %v", n.Tenant, n.SingleUser, n.Jobs)
	}

	// A second job of hers may share the node: the rule is about users, not about jobs.
	if out := alice.runs(t, "echo beside"); !strings.Contains(out, "beside") {
		t.Errorf("alice's second job printed %q", out)
	}

	_, err := alice.CancelJob(t.Context(), hers)
	must(t, err)

	mallory.ended(t, stolen)

	if out := mallory.output(t, stolen); !strings.Contains(out, "mine ran") || strings.Contains(out, string(hers)) {
		t.Errorf("after alice's job had ended mallory's printed %q", out)
	}
}

// TestS02_UpIsForOnePerson tries to let a second person into a yard whose jobs run under the account of the first.
func TestS02_UpIsForOnePerson(t *testing.T) {
	t.Parallel()
	folder, err := yardtest.NewFolder("walls-up-")
	must(t, err)

	t.Cleanup(func() {
		must(t, yardtest.KillAll(folder))
		must(t, os.RemoveAll(folder))
	})

	address, err := yardtest.FreeAddress(t.Context())
	must(t, err)

	me, err := yardtest.NewPerson(binary, folder, "me")
	must(t, err)

	u := &user{Person: me}
	up, err := yardtest.Start(me.Command(t.Context(), "up", "--data", filepath.Join(folder, "data"), "--listen", address,
		"--fake-gpus", "none"), filepath.Join(folder, "up.log"))
	must(t, err)

	(&yard{}).await(t, "the yard is up", func() bool { return u.types(t, "whoami").code == 0 })

	for _, args := range [][]string{{"users", "add", "mallory"}, {"tokens", "create", "--owner", "mallory"}} {
		r := u.types(t, args...)
		if r.code == 0 || !strings.Contains(r.err, "mallory cannot use this yard") || !strings.Contains(r.err,
			"--isolation users") {
			t.Errorf("%v: %s", args, &r)
		}
	}

	u.must(t, "tokens", "create")
	u.must(t, "run", "-y", "--", "echo works")

	if code, err := up.Stop(patience); err != nil || code != 0 {
		t.Errorf("up ended with code %d (%v)", code, err)
	}
}
