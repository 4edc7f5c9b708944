package server

import (
	"errors"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
)

// outOfMemory runs a job with so much memory that runs out of it.
func (n *node) outOfMemory(c *api.Client, memory string, more ...string) id.Job {
	n.y.t.Helper()
	file := append([]string{"run: train", "resources: {memory: " + memory + "}"}, more...)
	j := n.y.submit(c, strings.Join(file, "\n"))[0].ID
	run := n.awaitRun(j, 1)
	n.starts(run, 0)
	n.tell(api.RankReport{
		Run: run, State: job.RunEnded, Started: n.y.clock.Now(), Ended: n.y.clock.Now(), ExitCode: 137,
		Cause: job.CauseHostOOM, Reason: "exceeded its memory limit of " + memory,
	})

	return j
}

// wantCode checks the code of an error.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("error is %v, want code %s", err, code)
	}
}

// What needs a person is in the inbox of the owner and of admins, and an answer is carried out once however often it is
// sent.
func TestInbox(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1") // 16 GB
	n.listen()

	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()
	j := n.outOfMemory(ada, "10GB") // no node has 20 GB

	for who, c := range map[string]*api.Client{"ada": ada, "root": root} {
		page, err := c.Inbox(t.Context(), api.QuestionFilter{})
		y.must(err)

		if len(page.Questions) != 1 || page.Questions[0].Job != j || page.Questions[0].Kind != inbox.OutOfMemory ||
			page.Questions[0].Notice || len(page.Questions[0].Options) != 3 || page.Questions[0].Expires == nil {
			t.Errorf("the inbox of %s has %+v", who, page.Questions)
		}
	}

	page, err := bob.Inbox(t.Context(), api.QuestionFilter{})
	y.must(err)

	if len(page.Questions) != 0 {
		t.Errorf("the inbox of bob has %+v", page.Questions)
	}

	q := id.NewQuestion(j, 1)
	_, err = bob.Accept(t.Context(), q, "retry")
	wantCode(t, err, "question_not_found")
	_, err = ada.Accept(t.Context(), q, "nonsense")
	wantCode(t, err, "unknown_option")
	_, err = ada.Accept(t.Context(), "j99.q1", "retry")
	wantCode(t, err, "question_not_found")

	detail, err := ada.Job(t.Context(), j)
	y.must(err)

	if len(detail.Questions) != 1 || detail.State != job.Paused ||
		!strings.HasPrefix(detail.Why.Remedies[0], "trainyard accept "+string(q)) {
		t.Errorf("job is %s with questions %+v, why %+v", detail.State, detail.Questions, detail.Why)
	}

	for range 2 { // a response that was lost is asked for again
		answered, err := ada.Accept(t.Context(), q, "retry")
		y.must(err)

		if answered.State != inbox.Accepted || answered.Chosen != "retry" || answered.By != "ada" {
			t.Errorf("answered %+v", answered)
		}
	}

	n.awaitRun(j, 2)

	_, err = root.Accept(t.Context(), q, "cancel")
	wantCode(t, err, "question_state")
	_, err = root.Dismiss(t.Context(), q)
	wantCode(t, err, "question_state")

	closed, err := root.Inbox(t.Context(), api.QuestionFilter{All: true, Job: j})
	y.must(err)

	if len(closed.Questions) != 1 ||
		closed.Questions[0].Reason != "ada accepted: run it again with as much memory as before" {
		t.Errorf("the inbox has %+v", closed.Questions)
	}

	events, err := ada.Events(t.Context(), api.EventFilter{Kind: "inbox"})
	y.must(err)

	if len(events.Events) != 2 || events.Events[0].Kind != "inbox.asked" || events.Events[1].Kind != "inbox.accepted" ||
		events.Events[0].Question != q {
		t.Errorf("events are %+v", events.Events)
	}
}

func TestDismissedQuestionLetsTheJobFail(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")
	n.listen()

	ada := y.researcher("ada")
	j := n.outOfMemory(ada, "10GB")

	for range 2 {
		answered, err := ada.Dismiss(t.Context(), id.NewQuestion(j, 1))
		y.must(err)

		if answered.State != inbox.Dismissed {
			t.Errorf("answered %+v", answered)
		}
	}

	detail, err := ada.Job(t.Context(), j)
	y.must(err)

	if detail.Status != job.StatusOutOfMemory || len(detail.Questions) != 0 {
		t.Errorf("job is %s with questions %+v", detail.Status, detail.Questions)
	}
}
