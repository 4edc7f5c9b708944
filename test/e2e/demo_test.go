package e2e_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// startDemo starts a demo yard and waits until it is up.
func startDemo(t *testing.T, p person, data, address, log string) *yardtest.Process {
	t.Helper()

	up, err := yardtest.Start(p.Command(t.Context(), "up", "--demo", "--data", data, "--listen", address), log)
	if err != nil {
		t.Fatal(err)
	}

	p.await(t, "the demo is up", func() bool {
		select {
		case <-up.Gone():
			t.Fatalf("the demo ended: %s", yardtest.Tail(log, 30))
		default:
		}

		return strings.Contains(yardtest.Tail(log, 100), "Ctrl-C stops the yard")
	})

	return up
}

func TestDemoYard(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	p := newPerson(t, folder, "me")
	data, log := filepath.Join(folder, "demo"), filepath.Join(folder, "up.log")

	address, err := yardtest.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	up := startDemo(t, p, data, address, log)
	if text := yardtest.Tail(log, 100); !strings.Contains(text, "DEMO: ") || !strings.Contains(text, "simulated") {
		t.Errorf("up does not say that this is a demo:\n%s", text)
	}

	checkLabels(t, p)
	checkFigures(t, p)

	// What somebody submits is simulated, too, and ends by itself.
	mine := "name: mine\nrun: python mine.py\nexpect: 5s\nresources: {gpus: 1}\npriority: 100\n"
	id := p.submit(t, mine, "--context", "demo")
	p.awaitState(t, id, job.Succeeded)

	before := runningJob(t, p)

	if code, err := up.Stop(patience); err != nil || code != 0 {
		t.Fatalf("up ended with code %d (%v): %s", code, err, yardtest.Tail(log, 30))
	}

	refused := p.exits(t, 104, "up", "--data", data, "--listen", address)
	if !strings.Contains(refused.err, "demo yard") || !strings.Contains(refused.err, "--data") {
		t.Errorf("a real yard in the folder of a demo is refused with %s", refused)
	}

	// It goes on where it was.
	again := startDemo(t, p, data, address, filepath.Join(folder, "again.log"))

	var d api.JobDetail
	p.decode(t, &d, "--context", "demo", "job", before, "-o", "json")
	if d.State != job.Running && !d.State.Final() {
		t.Errorf("job %s ran before the restart and is %s now (%s)", before, d.State, d.Reason)
	}

	if code, err := again.Stop(patience); err != nil || code != 0 {
		t.Errorf("up ended with code %d (%v)", code, err)
	}
}

// runningJob returns a job that runs.
func runningJob(t *testing.T, p person) string {
	t.Helper()

	var list api.JobPage
	p.decode(t, &list, "--context", "demo", "jobs", "-o", "json")

	for i := range list.Jobs {
		if list.Jobs[i].State == job.Running {
			return string(list.Jobs[i].ID)
		}
	}

	t.Fatal("no job runs")

	return ""
}

// checkLabels looks at whether commands say that the yard is a demo.
func checkLabels(t *testing.T, p person) {
	t.Helper()

	for _, args := range [][]string{{"jobs"}, {"nodes"}, {"whoami"}, {"usage"}} {
		r := p.succeed(t, append([]string{"--context", "demo"}, args...)...)
		if !strings.Contains(r.err, "demo yard") {
			t.Errorf("trainyard %s does not say that this is a demo: %s", args[0], r)
		}
	}

	var who api.Whoami
	p.decode(t, &who, "--context", "demo", "whoami", "-o", "json")
	if !who.Demo || who.User != "researcher-1" {
		t.Errorf("whoami says %+v", who)
	}
}

// checkFigures holds what pages show against each other.
func checkFigures(t *testing.T, p person) {
	t.Helper()

	var nodes api.NodePage
	p.decode(t, &nodes, "--context", "demo", "nodes", "-o", "json")

	classes, broken := map[string]int{}, 0
	for i := range nodes.Nodes {
		n := &nodes.Nodes[i]
		classes[string(n.Class)]++

		for _, g := range n.GPUs {
			if g.State == "error" {
				broken++
			}
		}
	}

	if classes["local"] != 3 || classes["reserved"] != 1 || classes["ondemand"] == 0 || broken == 0 {
		t.Errorf("the nodes are %v with %d broken GPUs", classes, broken)
	}

	var report api.UsageReport
	p.decode(t, &report, "--context", "demo", "usage", "--by", "researcher", "--last", "40d", "-o", "json")

	sum := 0.0
	for i := range report.Rows {
		sum += report.Rows[i].Cost
	}

	if report.Total.Cost <= 100 || math.Abs(sum-report.Total.Cost) > 0.01*report.Total.Cost {
		t.Errorf("the rows come to $%.2f, the total to $%.2f", sum, report.Total.Cost)
	}
}

func TestDemoIsKeptApart(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	p := newPerson(t, folder, "me")

	real := filepath.Join(folder, "real")
	if err := os.MkdirAll(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(real, "yard.db"), []byte("a yard"), 0o600); err != nil {
		t.Fatal(err)
	}

	r := p.exits(t, 104, "up", "--demo", "--data", real)
	if !strings.Contains(r.err, "not the folder of a demo yard") {
		t.Errorf("the folder of a real yard is refused with %s", r)
	}

	entries, err := os.ReadDir(real)
	if err != nil || len(entries) != 1 || entries[0].Name() != "yard.db" {
		t.Errorf("the folder of a real yard has %v (%v)", entries, err)
	}

	if r := p.exits(t, 104, "up", "--demo", "--store", "postgres://a@b/c"); !strings.Contains(r.err, "--store") {
		t.Errorf("a demo in a database of others is refused with %s", r)
	}
}
