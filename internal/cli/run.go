package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/fault"
)

func (a *app) run() *cobra.Command {
	var f submitFlags
	var r jobfile.Command
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command as a job and follow it",
		Long: `Run a command as a job, without a job file. Several words are run as they are; a
single one is a shell command line, which bash -e runs: the first command that fails
ends the job. Nothing is uploaded unless --workdir names a directory. Otherwise as
submit: the plan is shown, the output is followed, Ctrl-C stops following and the job
keeps running.`,
		Example: `  trainyard run -- hostname
  trainyard run --gpus 1 --workdir . -- python train.py --lr 0.1
  trainyard run --gpu A100:80GB --gpus 8 -d -n big -- 'torchrun train.py | tee out.txt'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef(cmd, "a command is required after two dashes: trainyard run -- python train.py")
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := r.File(jobfile.CommandLine(args))
			if err != nil {
				return err
			}

			draft, err := a.maker().Make(text, ".", f.changes(cmd))
			if err != nil {
				return fault.WithoutPlace(err)
			}

			return a.doSubmit(cmd.Context(), draft, f)
		},
	}

	// What follows the command's name is the command's, dashes or not.
	cmd.Flags().SetInterspersed(false)
	flags := cmd.Flags()
	flags.StringVar(&r.GPUs, "gpus", "", "`number` of GPUs per node, e.g. 2 or 1..8")
	flags.StringVar(&r.GPU, "gpu", "", "GPU `type`, e.g. A100:80GB; separate several with commas")
	flags.StringVar(&r.CPUs, "cpus", "", "`number` of CPUs per node")
	flags.StringVar(&r.Memory, "memory", "", "`memory` per node, e.g. 32GB")
	flags.StringVar(&r.Nodes, "nodes", "", "`number` of nodes")
	flags.StringVar(&r.Workdir, "workdir", "", "`directory` to upload and run in")
	flags.StringVar(&r.Image, "image", "", "container `image` to run in, e.g. python:3.13")
	flags.StringVar(&r.Setup, "setup", "", "`command` that prepares the node")
	flags.StringVar(&r.MaxDuration, "max-duration", "", "stop the job after this `duration`, e.g. 6h")
	flags.StringVar(&r.Place, "place", "", "`place` where it may run: local, cloud or any")
	f.add(a, cmd)

	return cmd
}
