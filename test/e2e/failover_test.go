package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/store/storetest"
	"trainyard/test/yardtest"
)

// rival is a second server of a yard.
type rival struct {
	*yardtest.Process
	url string
	log string
}

// newPair starts two servers on one PostgreSQL database and one data directory, of which the first leads.
func newPair(t *testing.T) (*yard, *rival) {
	t.Helper()
	database := storetest.StartPostgres(t)(t)
	y := newYard(t, "--store", database, "--lost-after", "60s", "--suspect-after", "20s", "--leader-lease", "2s")
	address, err := yardtest.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	r := &rival{url: "https://" + address, log: filepath.Join(y.Folder, "rival.log")}
	r.start(t, y)
	awaitText(t, r.url+"/readyz", "standby, leader is "+y.URL())

	return y, r
}

func (r *rival) start(t *testing.T, y *yard) {
	t.Helper()
	args := append([]string{
		"server", "--data", filepath.Join(y.Folder, "server"), "--listen", strings.TrimPrefix(r.url, "https://"),
	}, y.Flags...)

	var err error
	r.Process, err = yardtest.Start(exec.CommandContext(context.Background(), binary, args...), r.log)
	if err != nil {
		t.Fatal(err)
	}
}

// fetch returns what a server answers, without looking at its certificate.
func fetch(url string) string {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // a test on loopback
	}

	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}

	resp, err := client.Get(url)
	if err != nil {
		return err.Error()
	}

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}

	return strings.TrimSpace(string(text))
}

func awaitText(t *testing.T, url, want string) {
	t.Helper()

	got := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = fetch(url); got == want {
			return
		}
	}

	t.Fatalf("%s says %q, want %q", url, got, want)
}

// A standby answers for the leader, and leads when that is killed; the job goes on and its output is complete.
func TestAStandbyLeadsWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	y, r := newPair(t)
	y.join(t, []string{"north"})

	// The command line learns of the second server by asking the first.
	done := filepath.Join(y.Folder, "done")
	id := y.submit(t, counting(done))
	y.awaitOutput(t, id, "line 10\n")

	// The standby forwards: whoever asks it gets the leader's answer.
	bootstrap, err := auth.Parse(y.Bootstrap())
	if err != nil {
		t.Fatal(err)
	}

	other := newPerson(t, y.Folder, "other")
	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "-q").out)
	other.succeed(t, "login", r.url, "--token", token, "--ca-hash", bootstrap.CAHash)

	if got := other.succeed(t, "nodes").out; !strings.Contains(got, "north") {
		t.Errorf("nodes by way of the standby:\n%s", got)
	}

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	// The login names the server that is dead; the command line finds the other one.
	second := y.submit(t, "run: echo second\n")
	awaitText(t, r.url+"/readyz", "ready")
	awaitFile(t, done)

	// The first comes back as the standby of the second.
	if err := y.StartServer(); err != nil {
		t.Fatal(err)
	}

	awaitText(t, y.URL()+"/readyz", "standby, leader is "+r.url)
	y.checkCounted(t, id)
	y.succeed(t, "wait", second)
}

// A leader that is frozen has lost the lead when it wakes up, and says and stores nothing before it has noticed.
func TestAFrozenLeaderWakesUpAsAStandby(t *testing.T) {
	t.Parallel()
	y, r := newPair(t)
	y.join(t, []string{"north"})
	id := y.submit(t, counting(filepath.Join(y.Folder, "done")))
	y.awaitOutput(t, id, "line 1\n")

	if err := y.Server().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	awaitText(t, r.url+"/readyz", "ready")

	if err := y.Server().Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	// Never "ready" again, while the other leads.
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got := fetch(y.URL() + "/readyz")
		if got == "ready" {
			t.Fatal("two servers lead")
		}

		if got == "standby, leader is "+r.url {
			break
		}

		if time.Now().After(end) {
			t.Fatalf("it says %q", got)
		}
	}

	y.checkCounted(t, id)

	// And back again.
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}

	awaitText(t, y.URL()+"/readyz", "ready")
	y.succeed(t, "wait", y.submit(t, fmt.Sprintf("run: echo %s\n", "third")))
}
