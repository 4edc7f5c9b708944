package cli

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/job"
)

func TestAttachBeginsWithTheLastLinesAndEndsWithTheJob(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: running(), Spec: []byte(`{"run":"train"}`)})
	y.feed("GET /api/v1/jobs/j1/logs/follow", func(r *http.Request, send func(kind, id string, data any)) {
		if got := r.URL.Query().Get("tail"); got != "20" {
			t.Errorf("it asks for the last %q lines", got)
		}

		send("", "c1", line(1))
		send("end", "c1", ended(job.Failed, 3))
	})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "attach", "j1"); code != 3 || p.stdout.String() != "line 1\n" {
		t.Errorf("exit code %d, output %q: %s", code, p.stdout, p.stderr)
	}
}

func TestCtrlCLeavesAttachAndTheJobGoesOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: running(), Spec: []byte(`{"run":"train"}`)})
	y.feed("GET /api/v1/jobs/j1/logs/follow", func(r *http.Request, send func(kind, id string, data any)) {
		send("", "c1", line(1))
		<-r.Context().Done()
	})

	p := newPerson(t).at(t, y)
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- p.types(ctx, "attach", "j1") }()
	p.stdout.await(t, "line 1")
	interrupt()

	if code := <-done; code != exit.Interrupted || !strings.Contains(p.stderr.String(), "Detached; j1 keeps running.") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

// Whoever types into a job that reads no input is told so. Nobody else is: a script keeps its input for itself.
func TestAttachSaysThatAProgramReadsNoInput(t *testing.T) {
	t.Parallel()

	for _, terminal := range []bool{true, false} {
		y := newYard(t)
		y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: running(), Spec: []byte(`{"run":"train"}`)})

		p := newPerson(t).at(t, y)
		input := strings.NewReader("y\n")
		p.terminal, p.env.Stdin = terminal, input

		y.feed("GET /api/v1/jobs/j1/logs/follow", func(_ *http.Request, send func(kind, id string, data any)) {
			send("", "c1", line(1))

			if terminal {
				p.stderr.await(t, "The program of job j1 reads no input")
			}

			send("end", "c1", ended(job.Succeeded, 0))
		})

		if code := p.types(t.Context(), "attach", "j1"); code != exit.OK {
			t.Errorf("exit code %d: %s", code, p.stderr)
		}

		if !terminal && input.Len() != 2 {
			t.Error("the input of a script was read")
		}
	}
}

func TestNobodyAttachesToAJobThatHasEnded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: ended(job.Succeeded, 0), Spec: []byte(`{"run":"train"}`)})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "attach", "j1"); code == exit.OK ||
		!strings.Contains(p.stderr.String(), "trainyard logs j1") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}
