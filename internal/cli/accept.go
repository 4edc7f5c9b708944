package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

func (a *app) accept() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept QUESTION [OPTION]",
		Short: "Accept an option of a question, which is carried out at once",
		Long: `Accept an option of a question, the recommended one if none is named. It is carried out at once.
If it is not what it was when the question was asked, because it costs more or is not possible any
more, nothing is done and the options as they are now are shown.`,
		Example: `  trainyard accept j7.q1
  trainyard accept j7.q1 raise-budget`,
		Args: exit.Args(1, 2, "question"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				option := ""
				if len(args) == 2 {
					option = args[1]
				}

				name := id.Question(args[0])
				q, err := c.Accept(cmd.Context(), name, option)

				var refused *fault.Error
				if errors.As(err, &refused) && refused.Code == "option_stale" {
					fresh, failed := c.Question(cmd.Context(), name)
					return errors.Join(err, a.showQuestion(fresh, failed))
				}

				return a.showQuestion(q, err)
			})
		},
	}

	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}
