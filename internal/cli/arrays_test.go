package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// someArray has elements in several states.
func someArray() api.Array {
	return api.Array{
		ID: "a3", Name: "sweep", Owner: "ada", Values: "0..9%2", Size: 10, Limit: 2, First: "j3", Last: "j12", Resources: "1 GPU",
		Submitted: time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC), Counts: []api.JobCount{
			{Status: job.StatusPending, Jobs: 6}, {Status: job.StatusRunning, Jobs: 2}, {Status: job.StatusFailed, Jobs: 2},
		},
	}
}

func TestAnArrayIsOneLineOfTheJobs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.arrays = []api.Array{someArray()}
	y.list(api.Job{ID: "j1", State: job.Pending, Status: job.StatusPending}, api.Job{ID: "j2", State: job.Running,
		Status: job.StatusRunning})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "jobs", "--columns", "id,name,status,reason"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	const want = "ID  NAME   STATUS   REASON\n" +
		"a3  sweep  RUNNING  10 elements: 6 PENDING, 2 RUNNING, 2 FAILED\n" +
		"j2  -      RUNNING  -\nj1  -      PENDING  -\n"
	if got := trimLines(p.stdout.String()); got != want {
		t.Errorf("the list is\n%s\nwant\n%s", got, want)
	}

	if called := strings.Join(y.called(), "\n"); !strings.Contains(called, "single=true") {
		t.Errorf("elements were asked for:\n%s", called)
	}

	y.answer("GET /api/v1/arrays/a3", someArray())
	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "jobs", "--array", "a3"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}
	if called := y.called(); !strings.Contains(called[len(called)-1], "array=a3") {
		t.Errorf("the elements were asked for by %v", called)
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "jobs", "--array", "sweep"); code == exit.OK {
		t.Error("a name was taken for the id of an array")
	}
}

func TestCommandsTakeTheIDOfAnArray(t *testing.T) {
	t.Parallel()

	ended := someArray()
	ended.Ended = &ended.Submitted
	ended.Counts = []api.JobCount{{Status: job.StatusFailed, Jobs: 1}, {Status: job.StatusCancelled, Jobs: 9}}

	y := newYard(t)
	y.answer("GET /api/v1/arrays/a3", ended)
	y.answer("POST /api/v1/arrays/a3/kill", api.ArrayChange{Array: ended, Changed: 9})
	code := 7
	y.list(api.Job{ID: "j4", Array: "a3", State: job.Failed, Status: job.StatusFailed, ExitCode: &code, Reason: "exit code 7"})

	for _, tt := range []struct {
		args   string
		code   int
		stdout string
	}{
		{"kill a3", exit.OK, "a3: 9 elements changed (1 FAILED, 9 CANCELLED)\n"},
		{"kill -q a3", exit.OK, "a3\n"},
		{"wait a3", 7, ""},
		{"job a3", exit.OK, "j3 to j12"},
	} {
		p := newPerson(t).at(t, y)
		if got := p.types(t.Context(), strings.Fields(tt.args)...); got != tt.code {
			t.Errorf("%s: exit code %d, want %d: %s", tt.args, got, tt.code, p.stderr)
		}
		if got := p.stdout.String(); !strings.Contains(got, tt.stdout) {
			t.Errorf("%s: %s\nwant %s", tt.args, got, tt.stdout)
		}
	}
}

// noSuchPath is how servers answer calls that they do not know.
var noSuchPath = api.Problem{
	Kind: string(fault.NotFound), Code: "no_such_path", Detail: "GET /api/v1/arrays does not exist", Status: http.StatusNotFound,
}

// A server of a release without arrays ignores the parameters array and single, and would run {{lr}} as it stands.
// Lists are what they were, and what needs an array or a parameter is refused before anything is submitted.
func TestAnOlderServerHasNoArrays(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.noArrays = true
	y.refuse("/", http.StatusNotFound, noSuchPath)
	y.list(api.Job{ID: "j1", State: job.Pending, Status: job.StatusPending})
	y.answer("POST /api/v1/jobs", api.SubmitReply{Jobs: []api.Job{{ID: "j2"}}})

	dir := t.TempDir()
	for name, text := range map[string]string{
		"plain": "run: train", "array": "run: train\narray: 0..9", "filled": "run: train {{lr}}\nparams: {lr: 0.1}",
		"variable": "run: train\nparams: {lr: 0.1}\nenv: {LR: '{{lr}}'}", "params": "run: train\nparams: {lr: 0.1}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for _, tt := range []struct {
		args string
		want string // "" if it is refused
	}{
		{"jobs --columns id,status", "ID  STATUS\nj1  PENDING\n"},
		{"jobs -q", "j1\n"},
		{"jobs --array a3", ""},
		{"jobs --array a3 --counts", ""},
		{"job a3", ""},
		{"cancel a3", ""},
		{"wait a3", ""},
		{"logs a3", ""},
		{"rerun a3", ""},
		{"submit -q " + filepath.Join(dir, "plain"), "j2\n"},
		{"submit -q " + filepath.Join(dir, "params"), "j2\n"},
		{"submit -q " + filepath.Join(dir, "array"), ""},
		{"submit -q " + filepath.Join(dir, "filled"), ""},
		{"submit -q " + filepath.Join(dir, "variable"), ""},
		{"submit -q --dry-run " + filepath.Join(dir, "array"), ""},
		{"submit -q --set lr=0.2 " + filepath.Join(dir, "params"), ""},
	} {
		p := newPerson(t).at(t, y)
		code := p.types(t.Context(), strings.Fields(tt.args)...)

		if got := trimLines(p.stdout.String()); got != tt.want || (code == exit.OK) != (tt.want != "") {
			t.Errorf("%s: exit code %d: %s\nwant %s", tt.args, code, got, tt.want)
		}

		const refusal = "the server is of an older release, without arrays and parameters"
		if got := p.stderr.String(); strings.Contains(got, refusal) != (tt.want == "") {
			t.Errorf("%s: it says %s", tt.args, got)
		}
	}
}
