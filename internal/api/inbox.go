package api

import (
	"context"
	"net/url"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/inbox"
)

// Question is something about a job that its owner, or an admin, may decide.
type Question struct {
	ID       id.Question      `json:"id"`
	Kind     inbox.Kind       `json:"kind" doc:"what it is about: out_of_memory, retries_over, over_budget, too_slow; more_memory and preempted are notices"`
	Notice   bool             `json:"notice,omitempty" doc:"it tells what the yard has done by itself; nothing waits for an answer"`
	Job      id.Job           `json:"job"`
	Owner    id.User          `json:"owner" doc:"owner of the job"`
	State    inbox.State      `json:"state" enum:"open,accepted,dismissed,expired,withdrawn"`
	Sentence string           `json:"sentence" doc:"what has happened"`
	Options  []QuestionOption `json:"options" doc:"the recommended one first"`
	Asked    time.Time        `json:"asked"`
	Since    time.Time        `json:"since" doc:"in this state since"`
	Expires  *time.Time       `json:"expires,omitempty" doc:"when it ends without an answer; absent if it does not"`
	Unless   string           `json:"unless,omitempty" doc:"what happens if no option is accepted"`
	By       string           `json:"by,omitempty" doc:"who accepted or dismissed it"`
	Chosen   string           `json:"chosen,omitempty" doc:"option that was accepted"`
	Reason   string           `json:"reason,omitempty" doc:"why it is not open any more"`
}

// QuestionOption is one answer to a question.
type QuestionOption struct {
	ID       string       `json:"id" doc:"within its question"`
	Sentence string       `json:"sentence"`
	Cost     *float64     `json:"cost_usd,omitempty" doc:"expected cost from now to the end of the job; absent if unknown"`
	End      *time.Time   `json:"end,omitempty" doc:"expected end of the job; absent if unknown"`
	EndLow   *time.Time   `json:"end_low,omitempty" doc:"lower end of the 80% prediction interval"`
	EndHigh  *time.Time   `json:"end_high,omitempty" doc:"upper end of the 80% prediction interval"`
	Action   inbox.Action `json:"action" doc:"what is done if it is accepted"`
}

// QuestionPage is one page of questions, those about the newest jobs first.
type QuestionPage struct {
	Questions []Question `json:"questions"`
	Next      string     `json:"next,omitempty"`
}

// AcceptRequest accepts an option of a question.
type AcceptRequest struct {
	Option string `json:"option,omitempty" maxLength:"63" doc:"absent for the recommended one"`
}

// QuestionFilter says which questions are wanted. Empty fields do not filter.
type QuestionFilter struct {
	Owner id.User
	Job   id.Job
	All   bool // also those that are not open any more
	Page
}

func (f QuestionFilter) query() url.Values {
	q := f.Page.query()
	set(q, "owner", string(f.Owner))
	set(q, "job", string(f.Job))

	if f.All {
		q.Set("all", "true")
	}

	return q
}

// Inbox returns one page of questions, those about the newest jobs first.
func (c *Client) Inbox(ctx context.Context, f QuestionFilter) (QuestionPage, error) {
	return get[QuestionPage](ctx, c, at("inbox"), f.query())
}

// Question returns one question.
func (c *Client) Question(ctx context.Context, q id.Question) (Question, error) {
	return get[Question](ctx, c, at("inbox", string(q)), nil)
}

// Accept accepts an option of a question; "" accepts the recommended one.
func (c *Client) Accept(ctx context.Context, q id.Question, option string) (Question, error) {
	return post[Question](ctx, c, at("inbox", string(q), "accept"), AcceptRequest{Option: option})
}

// Dismiss ends a question without an option.
func (c *Client) Dismiss(ctx context.Context, q id.Question) (Question, error) {
	return post[Question](ctx, c, at("inbox", string(q), "dismiss"), nil)
}
