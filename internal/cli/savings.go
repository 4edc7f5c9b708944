package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/humanize"
)

func (a *app) savings() *cobra.Command {
	var r reportFlags
	cmd := &cobra.Command{
		Use:   "savings",
		Short: "Report savings of scheduling decisions, and why",
		Args:  exit.NoArgs,
		Long: `Report what decisions saved compared with what would have been done instead, in money and in time. Losses are
negative. A decision is settled when its job has ended, by what the job did and cost; jobs that have not ended are
not included. Researchers see what was saved for them.`,
		Example: "  trainyard savings\n  trainyard savings --by researcher --last 7d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := r.query(cmd, a.Clock.Now())
			if err != nil {
				return err
			}

			return a.withClient(func(c *api.Client) error {
				if r.csv {
					return c.CSV(cmd.Context(), "savings", q, a.Stdout)
				}

				s, err := c.Savings(cmd.Context(), q)
				if err != nil {
					return err
				}

				return a.Show(s, nil, func() error { return a.savingsText(&s) })
			})
		},
	}

	a.reportFlags(cmd, &r)
	cmd.Flags().
		StringSliceVar(&r.by, "by", []string{"kind"}, "group rows by these `keys`: researcher, project, job, kind, hour, "+
			"day, week, month")
	cmd.Flags().
		StringArrayVar(&r.where, "where", nil, "only rows with this `key=value`, e.g. researcher=ann; may be given "+
			"several times")

	return cmd
}

func (a *app) savingsText(s *api.Savings) error {
	head := make([]string, 0, len(s.Group)+3)
	for _, k := range s.Group {
		head = append(head, strings.ToUpper(k))
	}

	t := a.NewTable(append(head, "DECISIONS", "SAVED", "HOURS SAVED")...)
	for i := range s.Rows {
		r := &s.Rows[i]
		t.Row(append(append([]string{}, r.Keys...), strconv.Itoa(r.Count), humanize.Dollars(r.Money), hours(r.Seconds))...)
	}

	if len(s.Rows) == 0 {
		return a.WriteTable(t, "no savings "+a.period(s.From, s.To), "trainyard savings --last all     since the beginning")
	}

	if _, err := fmt.Fprintf(
		a.Stdout,
		"Saved %s: %s and %s hours by %s\n\n",
		a.period(s.From, s.To),
		humanize.Dollars(s.Total.Money),
		hours(s.Total.Seconds),
		humanize.Count(s.Total.Count, "decision"),
	); err != nil {
		return err
	}

	if err := t.Write(a.Stdout); err != nil {
		return err
	}

	why := a.NewTable("SETTLED", "JOB", "OWNER", "KIND", "SAVED", "HOURS SAVED", "ALTERNATIVE")
	for _, d := range s.Decisions {
		why.Row(d.At.UTC().Format("2006-01-02 15:04"), string(d.Job), string(d.Owner), d.Kind, humanize.Dollars(d.Money),
			hours(d.Seconds), d.Reason)
	}

	if _, err := io.WriteString(a.Stdout, "\nLargest savings and losses\n"); err != nil {
		return err
	}

	return why.Write(a.Stdout)
}
