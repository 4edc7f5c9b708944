package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) inboxRoutes() {
	const tag = "inbox"
	huma.Register(s.api, s.op("list-questions", http.MethodGet, "/api/v1/inbox",
		"List questions about jobs, those about the newest jobs first", tag), s.listQuestions)
	huma.Register(s.api, s.op("get-question", http.MethodGet, "/api/v1/inbox/{question}",
		"Show a question with its options", tag), s.getQuestion)
	huma.Register(s.api, s.op("accept-option", http.MethodPost, "/api/v1/inbox/{question}/accept",
		"Accept an option of a question; it is carried out at once", tag), s.acceptOption)
	huma.Register(s.api, s.op("dismiss-question", http.MethodPost, "/api/v1/inbox/{question}/dismiss",
		"End a question without an option", tag), s.dismissQuestion)
}

type inboxInput struct {
	Paging
	Owner string `query:"owner" maxLength:"63"`
	Job   string `query:"job" maxLength:"68" doc:"id of a job, its name, name@last or @last"`
	All   bool   `query:"all" doc:"also questions that are not open any more"`
}

func (s *Server) listQuestions(ctx context.Context, in *inboxInput) (*httpapi.Body[api.QuestionPage], error) {
	about, err := s.jobFilter(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	whole, err := s.wholeStory(ctx, about)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	owner := id.User(in.Owner)
	if !whole {
		owner, err = ownerFilter(ctx, tenant.ReadJob, owner, "")
		if err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	f := store.QuestionFilter{Owner: owner, Job: about, Before: id.Question(in.Cursor), Limit: in.Limit + 1}
	if !in.All {
		f.States = []inbox.State{inbox.Open}
	}

	found, err := s.Store.Questions(ctx, f)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.QuestionPage{Questions: []api.Question{}}
	if len(found) > in.Limit {
		found = found[:in.Limit]
		page.Next = string(found[len(found)-1].ID)
	}

	for i := range found {
		page.Questions = append(page.Questions, toQuestion(&found[i]))
	}

	return &httpapi.Body[api.QuestionPage]{Body: page}, nil
}

type questionInput struct {
	Question string `path:"question" maxLength:"60"`
}

// readQuestion returns a question that the caller may see, and its job. One they may not see is not there.
func (s *Server) readQuestion(ctx context.Context, name string) (inbox.Question, job.Job, error) {
	q, err := s.Store.Question(ctx, id.Question(name))
	if err != nil {
		return q, job.Job{}, err
	}

	j, err := s.readJob(ctx, string(q.Job))
	if fault.KindOf(err) == fault.NotFound {
		err = fault.New(fault.NotFound, "question_not_found", "question %s not found", name).
			WithRemedy("trainyard inbox lists the open ones")
	}

	return q, j, err
}

func (s *Server) getQuestion(ctx context.Context, in *questionInput) (*httpapi.Body[api.Question], error) {
	q, _, err := s.readQuestion(ctx, in.Question)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Question]{Body: toQuestion(&q)}, nil
}

type acceptInput struct {
	Question string             `path:"question" maxLength:"60"`
	Body     *api.AcceptRequest // nil for the recommended option
}

func (s *Server) acceptOption(ctx context.Context, in *acceptInput) (*httpapi.Body[api.Question], error) {
	m := yardmaster.Accept{Question: id.Question(in.Question), By: callerOf(ctx).User}
	if in.Body != nil {
		m.Option = in.Body.Option
	}

	return s.answerQuestion(ctx, in.Question, m, func(q *inbox.Question) bool {
		return q.State == inbox.Accepted && (m.Option == "" || q.Chosen == m.Option)
	})
}

func (s *Server) dismissQuestion(ctx context.Context, in *questionInput) (*httpapi.Body[api.Question], error) {
	m := yardmaster.Dismiss{Question: id.Question(in.Question), By: callerOf(ctx).User}

	return s.answerQuestion(ctx, in.Question, m, func(q *inbox.Question) bool { return q.State == inbox.Dismissed })
}

// answerQuestion answers an open question. done reports whether a closed one has had this answer already, so that a
// request whose response was lost can be made again.
func (s *Server) answerQuestion(
	ctx context.Context,
	name string,
	m yardmaster.Message,
	done func(*inbox.Question) bool,
) (*httpapi.Body[api.Question], error) {
	q, j, err := s.readQuestion(ctx, name)
	if err == nil {
		err = allowJob(ctx, "answer questions", &j)
	}

	if err == nil && q.State == inbox.Open {
		var answer any
		answer, err = s.do(ctx, m)

		if answered, ok := answer.(inbox.Question); err == nil && ok {
			return &httpapi.Body[api.Question]{Body: toQuestion(&answered)}, nil
		}

		if fault.KindOf(err) == fault.NotFound { // it was closed meanwhile
			q, _, err = s.readQuestion(ctx, name)
		}
	}

	if err == nil && !done(&q) {
		err = q.Closed()
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Question]{Body: toQuestion(&q)}, nil
}

func toQuestion(q *inbox.Question) api.Question {
	out := api.Question{
		ID:       q.ID,
		Kind:     q.Kind,
		Notice:   q.Kind.Notice(),
		Job:      q.Job,
		Owner:    q.Owner,
		State:    q.State,
		Sentence: q.Sentence,
		Options:  make([]api.QuestionOption, len(q.Options)),
		Asked:    shown(q.Asked),
		Since:    shown(q.Since),
		Expires:  timeOrNil(q.Expires),
		Unless:   q.Unless,
		By:       q.By,
		Chosen:   q.Chosen,
		Reason:   q.Reason,
	}

	for i := range q.Options {
		o := &q.Options[i]
		out.Options[i] = api.QuestionOption{
			ID: o.ID, Sentence: o.Sentence, End: timeOrNil(o.End), EndLow: timeOrNil(o.EndLow), EndHigh: timeOrNil(o.EndHigh),
			Action: o.Action,
		}

		if o.Cost != nil {
			cost := float64(*o.Cost)
			out.Options[i].Cost = &cost
		}
	}

	return out
}
