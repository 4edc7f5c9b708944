package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
)

// shell opens a shell inside a running job.
func (a *app) shell() *cobra.Command {
	var rank int

	cmd := &cobra.Command{
		Use: "shell JOB", Short: "Open a shell inside a running job",
		Long: `Open a shell inside a running job: on its node, as its user, with its environment, files, GPUs and limits.

It begins in the working directory of the job. What you leave running ends with the shell, and all of it ends with the
job. A shell that reads from a file or a pipe gets no terminal.`,
		Example: `  trainyard shell j7
  trainyard shell @last --rank 1
  echo 'ls -l ckpt' | trainyard shell j7`,
		Args:              exit.Args(1, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				j, err := c.FindJob(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				start := api.TunnelStart{Kind: api.TunnelExec, Rank: rank}

				return a.enter(cmd.Context(), c, j, start, a.OnTerminal(a.Stdin))
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "open it beside this `rank` of the job")

	return cmd
}
