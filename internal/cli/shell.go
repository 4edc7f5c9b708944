package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
)

// idleProgram is the program of a job that is there for its shells alone. It ends at once when it is asked to.
const idleProgram = `trap 'exit 0' TERM
while :; do sleep 86400 & wait $!; done`

// shell opens a shell inside a running job, or in a new one.
func (a *app) shell() *cobra.Command {
	var rank int
	var f interactiveFlags

	cmd := &cobra.Command{
		Use: "shell [JOB]", Short: "Open a shell inside a running job, or in a new one",
		Long: `Open a shell inside a running job: on its node, as its user, with its environment, files, GPUs and limits.

It begins in the working directory of the job. What you leave running ends with the shell, and all of it ends with the
job. A shell that reads from a file or a pipe gets no terminal.

Without JOB a job is started for you, with what the flags ask for, and the shell opens when it runs. The job ends when
you leave the shell, unless you give --keep or the connection was lost: then it goes on until it was idle for --idle.
You are warned before (see: trainyard notify).`,
		Example: `  trainyard shell j7
  trainyard shell @last --rank 1
  echo 'ls -l ckpt' | trainyard shell j7
  trainyard shell --gpus 1 --workdir .
  trainyard shell --gpu A100:80GB --gpus 2 --idle 2h --keep`,
		Args:              exit.Args(0, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			start := api.TunnelStart{Kind: api.TunnelExec, Rank: rank}
			terminal := a.OnTerminal(a.Stdin)

			return a.withClient(func(c *api.Client) error {
				if len(args) == 0 {
					return a.shellInNewJob(cmd, c, &f, start, terminal)
				}

				if err := forNewJobs(cmd); err != nil {
					return err
				}

				j, err := c.FindJob(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				return a.enter(cmd.Context(), c, j, start, terminal)
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "open it beside this `rank` of the job")
	f.add(cmd)

	return cmd
}

// shellInNewJob starts a job, opens a shell in it, and ends it.
func (a *app) shellInNewJob(
	cmd *cobra.Command, c *api.Client, f *interactiveFlags, start api.TunnelStart, terminal bool,
) error {
	if cmd.Flags().Changed("rank") {
		return exit.Usagef(cmd, "--rank is for a running job: name one")
	}

	j, err := a.startInteractive(cmd, c, f, idleProgram)
	if err != nil {
		return err
	}

	err = a.enter(cmd.Context(), c, j, start, terminal)
	a.leaveInteractive(cmd.Context(), c, j, f.keep, "shell", err)

	return err
}
