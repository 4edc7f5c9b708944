package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
)

// exec runs a command inside a running job.
func (a *app) exec() *cobra.Command {
	var rank int
	var terminal bool

	cmd := &cobra.Command{
		Use: "exec JOB -- COMMAND [ARGUMENT...]", Short: "Run a command inside a running job",
		Long: `Run a command inside a running job: on its node, as its user, with its environment, files, GPUs and limits.

Input and output are connected with yours, and the exit code is that of the command (128 and the number of the signal
if one ended it). Ctrl-C interrupts the command. What it leaves running ends with it, and all of it ends with the job.

Only jobs of nodes that isolate jobs can be entered, and of others' jobs only those without env and secrets.`,
		Example: `  trainyard exec j7 -- nvidia-smi
  trainyard exec j7 --rank 1 -- tail -n 20 train.log
  trainyard exec -t j7 -- top`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 && at != 1 || len(args) < 2 {
				return exit.Usagef(cmd, "give a job and, after --, the command to run in it")
			}

			return nil
		},
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				j, err := c.FindJob(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				start := api.TunnelStart{Kind: api.TunnelExec, Rank: rank, Command: args[1:]}

				return a.enter(cmd.Context(), c, j, start, terminal)
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "run it beside this `rank` of the job")
	cmd.Flags().BoolVarP(&terminal, "terminal", "t", false, "give the command a terminal")

	return cmd
}
