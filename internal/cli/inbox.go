package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
)

func (a *app) inbox() *cobra.Command {
	var f api.QuestionFilter
	var owner, job string

	cmd := &cobra.Command{
		Use:   "inbox [QUESTION]",
		Short: "List what needs your decision, or show one question",
		Long: `List the open questions about your jobs, with the options that you have: what each would cost and
when the job would be done. Notices tell what the yard has done with a job by itself; nothing waits
for an answer to them.

A job that has failed and is held for your answer fails if nobody answers in time.`,
		Example: `  trainyard inbox
  trainyard inbox j7.q1
  trainyard inbox --all --job j7`,
		Args: exit.Args(0, 1, "question"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if len(args) == 1 {
					return a.showQuestion(c.Question(cmd.Context(), id.Question(args[0])))
				}

				f.Owner, f.Job = id.User(owner), id.Job(job)

				return a.listQuestions(cmd.Context(), c, f)
			})
		},
	}

	flags := cmd.Flags()
	flags.BoolVarP(&f.All, "all", "a", false, "also questions that are not open any more")
	flags.StringVar(&owner, "owner", "", "only questions about jobs of this `user`")
	flags.StringVar(&job, "job", "", "only questions about this `job`")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}

func (a *app) listQuestions(ctx context.Context, c *api.Client, f api.QuestionFilter) error {
	questions, err := collect(func(p api.Page) ([]api.Question, string, error) {
		f.Page = p
		page, err := c.Inbox(ctx, f)
		return page.Questions, page.Next, err
	})
	if err != nil {
		return err
	}

	names := func() []string {
		var list []string
		for i := range questions {
			list = append(list, string(questions[i].ID))
		}

		return list
	}

	return a.Show(api.QuestionPage{Questions: questions}, names, func() error {
		if len(questions) == 0 {
			a.Note("nothing needs you")
			a.Next("trainyard inbox --all      include questions that are not open any more")

			return nil
		}

		for i := range questions {
			if err := a.questionText(&questions[i], a.Clock.Now()); err != nil {
				return err
			}
		}

		a.nextForQuestion(&questions[0])

		return nil
	})
}

// showQuestion shows a question that was asked for or answered.
func (a *app) showQuestion(q api.Question, err error) error {
	if err != nil {
		return err
	}

	return a.Show(q, func() []string { return []string{string(q.ID)} },
		func() error {
			err := a.questionText(&q, a.Clock.Now())
			a.nextForQuestion(&q)

			return err
		})
}

// nextForQuestion suggests how to answer a question.
func (a *app) nextForQuestion(q *api.Question) {
	if q.State != inbox.Open {
		a.Next(fmt.Sprintf("trainyard job %s      show the job", q.Job))
		return
	}

	a.Next(
		fmt.Sprintf("trainyard accept %s %s      accept an option", q.ID, q.Options[0].ID),
		fmt.Sprintf("trainyard dismiss %s      accept none of them", q.ID),
	)
}

// questionText writes a question with its options.
func (a *app) questionText(q *api.Question, now time.Time) error {
	what := "Needs you"
	switch {
	case q.State != inbox.Open:
		what = "Question"
	case q.Notice:
		what = "Notice"
	}

	state := humanize.Ago(q.Asked, now)
	if q.State != inbox.Open {
		state = string(q.State) + " " + humanize.Ago(q.Since, now)
	}

	if _, err := fmt.Fprintf(a.Stdout, "\n%s: %s, job %s of %s (%s)\n  %s\n", what, q.ID, q.Job, q.Owner, state,
		table.Plain(q.Sentence)); err != nil {
		return err
	}

	if q.State != inbox.Open {
		_, err := fmt.Fprintf(a.Stdout, "  %s\n", table.Plain(q.Reason))
		return err
	}

	t := a.NewTable("  OPTION", "COST", "EST. FINISH", "WHAT IT DOES")
	for i := range q.Options {
		o := &q.Options[i]
		t.Row("  "+o.ID, optionCost(o), optionEnd(o, now), o.Sentence)
	}

	if err := t.Write(a.Stdout); err != nil {
		return err
	}

	if q.Unless == "" {
		return nil
	}

	unless := "  if none is accepted, " + q.Unless
	if q.Expires != nil {
		unless += " " + inAbout(*q.Expires, now)
	}

	_, err := fmt.Fprintln(a.Stdout, table.Plain(unless))

	return err
}

func optionCost(o *api.QuestionOption) string {
	if o.Cost == nil {
		return "?"
	}

	return humanize.Dollars(*o.Cost)
}

// optionEnd writes when a job is expected to end, with the prediction interval.
func optionEnd(o *api.QuestionOption, now time.Time) string {
	if o.End == nil {
		return "?"
	}

	text := inAbout(*o.End, now)
	if o.EndLow != nil && o.EndHigh != nil {
		text += fmt.Sprintf(" (%s to %s)", humanize.Duration(max(o.EndLow.Sub(now), 0)),
			humanize.Duration(max(o.EndHigh.Sub(now), 0)))
	}

	return text
}
