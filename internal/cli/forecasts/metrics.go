package forecasts

import (
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/plot"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

const (
	formatPlot = "plot"
	formatCSV  = "csv"
	mostPoints = 1024 // that the server gives of a curve
	plotPoints = 500  // that are drawn
	plotRows   = 12
	plotWidth  = 120 // beyond that eyes lose the line
)

func (f *Forecasts) metrics() *cobra.Command {
	points := mostPoints
	cmd := &cobra.Command{
		Use:   "metrics JOB [METRIC]",
		Short: "Show the metrics of a job",
		Long: `List the metrics of a job and the source of each, or show the curve of one: as a plot on a
terminal, else as CSV (step,time,value). Long curves are downsampled so that they keep
their shape.`,
		Example: `  trainyard metrics j7
  trainyard metrics j7 val_loss
  trainyard metrics j7 val_loss -o csv > val_loss.csv
  trainyard metrics j7 val_loss -o json --points 50`,
		Args:              exit.Args(1, 2, "job"),
		ValidArgsFunction: f.completeMetrics,
		RunE: func(cmd *cobra.Command, args []string) error {
			if points < 2 || points > mostPoints {
				return exit.Usagef(cmd, "--points must be from 2 to %d", mostPoints)
			}

			if len(args) == 1 {
				if f.Output == formatPlot || f.Output == formatCSV || cmd.Flags().Changed("points") {
					return exit.Usagef(cmd, "--points and this output format need a METRIC")
				}

				return f.call(func(c *api.Client) error { return f.listMetrics(cmd.Context(), c, args[0]) })
			}

			if !cmd.Flags().Changed("output") {
				f.Output = formatCSV
				if f.OnTerminal(f.Stdout) {
					f.Output = formatPlot
				}
			}

			return f.call(func(c *api.Client) error { return f.showMetric(cmd.Context(), c, args[0], args[1], points) })
		},
	}

	f.OutputFlag(cmd, formatPlot, formatCSV)
	cmd.Flags().IntVar(&points, "points", mostPoints, "downsample the curve to at most `n` points")

	return cmd
}

// listMetrics lists what a job's program measures.
func (f *Forecasts) listMetrics(ctx context.Context, c *api.Client, handle string) error {
	j, err := c.FindJob(ctx, handle)
	if err != nil {
		return err
	}

	list, err := c.Metrics(ctx, j)
	if err != nil {
		return err
	}

	return f.Show(list, nil, func() error {
		now := f.now()
		t := f.NewTable("METRIC", "VALUE", "STEP", "TARGET", "POINTS", "LAST", "SOURCE")

		for i := range list.Metrics {
			m := &list.Metrics[i]
			value := table.Cell{Text: number(m.Value)}
			step := table.Amount(m.Step)
			goal := ""

			if m.Count == 0 {
				value.Text, step = "", ""
			}

			if m.NonFinite > 0 {
				value = table.Cell{
					Text:  strings.TrimPrefix(fmt.Sprintf("%s, then NaN %s", value.Text, times(m.NonFinite)), ", then "),
					Color: table.Red,
				}
			}

			if m.Goal != nil {
				goal = number(*m.Goal)
			}

			t.Cells(table.Cell{Text: m.Name}, value, table.Cell{Text: step}, table.Cell{Text: goal},
				table.Cell{Text: table.Amount(float64(m.Count))}, table.Cell{Text: heardAgo(m.At, now)}, table.Cell{Text: m.Source})
		}

		return f.WriteTable(
			t,
			fmt.Sprintf("%s has reported no metrics yet", j),
			fmt.Sprintf("trainyard logs -f %s       output lines such as \"step=100 loss=2.3\" are parsed", j),
			fmt.Sprintf("trainyard forecast %s      the forecast without metrics", j),
		)
	})
}

// times writes how often something was.
func times(n int) string {
	if n == 1 {
		return "once"
	}

	return strconv.Itoa(n) + " times"
}

// number writes a measured value.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// heardAgo writes how long ago a moment of Unix time was.
func heardAgo(at float64, now time.Time) string {
	if at <= 0 {
		return ""
	}

	return humanize.Ago(unix(at), now)
}

// unix turns seconds of Unix time into a time.
func unix(at float64) time.Time {
	whole, part := math.Modf(at)
	return time.Unix(int64(whole), int64(part*1e9)).UTC()
}

// showMetric shows one curve.
func (f *Forecasts) showMetric(ctx context.Context, c *api.Client, handle, name string, points int) error {
	j, err := c.FindJob(ctx, handle)
	if err != nil {
		return err
	}

	if f.Output == formatPlot {
		points = min(points, plotPoints)
	}

	curve, err := c.Curve(ctx, j, name, points)
	if err != nil {
		return err
	}

	return f.Show(curve, nil, func() error {
		switch f.Output {
		case formatCSV:
			return f.writeCSV(&curve)
		case formatPlot:
			if len(curve.Points) == 0 {
				f.Note("%s has no value of %q yet", j, name)
				return nil
			}

			detail, err := c.Job(ctx, j)
			if err != nil {
				return err
			}

			return f.draw(&curve, detail.Forecast, "")
		}

		t := f.NewTable("STEP", "TIME", "VALUE")
		for _, p := range curve.Points {
			t.Row(cells(&p)...)
		}

		return f.WriteTable(t, fmt.Sprintf("%s has no value of %q yet", j, name))
	})
}

// cells writes a point.
func cells(p *api.MetricPoint) []string {
	value := "NaN"
	if p.Value != nil {
		value = exact(*p.Value)
	}

	return []string{exact(p.Step), unix(p.At).Format("2006-01-02T15:04:05.000Z"), value}
}

func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func (f *Forecasts) writeCSV(c *api.Curve) error {
	w := csv.NewWriter(f.Stdout)
	rows := [][]string{{"step", "time", "value"}}
	for i := range c.Points {
		rows = append(rows, cells(&c.Points[i]))
	}

	return w.WriteAll(rows)
}

// curve returns the curve to show with a job: of the metric that is asked for, or of the
// one that matters most; nil if nothing was measured.
func (f *Forecasts) curve(ctx context.Context, c *api.Client, j *api.JobDetail, name string) (*api.Curve, error) {
	if name == "" && j.Forecast != nil {
		name = j.Forecast.Metric
	}

	if name == "" {
		list, err := c.Metrics(ctx, j.ID)
		if err != nil {
			return nil, err
		}

		name = choose(list.Metrics)
		if name == "" {
			return nil, nil //nolint:nilnil // nothing was measured, which is no mistake
		}
	}

	curve, err := c.Curve(ctx, j.ID, name, plotPoints)

	return &curve, err
}

// choose returns the metric that matters most: the target's, else a loss, else the first.
func choose(metrics []api.Metric) string {
	loss := func(m api.Metric) bool {
		return slices.ContainsFunc([]string{"loss", "nll", "perplexity", "ppl", "err", "entropy"}, func(word string) bool {
			return strings.Contains(strings.ToLower(m.Name), word)
		})
	}

	for _, fits := range []func(api.Metric) bool{func(m api.Metric) bool { return m.Goal != nil }, loss,
		func(api.Metric) bool { return true }} {
		if at := slices.IndexFunc(metrics, fits); at >= 0 {
			return metrics[at].Name
		}
	}

	return ""
}

// draw draws a curve, how it is expected to go on, and where it will end.
func (f *Forecasts) draw(c *api.Curve, made *api.Forecast, before string) error {
	p := plot.Plot{
		Goal: c.Goal, Width: min(f.Columns(f.Stdout), plotWidth), Rows: plotRows, ASCII: !f.UTF8(), Color: f.Color(f.Stdout),
	}
	for _, point := range c.Points {
		value := math.NaN()
		if point.Value != nil {
			value = *point.Value
		}

		p.X, p.Y = append(p.X, point.Step), append(p.Y, value)
	}

	if c.Fit != nil {
		p.Fit = &plot.Fit{X: c.Fit.Step, Mid: c.Fit.Mid, Low: c.Fit.Low, High: c.Fit.High}
	}

	if made != nil && made.Metric == c.Name && made.Done > 0 && made.Done < 1 && len(p.X) > 0 {
		p.End = new(p.X[len(p.X)-1] / made.Done)
	}

	lines := p.Lines()
	if len(lines) == 0 {
		return nil
	}

	return f.write("%s%s\n%s\n", before, table.Cut(table.Plain(f.title(&c.Metric)), p.Width), strings.Join(lines, "\n"))
}

// title says what is drawn: "val_loss: 2.412 at step 12.4K, 20 secs ago, from stdout (tqdm)".
func (f *Forecasts) title(m *api.Metric) string {
	text := fmt.Sprintf("%s: %s at step %s", m.Name, number(m.Value), table.Amount(m.Step))
	if ago := heardAgo(m.At, f.now()); ago != "" {
		text += ", " + ago
	}

	if m.Source != "" {
		text += ", from " + m.Source
	}

	if m.NonFinite > 0 {
		text += "; then NaN " + times(m.NonFinite)
	}

	return text
}

// completeMetrics suggests jobs to the shell, and then the job's metrics.
func (f *Forecasts) completeMetrics(
	cmd *cobra.Command,
	args []string,
	start string,
) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return f.complete(cmd, args, start)
	}

	var words []string
	if len(args) > 1 {
		return words, cobra.ShellCompDirectiveNoFileComp
	}

	err := f.call(func(c *api.Client) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()

		list, err := c.Metrics(ctx, id.Job(args[0]))
		for _, m := range list.Metrics {
			if strings.HasPrefix(m.Name, start) {
				words = append(words, table.Plain(m.Name))
			}
		}

		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	return words, cobra.ShellCompDirectiveNoFileComp
}
