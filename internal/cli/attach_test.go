package cli

import (
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
