package forecasts

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
)

// maxTable bounds what is read of a table: the server takes no more.
const maxTable = 16 << 20

func (f *Forecasts) importTable() *cobra.Command {
	format := "csv"
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import past jobs as forecast history",
		Long: `Import past jobs as forecast history. FILE is a table with a header line and one job per
line, plain or compressed with gzip; "-" is standard input.

Columns of the csv format, in any order; only seconds is required:
  seconds    how long the job ran
  job        a unique name
  finished   when it ended, as 2026-03-01 or 2026-03-01T12:00:00Z
  group      jobs of one group are not independent of each other
  wait       seconds from submission to start
  name, owner, command, task, model, params, framework, metric, target, batch, rate,
  amount, gpu, tflops, gpus, nodes
             as in a job file; empty means unknown
  hyper.X    a further numeric hyperparameter X

The mlperf format is the table of MLPerf Training runs. Importing a table again replaces
its jobs. Requires the admin role.`,
		Example: `  trainyard forecast import old-jobs.csv
  trainyard forecast import runs.csv.gz --format mlperf`,
		Args: exit.Args(1, 1, "file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readTable(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}

			return f.call(func(c *api.Client) error {
				reply, err := c.ImportHistory(cmd.Context(), format, text)
				if err != nil {
					return err
				}

				return f.Show(reply, nil, func() error {
					words := fmt.Sprintf("%d jobs imported", reply.Read)
					if reply.Kept < reply.Read {
						words = fmt.Sprintf("%d jobs read, the newest %d imported", reply.Read, reply.Kept)
					}

					_, err := fmt.Fprintln(cmd.OutOrStdout(), words)

					return err
				})
			})
		},
	}

	cmd.Flags().StringVar(&format, "format", format, "`format` of the table: csv or mlperf")
	f.OutputFlag(cmd)

	return cmd
}

// readTable reads a file, or standard input.
func readTable(in io.Reader, path string) ([]byte, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fault.New(fault.Invalid, "bad_file", "%v", err).WithCause(err)
		}

		defer func() { _ = file.Close() }()

		in = file
	}

	text, err := io.ReadAll(io.LimitReader(in, maxTable+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_file", "cannot read %s: %v", path, err).WithCause(err)
	}

	if len(text) > maxTable {
		return nil, fault.New(fault.Invalid, "too_large", "%s is larger than %d MB", path, maxTable>>20).
			WithRemedy("keep the newest jobs, or compress it")
	}

	return text, nil
}
