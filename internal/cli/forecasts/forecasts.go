// Package forecasts holds the commands forecast and metrics, and the forecast section that job and jobs show.
//
// It is as thin as all commands: forecasts and metrics come through api and are written as sentences, tables
// and a plot. It computes nothing but how much of a forecast has passed since it was made. Package
// cli adds the commands to its root and gives them its console and its connection to the server.
package forecasts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
)

// Forecasts is what its commands share.
type Forecasts struct {
	*console.Console
	connect  func() (*api.Client, error)
	complete cobra.CompletionFunc // suggests jobs
}

// New returns the commands' common part. connect returns a client for the yard that was
// chosen, complete suggests jobs to the shell.
func New(c *console.Console, connect func() (*api.Client, error), complete cobra.CompletionFunc) *Forecasts {
	return &Forecasts{Console: c, connect: connect, complete: complete}
}

// Commands returns the commands.
func (f *Forecasts) Commands() []*cobra.Command { return []*cobra.Command{f.forecast(), f.metrics()} }

// Options is what is shown of a job's forecast.
type Options struct {
	Metric  string // whose curve is drawn; "" for that of the forecast
	NoPlot  bool
	Methods bool // with what each method says
}

// Flags gives a command the flags that choose.
func (o *Options) Flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.Metric, "metric", "", "plot the curve of this `metric`")
	flags.BoolVar(&o.NoPlot, "no-plot", false, "do not plot the curve")
	flags.BoolVar(&o.Methods, "methods", false, "show what each method estimates, with its weight and its error so far")
	cmd.MarkFlagsMutuallyExclusive("metric", "no-plot")
}

func (f *Forecasts) forecast() *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "forecast [JOB]",
		Short: "Show when a job will finish, or how accurate forecasts have been",
		Long: `Show the estimated finish of a job with its prediction interval, what the estimate is
based on, and plot the curve of its metric with its expected course. --methods adds what each
method estimates.

Without a job, show how accurate forecasts have been so far. Every method is replayed on
every finished job as if the job were still running. Its weight follows from its error,
and the prediction interval from the errors of the weighted mean. Until enough jobs have
finished, intervals are guesses and marked with "~".`,
		Example: `  trainyard forecast
  trainyard forecast j7
  trainyard forecast j7 --methods
  trainyard forecast j7 --metric train_loss
  trainyard forecast j7 -o json | jq .end`,
		Args:              exit.Args(0, 1, "job"),
		ValidArgsFunction: f.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if o.Metric != "" || o.NoPlot || o.Methods {
					return exit.Usagef(cmd, "--metric, --no-plot and --methods need a job")
				}

				return f.call(func(c *api.Client) error { return f.showRecord(cmd.Context(), c) })
			}

			return f.call(func(c *api.Client) error { return f.showForecast(cmd.Context(), c, args[0], o) })
		},
	}

	o.Flags(cmd)
	f.OutputFlag(cmd)
	cmd.AddCommand(f.importTable())

	return cmd
}

// call connects, and calls fn.
func (f *Forecasts) call(fn func(*api.Client) error) error {
	client, err := f.connect()
	if err != nil {
		return err
	}

	defer client.Close()

	return fn(client)
}

// showForecast shows the forecast of one job.
func (f *Forecasts) showForecast(ctx context.Context, c *api.Client, handle string, o Options) error {
	j, err := c.FindJob(ctx, handle)
	if err != nil {
		return err
	}

	made, err := c.Forecast(ctx, j)
	if err != nil {
		return err
	}

	return f.Show(made, nil, func() error {
		detail, err := c.Job(ctx, j)
		if err != nil {
			return err
		}

		detail.Forecast = &made
		name := strings.TrimSpace(string(j) + " " + table.Plain(detail.Name))

		return f.job(ctx, c, &detail, "Forecast of "+name, o)
	})
}

// Job writes what is expected of a job, and the curve it goes by. It writes nothing for a
// job of which nothing is known and nothing was measured.
func (f *Forecasts) Job(ctx context.Context, c *api.Client, j api.JobDetail, o Options) error {
	return f.job(ctx, c, &j, "\nForecast", o)
}

func (f *Forecasts) job(ctx context.Context, c *api.Client, j *api.JobDetail, head string, o Options) error {
	if err := f.section(j, head, o.Methods); err != nil || o.NoPlot {
		return err
	}

	curve, err := f.curve(ctx, c, j, o.Metric)
	if err != nil && o.Metric == "" && ctx.Err() == nil {
		// The rest of the job is worth seeing without its curve.
		f.Note("no curve: %v", err)
		return nil
	}

	if err != nil || curve == nil {
		return err
	}

	return f.draw(curve, j.Forecast, "\n")
}

// write writes lines to standard output.
func (f *Forecasts) write(format string, args ...any) error {
	_, err := fmt.Fprintf(f.Stdout, format, args...)
	return err
}

// now is the time that all of one answer is of.
func (f *Forecasts) now() time.Time { return f.Clock.Now() }
