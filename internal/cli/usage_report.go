package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
)

func (a *app) books() *cobra.Command {
	var r reportFlags
	cmd := &cobra.Command{
		Use: "books", Short: "Add up node-time, GPU-time, money and energy by anything", Args: exit.NoArgs,
		Long: "Add up the books of any period by anything: researcher, project, class, node, gpu, provider, offer, lease, job, run,\n" +
			"account (use, idle, error, foreign, drained, boot, returning, waste), hour, day, week, month.\n" +
			"What runs now counts as if it ended now. Researchers see their own rows.",
		Example: "  trainyard books --by researcher,class --last 7d\n  trainyard books --by day --where class=ondemand --csv > books.csv\n  trainyard books --by node,account --from 2026-11-01 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := r.query(cmd, a.Clock.Now())
			if err != nil {
				return err
			}
			return a.withClient(func(c *api.Client) error {
				if r.csv {
					return c.CSV(cmd.Context(), "books", q, a.Stdout)
				}
				b, err := c.Books(cmd.Context(), q)
				if err != nil {
					return err
				}
				return a.Show(b, nil, func() error { return a.booksTable(&b) })
			})
		},
	}
	a.reportFlags(cmd, &r)
	cmd.Flags().StringSliceVar(&r.by, "by", []string{"researcher", "class"}, "rows are by `these`, separated by commas")
	cmd.Flags().StringArrayVar(&r.where, "where", nil, "only what has this, as in `class=ondemand`; may be given several times")
	return cmd
}

func (a *app) booksTable(b *api.Books) error {
	head := make([]string, 0, len(b.Group)+5)
	for _, k := range b.Group {
		head = append(head, strings.ToUpper(k))
	}
	t := a.NewTable(append(head, "NODE-HOURS", "GPU-HOURS", "RENT", "ENERGY", "KWH", "COST")...)
	add := func(keys []string, m *api.Amounts) {
		t.Row(append(append([]string{}, keys...), hours(m.NodeSeconds), hours(m.GPUSeconds), table.Dollars(m.Rent), table.Dollars(m.Power),
			strconv.FormatFloat(m.Energy, 'f', 2, 64), table.Dollars(m.Cost))...)
	}
	for i := range b.Rows {
		keys := append([]string{}, b.Rows[i].Keys...)
		for k, name := range b.Group {
			if keys[k] == "" && name == "researcher" {
				keys[k] = "(the yard)"
			}
		}
		add(keys, &b.Rows[i].Amounts)
	}
	if len(b.Rows) > 1 && len(b.Group) > 0 {
		total := make([]string, len(b.Group))
		total[0] = "TOTAL"
		add(total, &b.Total)
	}
	if len(b.Rows) > 0 {
		if _, err := fmt.Fprintf(a.Stdout, "The books %s\n\n", a.period(b.From, b.To)); err != nil {
			return err
		}
	}
	return a.WriteTable(t, "nothing is in the books "+a.period(b.From, b.To), "trainyard books --last all       since the beginning", "trainyard nodes                  is there a node?")
}
