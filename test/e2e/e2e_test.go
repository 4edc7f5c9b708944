// Package e2e_test uses the real binary as people do: it starts servers and
// agents as processes and types commands.
//
// e2e_test.go starts yards and runs commands, examples_test.go runs every
// example, tour_test.go follows a new user from the first login on,
// jobs_test.go changes jobs that run, arrays_test.go submits arrays while the server is killed,
// nodes_test.go drains and loses nodes,
// checkpoints_test.go lets jobs continue on other nodes,
// copies_test.go copies the data directory of an agent, upgrade_test.go replaces the build of one,
// outage_test.go takes the server away, ship_test.go ships working directories, s3_test.go keeps blobs in a bucket,
// restore_test.go puts older copies of the database back, config_test.go gives
// settings, up_test.go starts a whole yard by one command, demo_test.go a simulated one,
// simulate_test.go asks what would happen and why something did, hybrid*_test.go provisions
// machines, checks their costs and runs the demo, forecast_test.go holds forecasts of real
// trainings against what happened, forecast_life_test.go follows their curves over faults,
// pauses and restarts.
package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// binary is the real binary.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "e2e-bin-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }() // it is in a folder that is cleared anyhow

		err = yardtest.Build(folder, "trainyard/cmd/trainyard")
	}

	if err == nil {
		// The tests mostly wait, so more of them than there are cores can go on at once.
		err = flag.Set("test.parallel", "6")
	}

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}

	binary = filepath.Join(folder, "trainyard")

	return m.Run()
}

// patience bounds every wait; it is far longer than anything takes.
const patience = 8 * time.Minute

// yard is a real yard with a person at a terminal.
type yard struct {
	*yardtest.Yard
	person
	agents map[string]*yardtest.Process
}

// person has logins of their own and types commands.
type person struct {
	yardtest.Person
}

// quick are settings for tests: everything happens sooner.
var quick = []string{"--report-every", "200ms", "--retry-wait", "100ms"}

// newFolder makes a folder whose processes end, and which goes, with the test.
// It is kept if the test fails.
func newFolder(t *testing.T) string {
	t.Helper()
	folder, err := yardtest.NewFolder("e2e-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := yardtest.KillAll(folder); err != nil {
			t.Errorf("clean up: %v", err)
		}

		if t.Failed() {
			t.Logf("all of the yard is kept in %s", folder)
			return
		}

		if err := os.RemoveAll(folder); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})

	return folder
}

// newYard starts a server with these flags and logs a person in as admin.
func newYard(t *testing.T, flags ...string) *yard {
	t.Helper()

	return openYard(t, &yardtest.Yard{Flags: flags})
}

// openYard is newYard for a yard that has more than flags.
func openYard(t *testing.T, real *yardtest.Yard) *yard {
	t.Helper()
	folder := newFolder(t)
	y := &yard{Yard: real, agents: map[string]*yardtest.Process{}, person: newPerson(t, folder, "admin")}
	y.Binary, y.Folder, y.Flags = binary, folder, append(append([]string{}, quick...), y.Flags...)
	if err := y.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	y.succeed(t, "login", y.URL(), "--token", y.Bootstrap())

	return y
}

func newPerson(t *testing.T, folder, name string) person {
	t.Helper()
	p, err := yardtest.NewPerson(binary, folder, name)
	if err != nil {
		t.Fatal(err)
	}

	return person{p}
}

// join starts agents and waits until they are nodes.
func (y *yard) join(t *testing.T, names []string, flags ...string) {
	t.Helper()
	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "--join", "-q", "--uses", fmt.Sprint(len(names))).out)
	for _, name := range names {
		p, err := y.StartAgent(name, token, flags...)
		if err != nil {
			t.Fatal(err)
		}

		y.agents[name] = p
	}

	y.await(t, fmt.Sprintf("%v are idle", names), func() bool {
		var page api.NodePage
		y.decode(t, &page, "nodes", "-o", "json")

		idle := map[string]bool{}
		for _, n := range page.Nodes {
			idle[string(n.ID)] = n.State == "idle"
		}

		return !slices.ContainsFunc(names, func(name string) bool { return !idle[name] })
	})
}

// result is how a command ended.
type result struct {
	out, err string
	code     int
}

func (r result) String() string {
	return fmt.Sprintf("code %d\nstandard output:\n%s\nstandard error:\n%s", r.code, r.out, r.err)
}

// run runs a command to its end.
func (p person) run(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	var out, errs bytes.Buffer
	cmd := p.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("trainyard %s: %v %v\n%s%s", strings.Join(args, " "), err, ctx.Err(), &out, &errs)
	}

	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// exits runs a command that must end with this code.
func (p person) exits(t *testing.T, code int, args ...string) result {
	t.Helper()
	r := p.run(t, args...)
	if r.code != code {
		t.Fatalf("trainyard %s: want code %d, got %s", strings.Join(args, " "), code, r)
	}

	return r
}

// succeed runs a command that must end well.
func (p person) succeed(t *testing.T, args ...string) result {
	t.Helper()
	return p.exits(t, 0, args...)
}

// decode runs a command with -o json and reads its answer. A server whose store hangs, as on a busy machine, is asked
// again: nothing is changed by that.
func (p person) decode(t *testing.T, into any, args ...string) {
	t.Helper()
	r := p.run(t, args...)

	for began := time.Now(); strings.Contains(r.err, `"code":"store_down"`) && time.Since(began) < patience; {
		time.Sleep(100 * time.Millisecond)
		r = p.run(t, args...)
	}

	if r.code != 0 {
		t.Fatalf("trainyard %s: want code 0, got %s", strings.Join(args, " "), r)
	}

	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		t.Fatalf("trainyard %s does not write JSON: %v\n%s", strings.Join(args, " "), err, r)
	}
}

// submit writes a job file, hands it in and returns the job's id.
func (p person) submit(t *testing.T, file string, args ...string) string {
	t.Helper()
	path := p.write(t, file)
	id := strings.TrimSpace(p.succeed(t, append([]string{"submit", "-y", "-q", path}, args...)...).out)
	if id == "" || strings.ContainsAny(id, " \n") {
		t.Fatalf("submit -q printed %q, not one id", id)
	}

	return id
}

// write writes a file into a new folder of the person.
func (p person) write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// script is a job file that runs a shell script.
func script(lines ...string) string {
	return "run: |\n  " + strings.Join(lines, "\n  ") + "\nresources: {cpus: 0.5}\ngrace: 5s\n"
}

// job asks for a job.
func (p person) job(t *testing.T, id string) api.JobDetail {
	t.Helper()
	var d api.JobDetail
	p.decode(t, &d, "job", id, "-o", "json")

	return d
}

// awaitState waits until a job is in a state.
func (p person) awaitState(t *testing.T, id string, want job.State) api.JobDetail {
	t.Helper()
	var d api.JobDetail
	p.await(t, fmt.Sprintf("job %s is %s", id, want), func() bool {
		d = p.job(t, id)
		if d.State.Final() && d.State != want {
			t.Fatalf("job %s ended as %s (%s), want %s", id, d.State, d.Reason, want)
		}

		return d.State == want
	})

	return d
}

// awaitOutput waits until a job has printed a text.
func (p person) awaitOutput(t *testing.T, id, text string) {
	t.Helper()
	p.await(t, fmt.Sprintf("job %s has printed %q", id, text), func() bool {
		return strings.Contains(p.succeed(t, "logs", id).out, text)
	})
}

// await asks again and again until something is true.
func (p person) await(t *testing.T, what string, true func() bool) {
	t.Helper()

	if !yardtest.Await(patience, true) {
		t.Fatalf("it never came true: %s", what)
	}
}

// awaitFile waits until a file is there.
func awaitFile(t *testing.T, path string) string {
	t.Helper()

	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil {
			return string(text)
		}

		if time.Now().After(end) {
			t.Fatalf("%s never came", path)
		}
	}
}
