package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
)

func someQuestions() []api.Question {
	nothing := 0.0

	return []api.Question{
		{
			ID: "j9.q1", Kind: inbox.OutOfMemory, Job: "j9", Owner: "ada", State: inbox.Open,
			Sentence: "out of GPU memory; no node it may use has GPUs with more than 24 GB",
			Asked:    ago(time.Hour), Since: ago(time.Hour), Expires: new(now.Add(23 * time.Hour)), Unless: "the job fails",
			Options: []api.QuestionOption{
				{
					ID: "other-gpu", Sentence: "let it use node box1 with 1× A100 80GB", Cost: new(4.2), End: new(now.Add(3 * time.Hour)),
					EndLow: new(now.Add(2 * time.Hour)), EndHigh: new(now.Add(5 * time.Hour)),
					Action: inbox.Action{Verb: inbox.Requeue, Floor: job.Floor{GPUMemory: 24 << 30}},
				},
				{ID: "wait", Sentence: "queue it until there is a node with more", Action: inbox.Action{Verb: inbox.Requeue}},
				{ID: "cancel", Sentence: "cancel job j9", Cost: &nothing, Action: inbox.Action{Verb: inbox.Cancel}},
			},
		},
		{
			ID: "j7.q2", Kind: inbox.Preempted, Notice: true, Job: "j7", Owner: "grace", State: inbox.Open,
			Sentence: "preempted by other work; requeued", Asked: ago(time.Minute), Since: ago(time.Minute),
			Options: []api.QuestionOption{{ID: "pause", Sentence: "pause it", Action: inbox.Action{Verb: inbox.Pause}}},
		},
		{
			ID: "j6.q1", Kind: inbox.OverBudget, Job: "j6", Owner: "ada", State: inbox.Accepted, Asked: ago(30 * time.Hour),
			Since: ago(26 * time.Hour), Sentence: "the budget of $5.00 is used up", Chosen: "raise-budget", By: "ada",
			Reason: "ada accepted: raise the budget by $4.00 to $9.00",
		},
	}
}

func TestInboxShowsOptions(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/inbox", api.QuestionPage{Questions: someQuestions()})
	y.answer("GET /api/v1/inbox/j9.q1", someQuestions()[0])

	for name, args := range map[string][]string{
		"inbox": {"inbox", "--all"}, "inbox-one": {"inbox", "j9.q1"}, "inbox-quiet": {"inbox", "-q"},
		"inbox-json": {"inbox", "j9.q1", "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			if code := p.types(t.Context(), args...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			golden(t, name, p.stdout.String())
		})
	}
}

func TestAnswersAreSent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("POST /api/v1/inbox/j6.q1/accept", someQuestions()[2])
	y.answer("POST /api/v1/inbox/j6.q1/dismiss", someQuestions()[2])
	y.answer("GET /api/v1/inbox", api.QuestionPage{})

	for _, tt := range []struct{ command, call, body, says string }{
		{"accept j6.q1", "POST /api/v1/inbox/j6.q1/accept", `{}`, "ada accepted: raise the budget"},
		{"accept j6.q1 cancel", "POST /api/v1/inbox/j6.q1/accept", `{"option":"cancel"}`, "accepted 1 day ago"},
		{"dismiss j6.q1", "POST /api/v1/inbox/j6.q1/dismiss", "", "Question: j6.q1"},
		{"inbox --owner ada --job j6", "GET /api/v1/inbox?job=j6&limit=500&owner=ada", "", ""},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), strings.Fields(tt.command)...); code != exit.OK {
			t.Errorf("%s: exit code %d: %s", tt.command, code, p.stderr)
			continue
		}

		body, _ := y.sent(tt.call)
		calls := y.called()

		if calls[len(calls)-1] != tt.call || strings.TrimSpace(string(body)) != tt.body ||
			!strings.Contains(p.stdout.String(), tt.says) {
			t.Errorf("%s called %s with %s and says %q", tt.command, calls[len(calls)-1], body, p.stdout)
		}
	}
}

// An option that has changed is refused, and what there is now is shown.
func TestStaleOptionShowsTheFreshOnes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.refuse("POST /api/v1/inbox/j9.q1/accept", http.StatusConflict, api.Problem{
		Detail: "option other-gpu of question j9.q1 has changed: it costs more", Kind: "conflict", Code: "option_stale",
	})
	y.answer("GET /api/v1/inbox/j9.q1", someQuestions()[0])

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "accept", "j9.q1", "other-gpu"); code == exit.OK ||
		!strings.Contains(p.stderr.String(), "it costs more") || !strings.Contains(p.stdout.String(), "let it use node box1") {
		t.Errorf("exit code %d, says %q and %q", code, p.stdout, p.stderr)
	}
}
