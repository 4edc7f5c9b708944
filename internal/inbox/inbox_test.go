package inbox_test

import (
	"strings"
	"testing"

	"trainyard/internal/fault"
	"trainyard/internal/inbox"
)

// An open question ends in one of four ways, and what has ended changes no more.
func TestOnlyOpenQuestionsChange(t *testing.T) {
	t.Parallel()

	ends := map[inbox.Event]inbox.State{
		inbox.Accept: inbox.Accepted, inbox.Dismiss: inbox.Dismissed, inbox.Expire: inbox.Expired,
		inbox.Withdraw: inbox.Withdrawn,
	}

	for _, from := range inbox.States() {
		for _, ev := range inbox.Events() {
			q := inbox.Question{ID: "j1.q1", State: from, Reason: "it rained"}
			to, err := q.After(ev)

			switch {
			case from == inbox.Open && (err != nil || to != ends[ev]):
				t.Errorf("%s of an open question: %s, %v, want %s", ev, to, err, ends[ev])
			case from != inbox.Open && (to != from || fault.KindOf(err) != fault.Conflict ||
				!strings.Contains(err.Error(), "question j1.q1 is "+string(from)+": it rained")):
				t.Errorf("%s of a question that is %s: %s, %v, want a conflict that names it", ev, from, to, err)
			}
		}

		if from.Final() != (from != inbox.Open) {
			t.Errorf("%s is final: %v", from, from.Final())
		}
	}
}

func TestNoKindIsBothNoticeAndHold(t *testing.T) {
	t.Parallel()

	for _, k := range inbox.Kinds() {
		if k.Notice() && k.Holds() {
			t.Errorf("%s: nothing waits for the answer to a notice", k)
		}
	}
}
