package cli

import (
	"fmt"
	"net"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
)

// tensorboardPort is where TensorBoard is expected.
const tensorboardPort = 6006

// tensorboardScript starts TensorBoard on a port that nobody uses; it says on which.
const tensorboardScript = `exec tensorboard --logdir "$1" --host 127.0.0.1 --port 0`

// tensorboardURL is in the line with which TensorBoard says that it has started.
var tensorboardURL = regexp.MustCompile(`TensorBoard \S+ at http://[^\s/]*:(\d+)/`)

// tensorboard shows the TensorBoard of a running job.
func (a *app) tensorboard() *cobra.Command {
	var rank, local int

	cmd := &cobra.Command{
		Use: "tensorboard JOB [FOLDER]", Short: "Open TensorBoard on the files of a running job",
		Long: `Start TensorBoard beside a running job, on a folder of its working directory (all of it if none is given), and
forward a port of this machine to it until Ctrl-C or the end of the job. TensorBoard ends with the command.

TensorBoard must be installed in the environment of the job. To reach one that the job itself has started, use
forward.`,
		Example: `  trainyard tensorboard j7 runs
  trainyard tensorboard @last --port 6007`,
		Args:              exit.Args(1, 2, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			folder := "."
			if len(args) > 1 {
				folder = args[1]
			}

			return a.withClient(func(c *api.Client) error {
				j, err := c.FindJob(ctx, args[0])
				if err != nil {
					return err
				}

				b, err := startBeside(ctx, c, j, rank, tensorboardScript, folder)
				if err != nil {
					return err
				}

				defer b.stop()

				port, err := b.await(ctx, "TensorBoard", func() (int, error) { return tensorboardAt(b.output.String()), nil })
				if err != nil {
					return interrupted(ctx, err)
				}

				f := a.forwarder(c, j, rank)
				f.listening = func(at net.Addr, _ int) error {
					_, err := fmt.Fprintf(a.Stdout, "TensorBoard of job %s: http://%s/\nCtrl-C ends it.\n", j, at)
					return err
				}

				pair := portPair{local: local, remote: port, orAny: !cmd.Flags().Changed("port")}

				return b.forwardTo(ctx, f, "TensorBoard", pair)
			})
		},
	}

	cmd.Flags().IntVar(&rank, "rank", 0, "start it beside this `rank` of the job")
	cmd.Flags().IntVar(&local, "port", tensorboardPort, "`port` of this machine; any free one if the default is taken")

	return cmd
}

// tensorboardAt finds the port in the output of TensorBoard; 0 if it has not started yet.
func tensorboardAt(output string) int {
	found := tensorboardURL.FindStringSubmatch(output)
	if found == nil {
		return 0
	}

	port, err := strconv.ParseUint(found[1], 10, 16)
	if err != nil {
		return 0
	}

	return int(port)
}
