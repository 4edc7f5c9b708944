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
	"trainyard/internal/job"
)

// Newcomer 13: cancel with a list in which jobs have ended is no error, and says what became of all of them.
func TestCancelTakesJobsThatHaveEnded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("POST /api/v1/jobs/j1/cancel", api.Job{ID: "j1", State: job.Cancelled, Status: job.StatusCancelled})
	y.refuse("POST /api/v1/jobs/j2/cancel", http.StatusConflict,
		api.Problem{Detail: "job j2 has already succeeded", Kind: "conflict", Code: "job_state"})
	y.refuse("POST /api/v1/jobs/j2/pause", http.StatusConflict,
		api.Problem{Detail: "job j2 has already succeeded", Kind: "conflict", Code: "job_state"})
	y.answer("GET /api/v1/jobs/j2", api.JobDetail{Job: api.Job{ID: "j2", State: job.Succeeded, Status: job.StatusSucceeded}})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "cancel", "j1", "j2"); code != exit.OK {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	if got, want := p.stdout.String(), "j1 CANCELLED\nj2 had already ended (SUCCEEDED)\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}

	if got, want := p.stderr.String(), "2 jobs: 1 CANCELLED, 1 had already ended\n"; got != want {
		t.Errorf("stderr %q, want %q", got, want)
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "pause", "j2"); code != exit.Refused {
		t.Errorf("pause of an ended job: exit code %d", code)
	}
}

// Newcomer 13: jobs are chosen by name, or all of one's own, over all pages and after a question.
func TestCancelByNameAsksAndTakesAllPages(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/whoami", api.Whoami{User: "ada"})
	y.mux.HandleFunc("GET /api/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		page := api.JobPage{Jobs: []api.Job{{ID: "j9", Name: "sweep-b", State: job.Running, Status: job.StatusRunning}}, Next: "j9"}
		if r.URL.Query().Get("cursor") == "j9" {
			page = api.JobPage{Jobs: []api.Job{{ID: "j8", Name: "sweep-a", State: job.Pending, Status: job.StatusPending}}}
		}

		reply(w, http.StatusOK, page)
	})
	y.answer("POST /api/v1/jobs/j8/kill", api.Job{ID: "j8", State: job.Cancelled, Status: job.StatusCancelled})
	y.answer("POST /api/v1/jobs/j9/kill", api.Job{ID: "j9", State: job.Cancelling, Status: job.StatusCancelling})

	p := newPerson(t).at(t, y)
	p.terminal = true
	p.env.Stdin = strings.NewReader("n\n")

	if code := p.types(t.Context(), "kill", "--name", "sweep"); code != exit.Error {
		t.Errorf("exit code %d after no", code)
	}

	for _, want := range []string{"j9 sweep-b ", "j8 sweep-a ", "Kill 2 jobs? [Y/n]", "Nothing was changed."} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%q is not in\n%s", want, p.stderr)
		}
	}

	calls := y.called()
	if slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "POST") }) {
		t.Errorf("something was killed in spite of the answer no: %v", calls)
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "kill", "--all", "-y"); code != exit.OK {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	if got, want := p.stdout.String(), "j9 CANCELLING\nj8 CANCELLED\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}

	if !strings.Contains(p.stderr.String(), "2 jobs: 1 CANCELLING, 1 CANCELLED\n") {
		t.Errorf("no summary in %q", p.stderr)
	}

	list := y.called()[1]
	for _, want := range []string{"owner=ada", "name=sweep", "state=running", "state=paused"} {
		if !strings.Contains(list, want) {
			t.Errorf("%s does not ask for %s", list, want)
		}
	}

	if strings.Contains(list, "state=succeeded") {
		t.Errorf("%s asks for jobs that have ended", list)
	}

	for _, args := range [][]string{
		{"cancel"}, {"cancel", "j1", "--all"}, {"cancel", "--all", "--name", "x"}, {"cancel", "--owner", "bob", "j1"},
	} {
		if code := newPerson(t).at(t, y).types(t.Context(), args...); code != exit.Usage {
			t.Errorf("%v: exit code %d, want %d", args, code, exit.Usage)
		}
	}
}

// What a command needs over some time it takes by its id: a name may mean another job later on.
func TestNamesAreResolvedOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ended := api.JobDetail{Job: api.Job{ID: "j7", State: job.Succeeded, Status: job.StatusSucceeded, Ended: new(now)}}
	y.answer("GET /api/v1/jobs/train@last", ended)
	y.answer("GET /api/v1/jobs/j7", ended)
	y.answer("GET /api/v1/jobs/j7/logs", api.LogPage{Ended: true})
	y.answer("GET /api/v1/jobs/j7/checkpoints", api.CheckpointList{})
	y.answer("GET /api/v1/jobs/j7/metrics", api.MetricList{})
	y.answer("GET /api/v1/events", api.EventPage{})

	for _, args := range [][]string{
		{"logs", "train@last", "--grep", "x"}, {"wait", "train@last"}, {"checkpoints", "train@last"},
		{"metrics", "train@last"}, {"events", "--job", "train@last"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Errorf("%v: exit code %d: %s", args, code, p.stderr)
		}
	}

	for _, want := range []string{"/j7/logs?", "/j7/checkpoints", "/j7/metrics", "job=j7"} {
		if !slices.ContainsFunc(y.called(), func(c string) bool { return strings.Contains(c, want) }) {
			t.Errorf("%s was not called: %v", want, y.called())
		}
	}
}

// Newcomer 22 and (c) 14: jobs by any word of STATUS, in the columns and the order that are asked for.
func TestJobsAreShownAsAsked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	jobs := someJobs()
	jobs[1].Cost, jobs[2].Cost = 1.5, 3
	y.answer("GET /api/v1/jobs", api.JobPage{
		Jobs: jobs, Counts: []api.JobCount{{Status: job.StatusRunning, Jobs: 2}, {Status: job.StatusOutOfMemory, Jobs: 1}},
	})

	for args, want := range map[string]string{
		"--columns id,cost --sort=-cost --all":     "ID  COST\nj6  $3.00\nj7  $1.50\nj9  -\n",
		"--columns name,id --sort owner,-id --all": "NAME          ID\nllama-sft     j9\nevil[2J name  j6\nresnet50      j7\n",
		"--columns id --sort duration --all":       "ID\nj9\nj7\nj6\n",
		"--columns id --sort status --ended":       "ID\nj9\nj7\nj6\n",
		"--columns id --state OUT_OF_MEMORY --all": "ID\nj9\nj7\nj6\n",
		"--counts": "STATUS         JOBS\nRUNNING        2\nOUT_OF_MEMORY  1\nall            3\n",
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), append([]string{"jobs"}, strings.Fields(args)...)...); code != exit.OK {
			t.Errorf("%s: exit code %d: %s", args, code, p.stderr)
		}

		if diff := cmp.Diff(want, trimLines(p.stdout.String())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}

	called := strings.Join(y.called(), "\n")
	for _, want := range []string{
		"state=out_of_memory", "state=succeeded&state=failed&state=cancelled", "counts=true",
		"sort=-cost&state=succeeded", // all that have ended, not the newest of them
	} {
		if !strings.Contains(called, want) {
			t.Errorf("%s was not asked for:\n%s", want, called)
		}
	}

	for _, args := range []string{"--columns size", "--sort size", "--active --ended", "--active --state paused", "--counts -q"} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), append([]string{"jobs"}, strings.Fields(args)...)...); code != exit.Usage {
			t.Errorf("%s: exit code %d, want %d", args, code, exit.Usage)
		}
	}
}

// trimLines takes the blanks off the ends of lines.
func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}

	return strings.Join(lines, "\n")
}

// A job is submitted again with the files it had, with its own variables, and with the changes that are asked for.
func TestAJobIsRunAgain(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	past := now.Add(-time.Hour)
	spec := func(env string) json.RawMessage {
		text, err := json.Marshal(job.Spec{
			Name: "train", Run: "python train.py", Workdir: ".", Params: map[string]any{"lr": 0.1}, Place: job.PlaceAny,
			Objective: job.ObjectiveBalanced, Deadline: &past, Needs: []string{"prep", "data@last"}, After: job.AfterAny, Env: map[string]string{"LR": env},
			Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
		})
		if err != nil {
			t.Fatal(err)
		}

		return text
	}

	d.mux.HandleFunc("GET /api/v1/jobs/train@last", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, api.JobDetail{Job: api.Job{ID: "j3"}, Spec: spec("***"), Workdir: "abc"})
	})
	d.mux.HandleFunc("GET /api/v1/jobs/j3", func(w http.ResponseWriter, r *http.Request) {
		env := "***"
		if r.URL.Query().Get("env") == "true" {
			env = "0.1"
		}

		reply(w, http.StatusOK, api.JobDetail{Job: api.Job{ID: "j3"}, Spec: spec(env), Workdir: "abc"})
	})

	p := newPerson(t).at(t, d.yard)
	if code := p.types(t.Context(), "rerun", "train@last", "-d", "--set", "params.lr=0.3", "--set", "name=second"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	for _, want := range []string{"the deadline of j3 has passed and is left out", "j3 needed prep of its file, which is left out"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%q is not in %q", want, p.stderr)
		}
	}

	body, _ := d.sent("POST /api/v1/jobs")
	var sent api.SubmitRequest
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}

	want := "name: second\nworkdir: .\nrun: python train.py\nparams:\n  lr: 0.3\nneeds: data@last\nafter: any\nenv:\n  LR: \"0.1\"\n"
	if diff := cmp.Diff(want, sent.File); diff != "" {
		t.Errorf("job file (-want +got):\n%s", diff)
	}

	if sent.Workdir != "abc" || len(d.files) > 0 {
		t.Errorf("submitted with the files %q and %d uploads, want those it had", sent.Workdir, len(d.files))
	}

	p = newPerson(t).at(t, d.yard)
	if code := p.types(t.Context(), "rerun", "j3", "--set", "resources.gpu5=1"); code == exit.OK ||
		!strings.Contains(p.stderr.String(), "resources.gpu5: unknown key") || strings.Contains(p.stderr.String(), "column") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

// A job that needed jobs of its file alone comes after nothing when it is submitted without them.
func TestRerunWithoutNeedsIsAfterNothing(t *testing.T) {
	t.Parallel()
	d := newDepot(t)
	text, err := json.Marshal(job.Spec{
		Name: "train", Run: "python train.py", Place: job.PlaceAny, Objective: job.ObjectiveBalanced, Needs: []string{"prep"},
		After: job.AfterAny, Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}

	d.answer("GET /api/v1/jobs/j3", api.JobDetail{Job: api.Job{ID: "j3"}, Spec: text})

	p := newPerson(t).at(t, d.yard)
	if code := p.types(t.Context(), "rerun", "j3", "-d"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	body, _ := d.sent("POST /api/v1/jobs")
	var sent api.SubmitRequest
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff("name: train\nrun: python train.py\n", sent.File); diff != "" {
		t.Errorf("job file (-want +got):\n%s", diff)
	}
}

func TestRerunSaysThatFilesAreGone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j3", api.JobDetail{Job: api.Job{ID: "j3"}, Spec: json.RawMessage(`{"run":"a","workdir":"."}`)})
	y.refuse("POST /api/v1/jobs", http.StatusUnprocessableEntity,
		api.Problem{Detail: "the manifest was not uploaded", Kind: "invalid", Code: "workdir_missing"})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "rerun", "j3", "-d"); code == exit.OK ||
		!strings.Contains(p.stderr.String(), "the files of job j3 are not stored for you any more") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

// One job that cannot be cancelled does not keep the others from it, unless the server is in trouble; and one that has
// not ended, whatever else speaks against it, is an error.
func TestCancelGoesOnAfterARefusal(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	denied := api.Problem{Detail: "permission denied", Kind: "denied", Code: "not_allowed"}
	y.refuse("POST /api/v1/jobs/j1/cancel", http.StatusForbidden, denied)
	y.answer("POST /api/v1/jobs/j2/cancel", api.Job{ID: "j2", State: job.Cancelled, Status: job.StatusCancelled})
	y.refuse("POST /api/v1/jobs/j3/cancel", http.StatusConflict,
		api.Problem{Detail: "job j3 is being moved", Kind: "conflict", Code: "job_state"})
	y.answer("GET /api/v1/jobs/j3", api.JobDetail{Job: api.Job{ID: "j3", State: job.Running, Status: job.StatusRunning}})
	y.refuse("POST /api/v1/jobs/j4/cancel", http.StatusServiceUnavailable,
		api.Problem{Detail: "the store does not answer", Kind: "unavailable", Code: "store"})
	y.answer("POST /api/v1/jobs/j5/cancel", api.Job{ID: "j5", State: job.Cancelled, Status: job.StatusCancelled})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "cancel", "j1", "j2", "j3"); code == exit.OK {
		t.Error("exit code 0")
	}

	if got, want := p.stdout.String(), "j2 CANCELLED\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}

	for _, want := range []string{"cancel j1: permission denied", "cancel j3: job j3 is being moved"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%q is not in\n%s", want, p.stderr)
		}
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "cancel", "j4", "j5"); code == exit.OK {
		t.Error("exit code 0 without a store")
	}

	if slices.ContainsFunc(y.called(), func(c string) bool { return strings.Contains(c, "/j5/") }) {
		t.Error("the next job was tried although the server is in trouble")
	}
}
