package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

func line(n int) api.LogLine {
	return api.LogLine{At: now, Run: "j1.1", Stream: "stdout", Text: fmt.Sprintf("line %d", n)}
}

func ended(state job.State, code int) api.Job {
	j := api.Job{
		ID:      "j1",
		Name:    "train",
		State:   state,
		Status:  job.StatusOf(state, job.CauseUserCode),
		Started: new(ago(125e9)),
		Ended:   new(now),
	}

	if state != job.Cancelled {
		j.ExitCode = &code
	}

	return j
}

func running() api.Job {
	return api.Job{ID: "j1", Name: "train", State: job.Running, Status: job.StatusRunning, Reason: "runs on box1"}
}

func TestAttachedSubmitFollowsToTheEndAndEndsWithTheJobsCode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end  api.Job
		code int
	}{
		"success":           {ended(job.Succeeded, 0), exit.OK},
		"own code":          {ended(job.Failed, 3), 3},
		"a signal":          {ended(job.Failed, 137), exit.JobFailed},
		"no code":           {api.Job{ID: "j1", State: job.Failed, Status: job.StatusNodeFail}, exit.JobFailed},
		"cancelled":         {ended(job.Cancelled, 0), exit.Cancelled},
		"the greatest code": {ended(job.Failed, 125), 125},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, p := newDepot(t), newPerson(t)
			p.at(t, d.yard)

			d.feed("GET /api/v1/jobs/j1/logs/follow", func(_ *http.Request, send func(kind, id string, data any)) {
				send("state", "", running())
				send("", "c1", line(1))
				send("state", "", running())
				send("", "c2", line(2))
				send("end", "c2", tt.end)
			})

			path := write(t, t.TempDir(), "job.yaml", "run: hostname\n")
			if code := p.types(t.Context(), "submit", path); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, p.stderr)
			}

			if got := p.stdout.String(); got != "line 1\nline 2\n" {
				t.Errorf("stdout %q", got)
			}

			if got := strings.Count(p.stderr.String(), "RUNNING: runs on box1"); got != 1 {
				t.Errorf("told %d times that it runs: %s", got, p.stderr)
			}

			duration := " after 2m5s"
			if tt.end.State == job.Succeeded {
				duration = " in 2m5s"
			}

			if tt.end.Started != nil && !strings.Contains(p.stderr.String(), string(tt.end.Status)+duration) {
				t.Errorf("stderr lacks how the job ended: %s", p.stderr)
			}
		})
	}
}

func TestCtrlCDetachesAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	d, p := newDepot(t), newPerson(t)
	p.at(t, d.yard)

	d.feed("GET /api/v1/jobs/j1/logs/follow", func(r *http.Request, send func(kind, id string, data any)) {
		send("", "c1", line(1))
		<-r.Context().Done()
	})

	path := write(t, t.TempDir(), "job.yaml", "run: hostname\n")
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- p.types(ctx, "submit", path) }()
	p.stdout.await(t, "line 1")
	interrupt()

	if code := <-done; code != exit.Interrupted {
		t.Errorf("exit code %d", code)
	}

	if text := p.stderr.String(); !strings.Contains(text, "Detached; j1 keeps running.") ||
		!strings.Contains(text, "trainyard logs -f j1") {
		t.Errorf("stderr lacks how to follow again: %s", text)
	}

	for _, c := range d.called() {
		if strings.Contains(c, "cancel") || strings.Contains(c, "kill") {
			t.Errorf("leaving called %s", c)
		}
	}
}

func TestFollowingGoesOnAfterTheServerRestarted(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: running()})
	var calls atomic.Int32
	var cursors []string
	y.mux.HandleFunc("GET /api/v1/jobs/j1/logs/follow", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		cursors = append(cursors, q.Get("cursor")+"/"+q.Get("tail")+"/"+q.Get("grep"))

		n := int(calls.Add(1))
		if n == 2 || n == 3 {
			reply(
				w,
				http.StatusServiceUnavailable,
				api.Problem{Detail: "starting", Kind: string(fault.Unavailable), Code: "starting"},
			)

			return
		}

		text, err := json.Marshal(line(n))
		if err != nil {
			t.Error(err)
		}

		_, _ = fmt.Fprintf(w, "id: c%d\ndata: %s\n\n", n, text)

		if n == 1 {
			_, _ = fmt.Fprintf(w, "id: c9\ndata: {\"text\":\"half") // the server dies here
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}

		text, err = json.Marshal(ended(job.Succeeded, 0))
		if err != nil {
			t.Error(err)
		}

		_, _ = fmt.Fprintf(w, "event: end\ndata: %s\n\n", text)
	})

	if code := p.types(t.Context(), "logs", "-f", "j1", "--tail", "5", "--grep", "x"); code != exit.OK {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	if got := p.stdout.String(); got != "line 1\nline 4\n" {
		t.Errorf("stdout %q", got)
	}

	if diff := cmp.Diff([]string{"/5/x", "c1//x", "c1//x", "c1//x"}, cursors); diff != "" {
		t.Errorf("cursors (-want +got):\n%s", diff)
	}

	for _, want := range []string{"Server not responding, retrying", "Connection restored."} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("stderr lacks %q: %s", want, p.stderr)
		}
	}
}

func TestFollowingEndsWhereItCannotGoOn(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: running()})

	y.refuse(
		"GET /api/v1/jobs/j1/logs/follow",
		http.StatusUnauthorized,
		api.Problem{Detail: "the token expired", Kind: string(fault.Unknown), Code: "token_expired"},
	)

	if code := p.types(t.Context(), "logs", "-f", "j1"); code != exit.Denied {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

func TestSeveralJobsAreFollowedTogether(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)
	y.answer("POST /api/v1/jobs", api.SubmitReply{Jobs: []api.Job{{ID: "j1", Name: "prepare"}, {ID: "j2"}}})

	for n, id := range []string{"j1", "j2"} {
		y.feed("GET /api/v1/jobs/"+id+"/logs/follow", func(_ *http.Request, send func(kind, id string, data any)) {
			send("", "c1", line(n+1))
			send("end", "c1", ended(job.Failed, 7*n)) // a failed job without a code of its own, and one with 7
		})
	}

	path := write(t, t.TempDir(), "job.yaml", "name: prepare\nrun: a\n---\nname: b\nrun: b\n")
	if code := p.types(t.Context(), "submit", path); code != exit.JobFailed {
		t.Errorf("exit code %d, want that of the first job: %s", code, p.stderr)
	}

	lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
	slices.Sort(lines)
	if diff := cmp.Diff([]string{"[j2] line 2", "[prepare] line 1"}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLogsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)
	d := api.JobDetail{Job: running(), Runs: []api.Run{{Ranks: make([]api.Rank, 2)}}}
	y.answer("GET /api/v1/jobs/j1", d)

	pages := map[string]api.LogPage{
		"": {Next: "c1", Lines: []api.LogLine{
			{At: ago(3e9), Run: "j1.2", Rank: 0, Stream: "stdout", Text: "step 1\r\x1b[32mstep 2\x1b[0m"},
			{At: ago(2e9), Run: "j1.2", Rank: 1, Stream: "stderr", Text: "a very ", Partial: true},
			{At: ago(2e9), Run: "j1.2", Rank: 1, Stream: "stderr", Text: "long line"},
			{At: ago(1e9), Run: "j1.2", Rank: 0, Stream: "yard", Text: "cut here"},
		}},
		"c1": {
			Next:  "c2",
			Lines: []api.LogLine{{At: ago(1e9), Run: "j1.2", Rank: 1, Stream: "stdout", Raw: []byte("\xff\xfe")}},
		},
		"c2": {Next: "c2"},
	}

	y.mux.HandleFunc("GET /api/v1/jobs/j1/logs", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, pages[r.URL.Query().Get("cursor")])
	})

	if code := p.types(t.Context(), "logs", "j1.2", "--rank", "1", "--stream", "stderr", "--tail", "9",
		"-t"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	want := "2026-03-01T11:59:57.000Z [rank 0] \x1b[32mstep 2\x1b[0m\n" +
		"2026-03-01T11:59:58.000Z [rank 1] a very long line\n" +
		"2026-03-01T11:59:59.000Z [rank 0] [yard] cut here\n" +
		"2026-03-01T11:59:59.000Z [rank 1] \xff\xfe\n"

	if diff := cmp.Diff(want, p.stdout.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	calls := y.called()

	wantCalls := []string{
		"GET /api/v1/jobs/j1",
		"GET /api/v1/jobs/j1/logs?collapse=true&limit=500&rank=1&run=j1.2&stream=stderr&tail=9",
		"GET /api/v1/jobs/j1/logs?collapse=true&cursor=c1&limit=500&rank=1&run=j1.2&stream=stderr",
		"GET /api/v1/jobs/j1/logs?collapse=true&cursor=c2&limit=500&rank=1&run=j1.2&stream=stderr",
	}

	if diff := cmp.Diff(wantCalls, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}

	p.stdout = newBuffer()
	p.env.Stdout = p.stdout
	if code := p.types(t.Context(), "logs", "j1", "-o", "json", "--tail", "9", "--raw"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	var first api.LogLine

	text, _, _ := strings.Cut(p.stdout.String(), "\n")
	if err := json.Unmarshal([]byte(text), &first); err != nil || first.Text != pages[""].Lines[0].Text {
		t.Errorf("JSON line %q: %v", text, err)
	}
}

// A search that is too long for one request goes on by itself, and waits for its turn.
func TestASearchGoesOnFromPageToPage(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: ended(job.Succeeded, 0)})

	calls := 0
	y.mux.HandleFunc("GET /api/v1/jobs/j1/logs", func(w http.ResponseWriter, r *http.Request) {
		calls++

		switch cursor := r.URL.Query().Get("cursor"); {
		case calls == 2:
			reply(w, http.StatusTooManyRequests, api.Problem{
				Status: http.StatusTooManyRequests, Detail: "too many searches", Kind: string(fault.OverLimit),
				Code: api.CodeTooManySearches,
			})
		case cursor == "":
			reply(w, http.StatusOK, api.LogPage{Next: "c1"})
		case cursor == "c1":
			reply(w, http.StatusOK, api.LogPage{Next: "c2"})
		default:
			reply(w, http.StatusOK, api.LogPage{Lines: []api.LogLine{line(7)}, Ended: true})
		}
	})

	if code := p.types(t.Context(), "logs", "j1", "--grep", "7"); code != exit.OK || p.stdout.String() != "line 7\n" {
		t.Errorf("exit code %d: %q %s", code, p.stdout, p.stderr)
	}

	if calls != 4 {
		t.Errorf("%d calls", calls)
	}
}

func TestAJobThatGoesOnPrintingDoesNotKeepLogsGoing(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: running()})
	l := line(1)
	l.At = now.Add(1)
	y.answer("GET /api/v1/jobs/j1/logs", api.LogPage{Lines: []api.LogLine{l}, Next: "more"})

	if code := p.types(t.Context(), "logs", "j1", "--grep", "line"); code != exit.OK || p.stdout.String() != "line 1\n" {
		t.Errorf("exit code %d: %q", code, p.stdout)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: ended(job.Succeeded, 0)})
	y.answer("GET /api/v1/jobs/j2", api.JobDetail{Job: ended(job.Failed, 9)})
	y.answer("GET /api/v1/jobs/j3", api.JobDetail{Job: running()})

	y.refuse(
		"GET /api/v1/jobs/j4",
		http.StatusNotFound,
		api.Problem{Detail: "there is no job j4", Kind: string(fault.NotFound), Code: "job_not_found"},
	)

	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"j1"}, exit.OK},
		{[]string{"j1", "j2"}, 9},
		{[]string{"j3", "--timeout", "10ms"}, exit.NotFinished},
		{[]string{"j4"}, exit.NotFound},
		{[]string{"j1", "--timeout", "soon"}, exit.Usage},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), append([]string{"wait"}, tt.args...)...); code != tt.code {
			t.Errorf("wait %v: exit code %d, want %d: %s", tt.args, code, tt.code, p.stderr)
		}
	}

	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()

	if code := newPerson(t).at(t, y).types(ctx, "wait", "j3"); code != exit.Interrupted {
		t.Errorf("Ctrl-C: exit code %d", code)
	}
}

func TestEventsAreFollowedOverARestart(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)

	y.feed("GET /api/v1/events/follow", func(r *http.Request, send func(kind, id string, data any)) {
		if r.URL.Query().Get("cursor") == "" {
			send(
				"",
				"41",
				api.Event{Seq: 41, At: now, Kind: "job", Actor: "ada", Job: "j7", To: "pending", Reason: "bad\x1b[2J"},
			)

			return // a clean end, as at a server's stop
		}

		send(
			"",
			"42",
			api.Event{
				Seq:   42,
				At:    now,
				Kind:  "run",
				Actor: "yard",
				Job:   "j7",
				Run:   "j7.1",
				Node:  "box1",
				From:  "ordered",
				To:    "running",
			},
		)

		<-r.Context().Done()
	})

	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- p.types(ctx, "events", "-f", "--job", "j7") }()
	p.stdout.await(t, "j7.1 on box1")
	interrupt()

	if code := <-done; code != exit.Interrupted {
		t.Errorf("exit code %d", code)
	}

	golden(t, "events-follow", p.stdout.String())

	if diff := cmp.Diff(
		[]string{"GET /api/v1/events/follow?job=j7&tail=10", "GET /api/v1/events/follow?cursor=41&job=j7"},
		y.called(),
	); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestWatchShowsChangesUntilCtrlC(t *testing.T) {
	t.Parallel()
	y, p := newYard(t), newPerson(t)
	p.at(t, y)
	p.terminal = true
	y.list(someJobs()...)
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- p.types(ctx, "jobs", "-w", "--all") }()
	p.stdout.await(t, "\x1b[J")
	interrupt()

	if code := <-done; code != exit.Interrupted {
		t.Errorf("exit code %d", code)
	}

	if text := p.stdout.String(); !strings.HasPrefix(text, "\x1b[HID") || !strings.Contains(text, "OUT_OF_MEMORY") {
		t.Errorf("stdout %q", text)
	}
}
