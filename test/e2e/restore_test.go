package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// soonLost are settings under which a node is lost after seconds, because a restored yard waits that long.
var soonLost = []string{"--suspect-after", "4s", "--lost-after", "8s"}

// data is the data directory of the server.
func (y *yard) data() string { return filepath.Join(y.Folder, "server") }

// start starts the server again.
func (y *yard) start(t *testing.T) {
	t.Helper()
	if err := y.StartServer(); err != nil {
		t.Fatal(err)
	}

	if err := y.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stop asks the server to end, so that all of its database is in one file.
func (y *yard) stop(t *testing.T) {
	t.Helper()
	if code, err := y.Server().Stop(patience); err != nil || code != 0 {
		t.Fatalf("the server ended with code %d (%v)", code, err)
	}
}

// copyTree copies a file or directory.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// remove removes files.
func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(p); err != nil {
			t.Fatal(err)
		}
	}
}

// endless is a job file whose program prints a text again and again until a file is there.
func endless(text, until string) string {
	return script(fmt.Sprintf("while ! test -e %s; do echo %s; sleep 0.05; done", until, text))
}

// events lists the reasons of the events of a kind.
func (y *yard) events(t *testing.T, kind string) []string {
	t.Helper()
	var page api.EventPage
	y.decode(t, &page, "events", "--kind", kind, "-o", "json")

	var reasons []string
	for _, e := range page.Events {
		reasons = append(reasons, e.Reason)
	}

	return reasons
}

// checkOnly checks that a job succeeded and printed this text and nothing else.
func (y *yard) checkOnly(t *testing.T, id, text string) {
	t.Helper()
	y.awaitState(t, id, job.Succeeded)
	y.await(t, "the output of "+id+" is there", func() bool { return y.succeed(t, "logs", id).out != "" })

	if out := y.succeed(t, "logs", id).out; out != text+"\n" {
		t.Errorf("job %s printed\n%s\nwant only %q", id, out, text)
	}
}

// checkSetAside checks that the node has set a run aside with its output, which the server does not show.
func (y *yard) checkSetAside(t *testing.T, node, run, text string) {
	t.Helper()

	y.await(t, run+" is set aside", func() bool {
		return strings.Contains(strings.Join(y.events(t, "run.set_aside"), "\n"), run)
	})

	found, err := filepath.Glob(filepath.Join(y.AgentData(node), "agent", "set-aside", run+".*", "output.log"))
	if err != nil || len(found) != 1 {
		t.Fatalf("set aside: %v, %v, want the output of %s", found, err, run)
	}

	output, err := os.ReadFile(found[0])
	if err != nil || !strings.Contains(string(output), text) {
		t.Errorf("the output that was set aside is %q, %v; want it to contain %q", output, err, text)
	}
}

func TestABackupThatIsRestoredMixesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t, soonLost...)
	y.join(t, []string{"north"})
	y.checkOnly(t, y.submit(t, script("echo before")), "before")

	file := filepath.Join(y.Folder, "yard.backup")
	if out := y.succeed(t, "backup", file, "--data", y.data()).out; !strings.Contains(out, file) {
		t.Errorf("backup said %q", out)
	}

	lost := y.submit(t, endless("lost", filepath.Join(y.Folder, "never")))
	y.awaitOutput(t, lost, "lost")

	if r := y.exits(t, 104, "restore", file, "--data", y.data()); !strings.Contains(r.err, "a server is using") {
		t.Errorf("restore under a running server: %s", r)
	}

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	said := y.succeed(t, "restore", file, "--data", y.data()).out
	for _, want := range []string{"yard.db.replaced", "traces of jobs up to j2", "j2.1 rank 0", "The next job will be j1001"} {
		if !strings.Contains(said, want) {
			t.Errorf("restore does not say %q:\n%s", want, said)
		}
	}

	y.start(t)

	next := y.submit(t, script("echo after"))
	if next != "j1001" {
		t.Errorf("the first job after the restore is %s", next)
	}

	y.checkOnly(t, next, "after")
	y.checkOnly(t, "j1", "before")
	y.checkSetAside(t, "north", "j2.1", "lost")

	if r := y.run(t, "job", lost); r.code == 0 {
		t.Errorf("the job that was lost is known: %s", r)
	}
}

// A machine that was lost with its disk is replaced: everything is in the backup, but for the key of the secrets.
func TestAYardIsRebuiltFromItsBackup(t *testing.T) {
	t.Parallel()
	y := newYard(t, soonLost...)
	y.join(t, []string{"north"})
	y.checkOnly(t, y.submit(t, script("echo before")), "before")

	folder := filepath.Join(y.Folder, "backups", "monday")
	if said := y.succeed(t, "backup", folder, "--data", y.data()).out; !strings.Contains(said, "secrets.key in another place") {
		t.Errorf("backup said %q", said)
	}

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(y.data()); err != nil {
		t.Fatal(err)
	}

	if said := y.succeed(t, "restore", folder, "--data", y.data()).out; !strings.Contains(said, "is complete") ||
		!strings.Contains(said, "secrets.key is missing") {
		t.Errorf("restore said %q", said)
	}

	y.start(t)
	y.checkOnly(t, "j1", "before") // with its output, and with the login of before
	y.checkOnly(t, y.submit(t, script("echo after")), "after")
}

// The defect D1: the database is put back by hand while a later job still runs on the node.
func TestADatabaseThatIsPutBackByHandIsRecognised(t *testing.T) {
	t.Parallel()
	y := newYard(t, soonLost...)
	y.join(t, []string{"north"})
	y.checkOnly(t, y.submit(t, script("echo before")), "before")
	y.stop(t)

	db, saved := filepath.Join(y.data(), "yard.db"), filepath.Join(y.Folder, "saved.db")
	copyTree(t, db, saved)
	y.start(t)

	until := filepath.Join(y.Folder, "until")
	lost := y.submit(t, endless("lost", until))
	y.awaitOutput(t, lost, "lost")

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	remove(t, db, db+"-wal", db+"-shm")
	copyTree(t, saved, db)
	y.start(t)

	next := y.submit(t, script("echo after"))
	if err := os.WriteFile(until, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	y.checkOnly(t, next, "after")

	if events := y.events(t, "yard.restored"); len(events) != 1 {
		t.Errorf("events that tell of the restore: %v", events)
	}
}

// A copy of the whole data directory has no trace of what came after it; only the node has.
func TestADataDirectoryThatIsPutBackMixesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t, soonLost...)
	y.join(t, []string{"north"})
	y.checkOnly(t, y.submit(t, script("echo before")), "before")
	y.stop(t)

	saved := filepath.Join(y.Folder, "saved")
	copyTree(t, y.data(), saved)
	y.start(t)

	lost := y.submit(t, endless("lost", filepath.Join(y.Folder, "never")))
	y.awaitOutput(t, lost, "lost")

	// Frozen until the next job has the same id: the node cannot warn the server before.
	agent := y.agents["north"]
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	remove(t, y.data())
	copyTree(t, saved, y.data())
	y.start(t)

	next := y.submit(t, script("echo after"))
	if next != lost {
		t.Errorf("the first job after the restore is %s, want %s so that this test tests something", next, lost)
	}

	y.awaitState(t, next, job.Starting)

	if err := agent.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	y.checkOnly(t, next, "after")
	y.checkSetAside(t, "north", "j2.1", "lost")

	if events := y.events(t, "yard.restored"); len(events) != 1 {
		t.Errorf("events that tell of the restore: %v", events)
	}
}

// The defect D10: nodes have seen later epochs of a job than the database that was put back.
func TestAJobWithLaterEpochsRunsAfterARestore(t *testing.T) {
	t.Parallel()
	y := newYard(t, soonLost...)
	y.join(t, []string{"north"})

	until := filepath.Join(y.Folder, "until")
	id := y.submit(t, endless("tick", until))
	y.awaitState(t, id, job.Running)
	y.stop(t)

	db, saved := filepath.Join(y.data(), "yard.db"), filepath.Join(y.Folder, "saved.db")
	copyTree(t, db, saved)
	y.start(t)

	for range 6 {
		y.awaitState(t, id, job.Running)
		y.succeed(t, "pause", id)
		y.awaitState(t, id, job.Paused)
		y.succeed(t, "resume", id)
	}

	y.awaitState(t, id, job.Running)

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	remove(t, db, db+"-wal", db+"-shm")
	copyTree(t, saved, db)
	y.start(t)

	var d api.JobDetail
	y.await(t, "the job runs with a later epoch", func() bool {
		d = y.job(t, id)
		if d.State.Final() {
			t.Fatalf("the job ended as %s: %s", d.State, d.Reason)
		}

		return d.State == job.Running && d.Epoch > 7
	})

	if err := os.WriteFile(until, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	y.awaitState(t, id, job.Succeeded)
	y.succeed(t, "logs", id) // passes over the epochs that are not known
}
