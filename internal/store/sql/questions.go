package sql

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/store"
)

var questionTable = &table{
	name: "questions", key: "num, question", guard: true,
	columns: []string{"num", "question", "id", "seq", "owner", "kind", "state", "doc"},
	fixed:   []string{"num", "question", "id"},
}

// questionNumbers returns the numbers in a question's id, which are the primary key of questions.
func questionNumbers(q id.Question) (num, question int64, err error) {
	j, n, ok := q.Split()
	if !ok {
		return 0, 0, fmt.Errorf("invalid question id %q", string(q))
	}

	num, err = jobNumber(j)

	return num, int64(n), err
}

func questionRow(args []any, q *inbox.Question) ([]any, error) {
	num, question, err := questionNumbers(q.ID)
	if err != nil {
		return nil, err
	}

	doc, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode question %s: %w", q.ID, err)
	}

	return append(
		args,
		num,
		question,
		string(q.ID),
		int64(q.Seq),
		clean(string(q.Owner)),
		clean(string(q.Kind)),
		string(q.State),
		clean(string(doc)),
	), nil
}

func readQuestion(row scanner) (q inbox.Question, err error) {
	var doc string
	var skip any
	if err := row.Scan(&skip, &skip, &skip, &skip, &skip, &skip, &skip, &doc); err != nil {
		return q, err
	}
	if err := json.Unmarshal([]byte(doc), &q); err != nil {
		return q, fmt.Errorf("decode a question: %w", err)
	}

	return q, nil
}

// Question returns one question.
func (s *Store) Question(ctx context.Context, q id.Question) (inbox.Question, error) {
	missing := fault.New(fault.NotFound, "question_not_found", "question %s not found", q).
		WithRemedy("trainyard inbox lists the open ones")

	num, question, err := questionNumbers(q)
	if err != nil {
		return inbox.Question{}, missing
	}

	return one(ctx, s.read, "question", questionTable.selects()+`WHERE num = $1 AND question = $2`,
		[]any{num, question}, readQuestion, missing)
}

// Questions lists questions, those about the newest jobs first.
func (s *Store) Questions(ctx context.Context, f store.QuestionFilter) ([]inbox.Question, error) {
	var w where
	if f.Owner != "" {
		w.add("owner = ?", clean(string(f.Owner)))
	}

	if f.Job != "" {
		num, ok := f.Job.Number()
		if !ok || num > math.MaxInt64 {
			return nil, nil // not a valid job id, so nothing is asked about it
		}

		w.add("num = ?", int64(num))
	}

	if len(f.States) > 0 {
		states := make([]any, len(f.States))
		for i, state := range f.States {
			states[i] = clean(string(state))
		}

		w.add("state IN (?"+strings.Repeat(", ?", len(states)-1)+")", states...)
	}

	if f.Before != "" {
		num, question, err := questionNumbers(f.Before)
		if err != nil {
			return nil, fault.New(fault.Invalid, "bad_cursor", "invalid cursor %q", f.Before).WithField("cursor")
		}

		w.add("(num < ? OR num = ? AND question < ?)", num, num, question)
	}

	query, err := w.query(questionTable.selects(), "num DESC, question DESC", f.Limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "question", query, w.args, readQuestion)
}
