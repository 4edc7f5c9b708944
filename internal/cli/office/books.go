package office

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/id"
)

// reportFlags are those of every report.
type reportFlags struct {
	span
	by, where []string
	csv       bool
}

// reportFlags gives a command the flags of every report.
func (o *Office) reportFlags(cmd *cobra.Command, r *reportFlags) {
	r.flags(cmd, "30d")
	cmd.Flags().BoolVar(&r.csv, "csv", false, "as text with commas")
	o.OutputFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("csv", "output")
}

// query returns what is asked for.
func (r *reportFlags) query(cmd *cobra.Command, now time.Time) (api.BookQuery, error) {
	from, to, err := r.read(cmd, now)
	return api.BookQuery{From: from, To: to, By: r.by, Where: r.where}, err
}

// period says of what time a report is.
func (o *Office) period(from, to *time.Time) string {
	const layout = "2006-01-02 15:04"
	text := "since the beginning"
	if from != nil {
		text = "from " + from.UTC().Format(layout)
	}
	if to == nil {
		return text + " until now"
	}
	return text + " to " + to.UTC().Format(layout) + " UTC"
}

func (o *Office) books() *cobra.Command {
	var r reportFlags
	cmd := &cobra.Command{
		Use: "books", Short: "Add up node-time, GPU-time, money and energy by anything", Args: exit.NoArgs,
		Long: "Add up the books of any period by anything: researcher, project, class, node, gpu, provider, offer, lease, job, run,\n" +
			"account (use, idle, error, foreign, drained, boot, returning, waste), hour, day, week, month.\n" +
			"What runs now counts as if it ended now. Researchers see their own rows.",
		Example: "  trainyard books --by researcher,class --last 7d\n  trainyard books --by day --where class=ondemand --csv > books.csv\n  trainyard books --by node,account --from 2026-11-01 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := r.query(cmd, o.Clock.Now())
			if err != nil {
				return err
			}
			return o.call(func(c *api.Client) error {
				if r.csv {
					return c.CSV(cmd.Context(), "books", q, o.Stdout)
				}
				b, err := c.Books(cmd.Context(), q)
				if err != nil {
					return err
				}
				return o.Show(b, nil, func() error { return o.booksTable(&b) })
			})
		},
	}
	o.reportFlags(cmd, &r)
	cmd.Flags().StringSliceVar(&r.by, "by", []string{"researcher", "class"}, "rows are by `these`, separated by commas")
	cmd.Flags().StringArrayVar(&r.where, "where", nil, "only what has this, as in `class=ondemand`; may be given several times")
	return cmd
}

func (o *Office) booksTable(b *api.Books) error {
	head := make([]string, 0, len(b.Group)+5)
	for _, k := range b.Group {
		head = append(head, strings.ToUpper(k))
	}
	t := o.NewTable(append(head, "NODE-HOURS", "GPU-HOURS", "RENT", "ENERGY", "KWH", "COST")...)
	add := func(keys []string, a *api.Amounts) {
		t.Row(append(append([]string{}, keys...), hours(a.NodeSeconds), hours(a.GPUSeconds), table.Dollars(a.Rent), table.Dollars(a.Power),
			strconv.FormatFloat(a.Energy, 'f', 2, 64), table.Dollars(a.Cost))...)
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
		if _, err := fmt.Fprintf(o.Stdout, "The books %s\n\n", o.period(b.From, b.To)); err != nil {
			return err
		}
	}
	return o.WriteTable(t, "nothing is in the books "+o.period(b.From, b.To), "trainyard books --last all       since the beginning", "trainyard nodes                  is there a node?")
}

func (o *Office) usage() *cobra.Command {
	var r reportFlags
	var researcher string
	cmd := &cobra.Command{
		Use: "usage", Short: "Report how much was used, by whom, and what it cost", Args: exit.NoArgs,
		Long: "Report the use rate of local and reserved nodes; on-demand nodes created, their time and cost; time on local and reserved\n" +
			"nodes by researcher; on-demand nodes by researcher; and what was there and not used. What runs now counts as if it ended now.",
		Example: "  trainyard usage\n  trainyard usage --last 7d\n  trainyard usage --from 2026-11-01 --to 2026-12-01 --csv > november.csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := r.query(cmd, o.Clock.Now())
			if err != nil {
				return err
			}
			q.Researcher = id.User(researcher)
			return o.call(func(c *api.Client) error {
				if r.csv {
					return c.CSV(cmd.Context(), "usage", q, o.Stdout)
				}
				u, err := c.Usage(cmd.Context(), q)
				if err != nil {
					return err
				}
				return o.Show(u, nil, func() error { return o.usageText(&u) })
			})
		},
	}
	o.reportFlags(cmd, &r)
	cmd.Flags().StringVar(&researcher, "researcher", "", "only what this `user` used and pays for")
	return cmd
}

// usageText writes the groups one below the other, each with its name.
func (o *Office) usageText(u *api.Usage) error {
	if len(u.UseRate)+len(u.Own)+len(u.OnDemandBy)+len(u.Unused) == 0 {
		o.Note("nothing was there to be used %s", o.period(u.From, u.To))
		o.Next("trainyard usage --last all                    since the beginning", "trainyard tokens create --join                then join a machine with what it prints")
		return nil
	}
	gpu, money := make([]float64, len(u.Trend)), make([]float64, len(u.Trend))
	used, spent := 0.0, 0.0
	for i, t := range u.Trend {
		gpu[i], money[i] = t.GPUSeconds, t.Cost
		used, spent = used+t.GPUSeconds, spent+t.Cost
	}
	if _, err := fmt.Fprintf(o.Stdout, "Usage %s\n\nGPU-hours  %s  %s\nMoney      %s  %s\n", o.period(u.From, u.To), spark(gpu), hours(used), spark(money), table.Dollars(spent)); err != nil {
		return err
	}
	for _, group := range []struct {
		title string
		table *table.Table
		none  string
	}{
		{"Use rate of local and reserved nodes", o.rates(u.UseRate), "there are none"},
		{"On-demand nodes: creations, time, cost", o.hired(u.OnDemand, "OFFER", func(h *api.Hired) string { return orAll(h.Offer) }), "none were hired"},
		{"Time on local and reserved nodes, by researcher", o.own(u.Own), "nobody used them"},
		{"On-demand nodes: creations, time, cost, by researcher", o.hired(u.OnDemandBy, "RESEARCHER", func(h *api.Hired) string { return orYard(h.Researcher) }), "none were hired"},
		{"There and not used", o.unused(u.Unused), "nothing"},
	} {
		if _, err := fmt.Fprintf(o.Stdout, "\n%s\n", group.title); err != nil {
			return err
		}
		if group.table.Len() == 0 {
			if _, err := io.WriteString(o.Stdout, group.none+"\n"); err != nil {
				return err
			}
			continue
		}
		if err := group.table.Write(o.Stdout); err != nil {
			return err
		}
	}
	return nil
}

func orAll(name string) string {
	if name == "" {
		return "(all)"
	}
	return name
}

func orYard(u id.User) string {
	if u == "" {
		return "(the yard)"
	}
	return string(u)
}

func (o *Office) rates(list []api.UseRate) *table.Table {
	t := o.NewTable("CLASS", "NODE", "GPUS USED", "", "GPU-HOURS", "NODES USED", "NODE-HOURS")
	of := func(busy, all float64) string { return hours(busy) + " of " + hours(all) }
	for _, r := range list {
		drawn, rate, gpuHours := bar(r.GPURate), table.Percent(r.GPURate), of(r.BusyGPU, r.AvailableGPU)
		if r.AvailableGPU == 0 {
			drawn, rate, gpuHours = bar(r.NodeRate), "no GPUs", ""
		}
		t.Row(string(r.Class), orAll(string(r.Node)), drawn, rate, gpuHours, table.Percent(r.NodeRate), of(r.BusyNode, r.AvailableNode))
	}
	return t
}

func (o *Office) hired(list []api.Hired, head string, name func(*api.Hired) string) *table.Table {
	t := o.NewTable(head, "CREATIONS", "NODE-HOURS", "GPU-HOURS", "ESTIMATED", "BILLED")
	for i := range list {
		h := &list[i]
		if head == "OFFER" && len(list) == 1 && h.Creations == 0 && h.NodeSeconds == 0 {
			continue // all of nothing
		}
		billed := ""
		if h.BilledLeases > 0 {
			billed = fmt.Sprintf("%s for %s", table.Dollars(h.Billed), table.Count(h.BilledLeases, "lease"))
		}
		t.Row(name(h), strconv.Itoa(h.Creations), hours(h.NodeSeconds), hours(h.GPUSeconds), table.Dollars(h.Estimated), billed)
	}
	return t
}

func (o *Office) own(list []api.OwnTime) *table.Table {
	t := o.NewTable("RESEARCHER", "CLASS", "NODE-HOURS", "GPU-HOURS", "COST")
	for _, x := range list {
		t.Row(orYard(x.Researcher), string(x.Class), hours(x.NodeSeconds), hours(x.GPUSeconds), table.Dollars(x.Cost))
	}
	return t
}

func (o *Office) unused(list []api.Unused) *table.Table {
	t := o.NewTable("CLASS", "WHY", "NODE-HOURS", "GPU-HOURS", "COST")
	for _, x := range list {
		t.Row(string(x.Class), x.Account, hours(x.NodeSeconds), hours(x.GPUSeconds), table.Dollars(x.Cost))
	}
	return t
}

func (o *Office) savings() *cobra.Command {
	var r reportFlags
	cmd := &cobra.Command{
		Use: "savings", Short: "Report what decisions saved, and why", Args: exit.NoArgs,
		Long:    "Report what decisions saved against what would have been done instead, as far as could be told when they were taken.\nResearchers see what was saved for them.",
		Example: "  trainyard savings\n  trainyard savings --by researcher --last 7d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := r.query(cmd, o.Clock.Now())
			if err != nil {
				return err
			}
			return o.call(func(c *api.Client) error {
				if r.csv {
					return c.CSV(cmd.Context(), "savings", q, o.Stdout)
				}
				s, err := c.Savings(cmd.Context(), q)
				if err != nil {
					return err
				}
				return o.Show(s, nil, func() error { return o.savingsText(&s) })
			})
		},
	}
	o.reportFlags(cmd, &r)
	cmd.Flags().StringSliceVar(&r.by, "by", []string{"kind"}, "rows are by `these`: researcher, project, job, kind, hour, day, week, month")
	cmd.Flags().StringArrayVar(&r.where, "where", nil, "only what has this, as in `researcher=ann`; may be given several times")
	return cmd
}

func (o *Office) savingsText(s *api.Savings) error {
	head := make([]string, 0, len(s.Group)+3)
	for _, k := range s.Group {
		head = append(head, strings.ToUpper(k))
	}
	t := o.NewTable(append(head, "DECISIONS", "SAVED", "HOURS SAVED")...)
	for i := range s.Rows {
		r := &s.Rows[i]
		t.Row(append(append([]string{}, r.Keys...), strconv.Itoa(r.Count), table.Dollars(r.Money), hours(r.Seconds))...)
	}
	if len(s.Rows) == 0 {
		return o.WriteTable(t, "no decision saved anything "+o.period(s.From, s.To), "trainyard savings --last all     since the beginning")
	}
	if _, err := fmt.Fprintf(o.Stdout, "Saved %s: %s by %s\n\n", o.period(s.From, s.To), table.Dollars(s.Total.Money), table.Count(s.Total.Count, "decision")); err != nil {
		return err
	}
	if err := t.Write(o.Stdout); err != nil {
		return err
	}
	why := o.NewTable("WHEN", "JOB", "OWNER", "SAVED", "INSTEAD OF")
	for _, d := range s.Decisions {
		why.Row(d.At.UTC().Format("2006-01-02 15:04"), string(d.Job), string(d.Owner), table.Dollars(d.Money), d.Reason)
	}
	if _, err := io.WriteString(o.Stdout, "\nThe greatest of them\n"); err != nil {
		return err
	}
	return why.Write(o.Stdout)
}
