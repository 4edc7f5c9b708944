package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

func (a *app) dismiss() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dismiss QUESTION",
		Short: "End a question without accepting an option",
		Long: `End a question without accepting an option. A job that has failed and is held for the answer fails;
one whose budget is used up stays paused. A notice is gone from the inbox.`,
		Example: "  trainyard dismiss j7.q1",
		Args:    exit.Args(1, 1, "question"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				return a.showQuestion(c.Dismiss(cmd.Context(), id.Question(args[0])))
			})
		},
	}

	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}
