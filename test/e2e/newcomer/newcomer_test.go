// Package newcomer_test is the day of a newcomer: what somebody who had never used Trainyard ran into, each
// finding as a test that fails where it comes back.
//
// All tests share one yard, started once: a server under the default policy, three nodes with fake GPUs of two
// kinds, an admin and two researchers, ada and grace, who type commands. README.md has the table of the findings
// and their tests, also of those that need no yard.
package newcomer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// yard is the yard of the day.
type yard struct {
	*yardtest.Yard

	admin, ada, grace person
	agents            map[string]*yardtest.Process
}

// day is started by TestMain.
var day *yard

// nodes are those of the yard: two alike and one with weaker GPUs.
var nodes = map[string]string{"gpu-1": "4xA100:80GB", "gpu-2": "2xV100:16GB", "gpu-3": "4xA100:80GB"}

// tariff makes a second of an A100 cost about a cent, so that a budget is used up soon.
const tariff = `nodes:
  - {gpu: A100, hourly: [0, 40, 80, 120, 160]}
  - {gpu: V100, hourly: [0, 10, 20]}
`

// patience bounds every wait; it is far longer than anything takes.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// run starts the yard, runs the tests and ends every process of the yard.
func run(m *testing.M) int {
	folder, err := yardtest.NewFolder("newcomer-")
	if err == nil {
		day, err = open(context.Background(), folder)
	}

	code := 1
	if err == nil {
		code = m.Run()
	}

	if folder != "" {
		err = errors.Join(err, yardtest.KillAll(folder))
	}

	switch {
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	case code == 0:
		_ = os.RemoveAll(folder) // it is in a folder that is cleared anyhow
	}

	if code != 0 {
		_, _ = fmt.Fprintln(os.Stderr, "all of the yard is kept in", folder)
	}

	return code
}

// open starts server and agents and adds the people.
func open(ctx context.Context, folder string) (*yard, error) {
	prices := filepath.Join(folder, "tariff.yaml")
	if err := os.WriteFile(prices, []byte(tariff), 0o600); err != nil {
		return nil, err
	}
	if err := yardtest.Build(folder, "trainyard/cmd/trainyard"); err != nil {
		return nil, err
	}

	y := &yard{agents: map[string]*yardtest.Process{}, Yard: &yardtest.Yard{
		Binary: filepath.Join(folder, "trainyard"), Folder: folder,
		Flags: []string{"--report-every", "200ms", "--retry-wait", "100ms", "--suspect-after", "3s", "--tariff", prices},
	}}
	if err := y.Open(ctx); err != nil {
		return nil, err
	}

	for _, p := range []struct {
		name string
		into *person
	}{{"admin", &y.admin}, {"ada", &y.ada}, {"grace", &y.grace}} {
		made, err := yardtest.NewPerson(y.Binary, folder, p.name)
		if err != nil {
			return nil, err
		}

		*p.into = person{made, p.name}
		if err := y.enter(ctx, *p.into); err != nil {
			return nil, err
		}
	}

	return y, y.join(ctx)
}

// enter logs a person in: the admin by the bootstrap token, the others by one that the admin makes for them.
func (y *yard) enter(ctx context.Context, p person) error {
	if p.name == "admin" {
		_, err := p.tries(ctx, "login", y.URL(), "--token", y.Bootstrap())
		return err
	}

	if _, err := y.admin.tries(ctx, "users", "add", p.name); err != nil {
		return err
	}

	token, err := y.admin.tries(ctx, "tokens", "create", "--owner", p.name, "-q")
	if err != nil {
		return err
	}

	bootstrap, err := auth.Parse(y.Bootstrap())
	if err != nil {
		return err
	}

	_, err = p.tries(ctx, "login", y.URL(), "--token", strings.TrimSpace(token.out), "--ca-hash", bootstrap.CAHash)

	return err
}

// join starts the agents and waits until they are nodes.
func (y *yard) join(ctx context.Context) error {
	token, err := y.admin.tries(ctx, "tokens", "create", "--join", "-q", "--uses", fmt.Sprint(len(nodes)))
	if err != nil {
		return err
	}

	for name, gpus := range nodes {
		y.agents[name], err = y.StartAgent(name, strings.TrimSpace(token.out), "--fake-gpus", gpus, "--cpus", "8")
		if err != nil {
			return err
		}
	}

	for end := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) {
		var page api.NodePage

		list, err := y.admin.tries(ctx, "nodes", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(list.out), &page)
		}

		if err == nil && len(page.Nodes) == len(nodes) {
			return nil
		}

		if time.Now().After(end) {
			return fmt.Errorf("%d of %d nodes have joined: %w", len(page.Nodes), len(nodes), err)
		}
	}
}

// person types commands.
type person struct {
	yardtest.Person

	name string
}

// result is how a command ended.
type result struct {
	out, err string
	code     int
}

func (r result) String() string {
	return fmt.Sprintf("code %d\nstandard output:\n%s\nstandard error:\n%s", r.code, r.out, r.err)
}

// tries runs a command that must end well, before there is a test to fail.
func (p person) tries(ctx context.Context, args ...string) (result, error) {
	var out, errs bytes.Buffer

	cmd := p.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs

	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: trainyard %s: %w\n%s%s", p.name, strings.Join(args, " "), err, &out, &errs)
	}

	r := result{out: out.String(), err: errs.String(), code: -1}
	if cmd.ProcessState != nil {
		r.code = cmd.ProcessState.ExitCode()
	}

	return r, err
}

// types runs a command to its end, however that is.
func (p person) types(t *testing.T, args ...string) result {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	r, err := p.tries(ctx, args...)
	if r.code < 0 || ctx.Err() != nil {
		t.Fatal(err)
	}

	return r
}

// exits runs a command that must end with this code.
func (p person) exits(t *testing.T, code int, args ...string) result {
	t.Helper()

	r := p.types(t, args...)
	if r.code != code {
		t.Fatalf("%s: trainyard %s: want code %d, got %s", p.name, strings.Join(args, " "), code, r)
	}

	return r
}

// succeeds runs a command that must end well.
func (p person) succeeds(t *testing.T, args ...string) result {
	t.Helper()

	return p.exits(t, 0, args...)
}

// begins starts a command in the background. wait returns how it ended.
func (p person) begins(t *testing.T, args ...string) (wait func() result) {
	t.Helper()

	done := make(chan result, 1)
	go func() {
		r, _ := p.tries(t.Context(), args...)
		done <- r
	}()

	return func() result {
		t.Helper()

		select {
		case r := <-done:
			return r
		case <-time.After(patience):
			t.Fatalf("%s: trainyard %s does not end", p.name, strings.Join(args, " "))
			return result{}
		}
	}
}

// submits submits a job file and returns the job's id. The job is cancelled when the test ends, so that the next one
// finds the nodes free.
func (p person) submits(t *testing.T, file string, args ...string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}

	name := strings.TrimSpace(p.succeeds(t, append([]string{"submit", "-y", "-q", path}, args...)...).out)
	if name == "" || strings.ContainsAny(name, " \n") {
		t.Fatalf("submit -q printed %q, not one id", name)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()

		// It may have ended by itself; then there is nothing to kill.
		if _, err := p.tries(ctx, "kill", name); err == nil {
			_, _ = p.tries(ctx, "wait", name)
		}
	})

	return name
}

// job asks for a job.
func (p person) job(t *testing.T, name string) api.JobDetail {
	t.Helper()

	var d api.JobDetail
	p.reads(t, &d, "job", name)

	return d
}

// reads runs a command with -o json and reads its answer.
func (p person) reads(t *testing.T, into any, args ...string) {
	t.Helper()

	r := p.succeeds(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		t.Fatalf("trainyard %s does not write JSON: %v\n%s", strings.Join(args, " "), err, r)
	}
}

// awaits waits until a job is in a state.
func (p person) awaits(t *testing.T, name string, want job.State) api.JobDetail {
	t.Helper()

	var d api.JobDetail

	await(t, fmt.Sprintf("job %s is %s", name, want), func() bool {
		d = p.job(t, name)
		if d.State.Final() && d.State != want {
			t.Fatalf("job %s ended as %s (%s), want %s", name, d.State, d.Reason, want)
		}

		return d.State == want
	})

	return d
}

// await asks again and again until something is true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()

	if !yardtest.Await(patience, ok) {
		t.Fatalf("it never came true: %s", what)
	}
}

// has fails the test unless a text has all parts.
func has(t *testing.T, what, text string, parts ...string) {
	t.Helper()

	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

// lacks fails the test if a text has one of the parts.
func lacks(t *testing.T, what, text string, parts ...string) {
	t.Helper()

	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%s has %q:\n%s", what, part, text)
		}
	}
}

// script is a job file that runs shell commands with few CPUs; more are further lines of the file.
func script(run string, more ...string) string {
	return "run: |\n  " + strings.ReplaceAll(run, "\n", "\n  ") + "\ngrace: 2s\n" + strings.Join(more, "\n") + "\n"
}

// few are resources that every node has room for.
const few = "resources: {cpus: 0.1}"
