package storetest

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func questions() []contract {
	return []contract{
		{"questions are found by owner, job and state", findsQuestions},
		{"only open questions are loaded", loadsOpenQuestions},
		{"an older question does not replace a newer one", keepsNewerQuestion},
	}
}

// asked is a store with questions of two people in every state.
func asked(h *harness) (store.Store, []inbox.Question) {
	b := &yardmaster.Batch{}
	for i, state := range inbox.States() {
		for n, owner := range []id.User{"ada", "bob"} {
			q := sampleQuestion(id.NewJob(uint64(8+n)), i+1, state) // j8 and j9
			q.Owner = owner
			b.Questions = append(b.Questions, q)
		}
	}

	return h.with(b), b.Questions
}

func findsQuestions(h *harness) {
	s, all := asked(h)

	list := func(f store.QuestionFilter) []id.Question {
		found, err := s.Questions(h.context(), f)
		h.must(err)

		var ids []id.Question
		for i := range found {
			ids = append(ids, found[i].ID)
		}

		return ids
	}

	h.same("all", list(store.QuestionFilter{Limit: 3}), []id.Question{"j9.q5", "j9.q4", "j9.q3"})
	h.same("next page", list(store.QuestionFilter{Before: "j9.q3", Limit: 3}), []id.Question{"j9.q2", "j9.q1", "j8.q5"})
	h.same("of ada", list(store.QuestionFilter{Owner: "ada", Limit: 2}), []id.Question{"j8.q5", "j8.q4"})
	h.same("about a job", list(store.QuestionFilter{Job: "j8", Before: "j8.q3", Limit: 9}),
		[]id.Question{"j8.q2", "j8.q1"})
	h.same("about no job", list(store.QuestionFilter{Job: "nonsense", Limit: 9}), []id.Question(nil))
	h.same("open or dismissed",
		list(store.QuestionFilter{States: []inbox.State{inbox.Open, inbox.Dismissed}, Owner: "bob", Limit: 9}),
		[]id.Question{"j9.q3", "j9.q1"})

	one, err := s.Question(h.context(), all[3].ID)
	h.must(err)
	h.same("one", one, all[3])

	for _, missing := range []id.Question{"j9.q9", "j9", "nonsense", ""} {
		_, err = s.Question(h.context(), missing)
		h.fails(err, fault.NotFound, "question_not_found")
	}

	_, err = s.Questions(h.context(), store.QuestionFilter{Before: "nonsense", Limit: 1})
	h.fails(err, fault.Invalid, "bad_cursor")
	_, err = s.Questions(h.context(), store.QuestionFilter{})
	h.fails(err, fault.Invalid, "limit_required")
}

func loadsOpenQuestions(h *harness) {
	s, all := asked(h)
	h.same("open", h.load(s, time.Time{}).Questions, all[:2])
}

func keepsNewerQuestion(h *harness) {
	older := sampleQuestion("j1", 1, inbox.Open)
	newer := older
	newer.Seq, newer.State, newer.Chosen = older.Seq+1, inbox.Accepted, "retry"

	stale := &yardmaster.Batch{Questions: []inbox.Question{older}}
	s := h.with(&yardmaster.Batch{Questions: []inbox.Question{newer}}, stale)
	h.must(s.Commit(h.context(), stale))

	got, err := s.Question(h.context(), "j1.q1")
	h.must(err)
	h.same("question", got, newer)
}
