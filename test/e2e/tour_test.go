package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

func TestTheBootstrapTokenWorksOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	who := api.Whoami{}
	y.decode(t, &who, "whoami", "-o", "json")
	if who.User != "admin" || who.Role != "admin" {
		t.Errorf("logged in as %+v", who)
	}

	other := newPerson(t, y.Folder, "other")
	r := other.exits(t, 106, "login", y.URL(), "--token", y.Bootstrap())
	if !strings.Contains(r.err, "used") {
		t.Errorf("the second login does not say that the token is used up: %s", r)
	}

	other.exits(t, 106, "jobs")
}

func TestAResearcherSeesAndTouchesTheirOwnJobsAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	y.succeed(t, "users", "add", "ada")
	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "--owner", "ada", "-q").out)
	ada := newPerson(t, y.Folder, "ada")
	ada.succeed(t, "login", y.URL(), "--token", token, "--yes")
	mine := y.submit(t, script("sleep 10000"))
	hers := ada.submit(t, script("echo hello"))
	ada.succeed(t, "wait", hers)

	if got := strings.TrimSpace(ada.succeed(t, "jobs", "-q").out); got != hers {
		t.Errorf("ada sees the jobs %q, want %q", got, hers)
	}

	for _, args := range [][]string{{"job", mine}, {"logs", mine}, {"cancel", mine}} {
		if r := ada.run(t, args...); r.code != 102 && r.code != 106 {
			t.Errorf("ada may %v: %s", args, r)
		}
	}

	for _, args := range [][]string{{"users", "add", "eve"}, {"drain", "north"}, {"tokens", "create", "--join"}, {"tokens", "create", "--owner", "admin"}} {
		ada.exits(t, 106, args...)
	}
}

func TestAJoinTokenLetsAsManyMachinesInAsItSays(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := strings.TrimSpace(y.succeed(t, "tokens", "create", "--join", "-q").out)
	first, err := y.StartAgent("north", token)
	if err != nil {
		t.Fatal(err)
	}

	y.await(t, "north is a node", func() bool { return strings.Contains(y.succeed(t, "nodes", "-q").out, "north") })

	second, err := y.StartAgent("south", token)
	if err != nil {
		t.Fatal(err)
	}

	if code, err := second.Wait(patience); err != nil || code != 106 {
		t.Errorf("the second machine ended with code %d (%v), want 106", code, err)
	}

	if text, err := os.ReadFile(y.AgentLog("south")); err != nil ||
		!strings.Contains(string(text), "already been used up") {
		t.Errorf("the second machine says %s (%v)", text, err)
	}

	if got := strings.Fields(y.succeed(t, "nodes", "-q").out); len(got) != 1 {
		t.Errorf("nodes: %v", got)
	}

	if code, err := first.Stop(patience); err != nil || code != 0 {
		t.Errorf("the agent ended with code %d (%v) when asked to", code, err)
	}
}

func TestEveryListIsGoodJSON(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	id := y.submit(t, "name: hello\n"+script("echo hello"))
	y.succeed(t, "wait", id)

	for _, line := range []string{
		"jobs", "jobs --all", "job " + id, "logs " + id, "nodes", "nodes north", "users", "users admin", "tokens", "events", "whoami",
		"version", "context", "cordon north", "drain north", "uncordon north", "quota", "usage", "usage --by researcher", "tokens create", "users add ada",
	} {
		r := y.succeed(t, append(strings.Fields(line), "-o", "json")...)
		for decoder := json.NewDecoder(strings.NewReader(r.out)); decoder.More(); {
			var v any
			if err := decoder.Decode(&v); err != nil {
				t.Errorf("trainyard %s -o json: %v\n%s", line, err, r)
				break
			}
		}

		if strings.TrimSpace(r.out) == "" {
			t.Errorf("trainyard %s -o json prints nothing", line)
		}
	}

	r := y.exits(t, 102, "job", "j999", "-o", "json")

	var problem struct {
		Code     string `json:"code"`
		ExitCode int    `json:"exit_code"`
	}

	if err := json.Unmarshal([]byte(r.err), &problem); err != nil || problem.Code != "job_not_found" ||
		problem.ExitCode != 102 {
		t.Errorf("the error as JSON is %s (%v)", r.err, err)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})
	bad := y.write(t, "run: a\nresources: {gpsu: 1}\n")
	good := y.write(t, script("echo fine"))
	failing := y.write(t, script("echo broken", "exit 7"))
	stranger := newPerson(t, y.Folder, "stranger")
	tests := []struct {
		who  person
		code int
		args string
		says string
	}{
		{y.person, 0, "validate " + good, "valid"},
		{y.person, 104, "validate " + bad, "did you mean resources.gpus"},
		{y.person, 104, "submit -y " + bad, "line 2, column 13"},
		{y.person, 2, "submit", ""},
		{y.person, 2, "jobs --nonsense", "unknown flag"},
		{y.person, 2, "jbos", "did you mean job or jobs"},
		{y.person, 102, "job j999", "job j999 not found"},
		{y.person, 102, "nodes nowhere", ""},
		{stranger, 106, "jobs", "not logged in"},
		{y.person, 0, "submit -y " + good, ""},
		{y.person, 7, "submit -y " + failing, ""},
		{y.person, 0, "run -y --cpus 0.1 -- echo hi", ""},
	}

	for _, tt := range tests {
		r := tt.who.run(t, strings.Fields(tt.args)...)
		if r.code != tt.code || !strings.Contains(r.out+r.err, tt.says) {
			t.Errorf("trainyard %s: want code %d and %q, got %s", tt.args, tt.code, tt.says, r)
		}
	}

	if err := y.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	r := y.exits(t, 105, "jobs")
	if !strings.Contains(r.err, "cannot reach the server") {
		t.Errorf("with no server: %s", r)
	}
}

func TestWhyAJobWaits(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--refuse-impossible", "no")
	y.join(t, []string{"north"}, "--fake-gpus", "1xA100:80GB")
	holder := y.submit(t, "name: holder\nrun: sleep 10000\nresources: {gpus: 1, cpus: 0.1}\n")
	y.awaitState(t, holder, job.Running)
	waits := y.submit(t, "name: waits\nrun: echo hi\nresources: {gpus: 1, cpus: 0.1}\n")
	never := y.submit(t, "name: never\nrun: echo hi\nresources: {gpus: 8, cpus: 0.1}\n")

	d := y.job(t, waits)
	if d.State != job.Pending || d.Why == nil || d.Why.Blocker != "resources" || len(d.Why.Holders) != 1 ||
		string(d.Why.Holders[0].Job) != holder {
		t.Errorf("why it waits: %s %+v", d.State, d.Why)
	}

	if d := y.job(t, never); d.Why == nil || d.Why.Blocker != "no_fit" || d.Why.Sentence == "" {
		t.Errorf("why it will never start: %+v", d.Why)
	}

	if r := y.succeed(t, "job", waits); !strings.Contains(r.out, holder) {
		t.Errorf("job does not say who holds the GPU: %s", r)
	}

	if r := y.succeed(t, "nodes"); !strings.Contains(r.out, "fake") {
		t.Errorf("the list of nodes does not say that its GPUs are fake: %s", r)
	}

	y.succeed(t, "cancel", holder)
	y.succeed(t, "wait", waits)
	y.succeed(t, "cancel", never)
	y.exits(t, 103, "wait", never)
}

func TestAJobThatNothingCouldEverRunIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"}, "--fake-gpus", "1xA100:80GB")

	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("run: echo hi\nresources: {gpus: 8, cpus: 0.1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	r := y.exits(t, 104, "submit", "-y", "-q", file)
	if !strings.Contains(r.err, "no node has 8 GPUs") ||
		!strings.Contains(r.err, "the largest node is north") {
		t.Errorf("it does not say why, and what would fit: %s", r)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.join(t, []string{"north"})

	r := y.succeed(t, "submit", "--dry-run", y.write(t, script("echo hi")))
	if !strings.Contains(r.out+r.err, "north") {
		t.Errorf("the plan does not say where the job would run: %s", r)
	}

	var page api.JobPage
	y.decode(t, &page, "jobs", "--all", "-o", "json")
	if len(page.Jobs) != 0 {
		t.Errorf("there are jobs: %+v", page.Jobs)
	}

	if entries, err := os.ReadDir(filepath.Join(y.AgentData("north"), "agent", "runs")); err != nil || len(entries) != 0 {
		t.Errorf("there are runs: %v (%v)", entries, err)
	}
}
