package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

func TestErrorsAreToldWithRemedyAndCode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.refuse(
		"GET /api/v1/jobs/j404",
		http.StatusNotFound,
		api.Problem{
			Detail: "there is no job j404",
			Kind:   "not_found",
			Code:   "job_not_found",
			Remedy: "list them with: trainyard jobs",
		},
	)

	y.refuse(
		"POST /api/v1/jobs/j1/cancel",
		http.StatusConflict,
		api.Problem{Detail: "job j1 has already succeeded and cannot be cancelled", Kind: "conflict", Code: "job_state"},
	)

	y.refuse("GET /api/v1/nodes", http.StatusForbidden, api.Problem{Detail: "evil\x1b[2J", Kind: "denied", Code: "denied"})

	y.mux.HandleFunc(
		"GET /api/v1/users",
		func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
	)

	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"job", "j404"}, exit.NotFound, "error: there is no job j404\n  list them with: trainyard jobs\n"},
		{[]string{"cancel", "j1"}, exit.Refused, "error: cancel j1: job j1 has already succeeded and cannot be cancelled\n"},
		{[]string{"nodes"}, exit.Denied, "error: evil[2J\n"},
		{[]string{"users"}, exit.Unreachable, "error: the server answered 502 Bad Gateway\n"},
		{[]string{"job"}, exit.Usage, "error: missing argument: job\n  see: trainyard job --help\n"},
		{[]string{"job", "a", "b"}, exit.Usage, "error: unexpected argument \"b\"\n  see: trainyard job --help\n"},
		{[]string{"jobs", "x"}, exit.Usage, "error: trainyard jobs takes no arguments\n  see: trainyard jobs --help\n"},
		{
			[]string{"jbos"},
			exit.Usage,
			"error: unknown command \"trainyard jbos\", did you mean job or jobs?\n  see: trainyard --help\n",
		},
		{
			[]string{"tokens", "crate"},
			exit.Usage,
			"error: unknown command \"trainyard tokens crate\", did you mean create?\n  see: trainyard tokens --help\n",
		},
		{[]string{"jobs", "--nope"}, exit.Usage, "error: unknown flag: --nope\n  see: trainyard jobs --help\n"},
		{
			[]string{"jobs", "-o", "xml"},
			exit.Usage,
			"error: invalid argument \"xml\" for \"-o, --output\" flag: there is no format \"xml\": choose table, wide, json, yaml\n  see: trainyard jobs --help\n",
		},
		{
			[]string{"jobs", "--state", "sleeping"},
			exit.Usage,
			"error: --state must be pending, starting, running, suspended, recovering, pausing, paused, cancelling, succeeded, failed, failed_setup, out_of_memory, timeout, node_fail, preempted or cancelled, got \"sleeping\"\n  see: trainyard jobs --help\n",
		},
		{
			[]string{"jobs", "--since", "soon"},
			exit.Usage,
			"error: --since: value must be a duration, got \"soon\"; write a number and a unit, e.g. 90s, 10m, 6h or 2d\n  see: trainyard jobs --help\n",
		},
		{
			[]string{"logs", "j1", "--grep", "("},
			exit.Usage,
			"error: --grep must be a regular expression: missing closing ): \"(\"\n  see: trainyard logs --help\n",
		},
		{
			[]string{"logs", "j1", "--run", "x"},
			exit.Usage,
			"error: --run \"x\" is not a run of j1: write its number, e.g. --run 2\n  see: trainyard logs --help\n",
		},
		{
			[]string{"tokens", "create", "--join", "--scope", "read"},
			exit.Usage,
			"error: --class, --pool and --uses are for join tokens, --scope and --owner for others\n  see: trainyard tokens create --help\n",
		},
		{
			[]string{"jobs", "--context", "none"},
			exit.NotFound,
			"error: there is no login called \"none\"\n  list them with: trainyard context\n",
		},
		{
			[]string{"submit", "/none/job.yaml"},
			exit.NotFound,
			"error: the job file /none/job.yaml cannot be read: no such file or directory\n",
		},
	}

	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			if code := p.types(t.Context(), tt.args...); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}

			if diff := cmp.Diff(tt.want, p.stderr.String()); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}

			if p.stdout.String() != "" {
				t.Errorf("stdout %q", p.stdout)
			}
		})
	}
}

func TestAnErrorIsJSONWhereJSONWasAskedFor(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.refuse(
		"GET /api/v1/jobs/j404",
		http.StatusNotFound,
		api.Problem{Detail: "there is no job j404", Kind: "not_found", Code: "job_not_found", Remedy: "look"},
	)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "job", "j404", "-o", "json"); code != exit.NotFound {
		t.Errorf("exit code %d", code)
	}

	want := exit.Document{
		Detail:   "there is no job j404",
		Code:     "job_not_found",
		Kind:     "not_found",
		Remedy:   "look",
		ExitCode: exit.NotFound,
	}

	var got exit.Document
	if err := json.Unmarshal([]byte(p.stderr.String()), &got); err != nil {
		t.Fatalf("stderr %q: %v", p.stderr, err)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAYardThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := newPerson(t).at(t, y)
	y.Close()

	if code := p.types(t.Context(), "jobs"); code != exit.Unreachable ||
		!strings.Contains(p.stderr.String(), "error: cannot reach the server at https://127.0.0.1") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

func TestChangesOfJobsGoOnAfterOneThatFails(t *testing.T) {
	t.Parallel()
	changes := map[string]string{
		"cancel": "its program has its grace period to save a checkpoint",
		"kill":   "its processes are killed",
		"pause":  "its resources are released once it has stopped",
		"resume": "it is queued",
	}

	for verb, next := range changes {
		y := newYard(t)
		y.answer(
			"POST /api/v1/jobs/j1/"+verb,
			api.Job{ID: "j1", State: job.Cancelling, Status: job.StatusCancelling, Reason: "ada asked"},
		)

		y.refuse(
			"POST /api/v1/jobs/j2/"+verb,
			http.StatusConflict,
			api.Problem{Detail: "no", Kind: "conflict", Code: "job_state"},
		)

		y.refuse(
			"POST /api/v1/jobs/j3/"+verb,
			http.StatusNotFound,
			api.Problem{Detail: "none", Kind: "not_found", Code: "job_not_found"},
		)

		y.answer("POST /api/v1/jobs/j4/"+verb, api.Job{ID: "j4", State: job.Cancelled, Status: job.StatusCancelled})

		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), verb, "j2", "j1", "j3", "j4"); code != exit.Refused {
			t.Errorf("%s: exit code %d, want that of the first", verb, code)
		}

		if got, want := p.stdout.String(), "j1 CANCELLING: ada asked\nj4 CANCELLED\n"; got != want {
			t.Errorf("%s: stdout %q, want %q", verb, got, want)
		}

		for _, want := range []string{"  next: " + next, "error: " + verb + " j2: no\n", "error: " + verb + " j3: none\n"} {
			if !strings.Contains(p.stderr.String(), want) {
				t.Errorf("%s: stderr lacks %q: %s", verb, want, p.stderr)
			}
		}
	}
}

// TestPauseAsksBeforeWorkIsLost is newcomer 12: pause and drain threw the work of jobs away that have no checkpoint.
func TestPauseAsksBeforeWorkIsLost(t *testing.T) {
	t.Parallel()

	running := api.Job{ID: "j1", Name: "long", State: job.Running, NoCheckpoint: true, Nodes: []id.Node{"box2"},
		Started: new(ago(2 * time.Hour)), Ran: job.Duration(2 * time.Hour)}
	saved, queued := running, running
	saved.ID, saved.NoCheckpoint = "j2", false
	queued.ID, queued.State = "j3", job.Pending

	const warning = "j1 long has no checkpoint: its work so far (2h) is lost, and it starts again from the beginning."

	for name, tt := range map[string]struct {
		args   []string
		answer string // on a terminal; "" if nobody can be asked
		warns  bool
		done   bool
	}{
		"nobody can be asked":  {[]string{"pause", "j1"}, "", true, true},
		"the person says no":   {[]string{"pause", "j1"}, "n\n", true, false},
		"the person says yes":  {[]string{"pause", "j1"}, "y\n", true, true},
		"not asked":            {[]string{"pause", "--yes", "j1"}, "n\n", true, true},
		"it has a checkpoint":  {[]string{"pause", "j2"}, "n\n", false, true},
		"it does not run":      {[]string{"pause", "j3"}, "n\n", false, true},
		"to drain its node":    {[]string{"drain", "box2"}, "n\n", true, false},
		"to drain another one": {[]string{"drain", "box1"}, "n\n", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.list(running, saved)

			for _, j := range []api.Job{running, saved, queued} {
				y.answer("GET /api/v1/jobs/"+string(j.ID), api.JobDetail{Job: j})
			}

			y.answer("POST /api/v1/jobs/{job}/pause", running)
			y.answer("POST /api/v1/nodes/{node}/drain", someNodes()[1])

			p := newPerson(t).at(t, y)
			p.terminal, p.env.Stdin = tt.answer != "", strings.NewReader(tt.answer)
			code := p.types(t.Context(), tt.args...)

			done := slices.ContainsFunc(y.called(), func(call string) bool { return strings.HasPrefix(call, "POST ") })
			if done != tt.done || (code == exit.OK) != tt.done {
				t.Errorf("exit code %d, done: %v\n%s", code, done, p.stderr)
			}

			if strings.Contains(p.stderr.String(), warning) != tt.warns {
				t.Errorf("it says: %s", p.stderr)
			}
		})
	}
}

func TestAccountsAndNodesAreChangedAsAsked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	node := someNodes()[1]
	y.list()
	y.answer("POST /api/v1/nodes/box2/drain", node)
	y.answer("POST /api/v1/nodes/box2/uncordon", node)
	y.answer("POST /api/v1/nodes/box2/cordon", node)
	y.mux.HandleFunc("DELETE /api/v1/nodes/{node}", noContent)
	y.mux.HandleFunc("DELETE /api/v1/tokens/{token}", noContent)

	y.refuse(
		"GET /api/v1/users/new",
		http.StatusNotFound,
		api.Problem{Detail: "no", Kind: "not_found", Code: "user_not_found"},
	)

	y.answer("GET /api/v1/users/ada", api.User{ID: "ada", Role: tenant.Admin})
	y.answer("PUT /api/v1/users/{user}", api.User{ID: "ada", Role: tenant.Researcher})

	made := api.NewToken{
		Token: api.Token{ID: "abcdefghij", Kind: tenant.JoinToken, Expires: now.Add(3600e9)},
		Text:  "tyj_secret",
	}

	y.answer("POST /api/v1/tokens", made)
	token := accessToken(t)
	tests := []struct {
		args []string
		call string
		body string
		code int
	}{
		{[]string{"drain", "box2"}, "POST /api/v1/nodes/box2/drain", ``, exit.OK},
		{[]string{"cordon", "box2"}, "POST /api/v1/nodes/box2/cordon", ``, exit.OK},
		{[]string{"uncordon", "box2"}, "POST /api/v1/nodes/box2/uncordon", ``, exit.OK},
		{[]string{"nodes", "remove", "box2"}, "DELETE /api/v1/nodes/box2", ``, exit.OK},
		{[]string{"users", "add", "new", "--role", "admin"}, "PUT /api/v1/users/new", `{"role":"admin"}`, exit.OK},
		{[]string{"users", "add", "ada"}, "", ``, exit.Refused},
		{[]string{"users", "disable", "ada"}, "PUT /api/v1/users/ada", `{"role":"admin","disabled":true}`, exit.OK},
		{[]string{"users", "role", "ada", "researcher"}, "PUT /api/v1/users/ada", `{"role":"researcher"}`, exit.OK},
		{
			[]string{"tokens", "create", "--owner", "ada", "--scope", "read", "--ttl", "7d", "--note", "n"},
			"POST /api/v1/tokens",
			`{"kind":"access","owner":"ada","scope":"read","note":"n","ttl":"7d"}`,
			exit.OK,
		},
		{
			[]string{"tokens", "create", "--join", "--class", "reserved", "--pool", "p", "--uses", "4"},
			"POST /api/v1/tokens",
			`{"kind":"join","class":"reserved","pool":"p","uses":4}`,
			exit.OK,
		},
		{[]string{"tokens", "revoke", "abcdefghij"}, "DELETE /api/v1/tokens/abcdefghij", ``, exit.OK},
		{[]string{"tokens", "revoke", token}, "DELETE /api/v1/tokens/" + strings.Split(token, "_")[1], ``, exit.OK},
	}

	for _, tt := range tests {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), tt.args...); code != tt.code {
			t.Errorf("%v: exit code %d, want %d: %s", tt.args, code, tt.code, p.stderr)
			continue
		}

		if body, _ := y.sent(tt.call); string(body) != tt.body {
			t.Errorf("%v: sent %q, want %q", tt.args, body, tt.body)
		}

		if calls := y.called(); tt.call != "" && calls[len(calls)-1] != tt.call {
			t.Errorf("%v: called %q, want %q", tt.args, calls[len(calls)-1], tt.call)
		}

		if strings.Contains(p.stdout.String()+p.stderr.String(), token) {
			t.Errorf("%v: shows a secret", tt.args)
		}
	}

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "tokens", "create", "--join", "-q"); code != exit.OK ||
		p.stdout.String() != "tyj_secret\n" {
		t.Errorf("tokens create -q: %d %q", code, p.stdout)
	}

	p = newPerson(t).at(t, y)
	p.terminal, p.env.Stdin = true, strings.NewReader("n\n")

	before := len(y.called())
	if code := p.types(t.Context(), "nodes", "remove", "box1"); code != exit.Error || len(y.called()) != before {
		t.Errorf("a declined removal: exit code %d, calls %v", code, y.called()[before:])
	}
}

// pause and resume offered jobs that had ended.
func TestCompletionOffersJobsThatCanBeChanged(t *testing.T) {
	t.Parallel()

	for verb, want := range map[string]string{
		"resume": "states=paused", "pause": "states=pending&states=starting", "cancel": "states=pending&states=starting",
	} {
		y := full(t)
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), "__complete", verb, "j"); code != exit.OK {
			t.Fatalf("%s: exit code %d: %s", verb, code, p.stderr)
		}

		call := y.called()[0]
		if !strings.Contains(strings.ReplaceAll(call, "state=", "states="), want) || strings.Contains(call, "succeeded") ||
			strings.Contains(call, "paused") != (verb != "pause") || strings.Contains(call, "running") != (verb != "resume") {
			t.Errorf("%s asks for %s", verb, call)
		}
	}
}

func TestHelpAndCompletionWork(t *testing.T) {
	t.Parallel()
	y := full(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"completion", "bash"}, "bash completion V2 for trainyard"},
		{[]string{"__complete", "logs", "j"}, "j7\tRUNNING resnet50"},
		{[]string{"__complete", "jobs", "-o", ""}, "yaml"},
		{[]string{"__complete", "cordon", "b"}, "box1\t"},
		{[]string{"__complete", "nodes", "clear-error", "b"}, "box1\t"},
		{[]string{"__complete", "jobs", "--node", ""}, "box1\t"},
		{[]string{"__complete", "jobs", "--state", "r"}, "running\n"},
		{[]string{"__complete", "--context", ""}, "\tada at https://"},
		{[]string{"__complete", "context", "use", ""}, "\tada at https://"},
		{nil, "Submit a job file with submit"},
		{[]string{"--version"}, "trainyard 1.2.3\n"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), tt.args...); code != exit.OK || !strings.Contains(p.stdout.String(), tt.want) {
			t.Errorf("%v: exit code %d, stdout lacks %q: %s%s", tt.args, code, tt.want, p.stdout, p.stderr)
		}
	}
}
