package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

// usage reports what was used and what it cost: the four groups of figures, or with --by
// rows by any keys.
func (a *app) usage() *cobra.Command {
	var r reportFlags
	var researcher string
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Report usage and cost, by researcher or any other key",
		Args:  exit.NoArgs,
		Long: `Report the use rate of local and reserved nodes; on-demand nodes created, their time and cost; time on
local and reserved nodes by researcher; on-demand nodes by researcher; and what was paid for but not used.

With --by, report node-time, GPU-time, cost and energy grouped by any keys: researcher, project, class,
node, gpu, provider, offer, lease, job, run, account (use, idle, error, foreign, cordoned, boot, releasing,
waste), hour, day, week, month.

Running jobs count up to now. Researchers see their own rows.`,
		Example: `  trainyard usage
  trainyard usage --from 2026-11-01 --to 2026-12-01 --csv > november.csv
  trainyard usage --by researcher,class --last 7d
  trainyard usage --by day --where class=ondemand --csv > ondemand.csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := r.query(cmd, a.Clock.Now())
			if err != nil {
				return err
			}

			q.Researcher = id.User(researcher)

			grouped := len(r.by) > 0
			if !grouped && len(r.where) > 0 {
				return exit.Usagef(cmd, "--where requires --by")
			}
			if grouped && researcher != "" {
				return exit.Usagef(cmd, "with --by write --where researcher=%s", researcher)
			}

			return a.withClient(func(c *api.Client) error {
				switch {
				case r.csv && grouped:
					return c.CSV(cmd.Context(), "usage/report", q, a.Stdout)
				case r.csv:
					return c.CSV(cmd.Context(), "usage", q, a.Stdout)
				case grouped:
					return a.usageReport(cmd.Context(), c, q)
				}

				return a.usageGroups(cmd.Context(), c, q)
			})
		},
	}

	a.reportFlags(cmd, &r)
	cmd.Flags().StringVar(&researcher, "researcher", "", "only the usage of this `user`")
	cmd.Flags().StringSliceVar(&r.by, "by", nil, "group rows by these `keys`, separated by commas")
	cmd.Flags().StringArrayVar(&r.where, "where", nil,
		"with --by: only rows with this `key=value`, e.g. class=ondemand; may be given several times")

	return cmd
}

// usageGroups shows the four groups of figures.
func (a *app) usageGroups(ctx context.Context, c *api.Client, q api.UsageQuery) error {
	u, err := c.Usage(ctx, q)
	if err != nil {
		return err
	}

	return a.Show(u, nil, func() error { return a.usageText(&u) })
}

// usageText writes the groups one below the other, each with its name.
func (a *app) usageText(u *api.Usage) error {
	if len(u.UseRate)+len(u.Own)+len(u.OnDemandBy)+len(u.Unused) == 0 {
		a.Note("no usage %s", a.period(u.From, u.To))
		a.Next(
			"trainyard usage --last all                    since the beginning",
			"trainyard tokens create --join                add a node with the token",
		)

		return nil
	}

	gpu, spent := make([]float64, len(u.Trend)), make([]float64, len(u.Trend))
	money := moneyWriter(u.NoTariff)

	gpuSeconds, cost := 0.0, 0.0
	for i, t := range u.Trend {
		gpu[i], spent[i] = t.GPUSeconds, t.Cost
		gpuSeconds, cost = gpuSeconds+t.GPUSeconds, cost+t.Cost
	}

	if _, err := fmt.Fprintf(
		a.Stdout,
		"Usage %s\n\nGPU-hours  %s  %s\nCost       %s  %s\n",
		a.period(u.From, u.To),
		spark(gpu),
		hours(gpuSeconds),
		spark(spent),
		cmp.Or(money(cost), "unknown"),
	); err != nil {
		return err
	}

	for _, group := range []struct {
		title string
		table *table.Table
		none  string
	}{
		{"Use rate of local and reserved nodes", a.rates(u.UseRate), "none"},
		{"On-demand nodes: creations, time, cost",
			a.provisioned(u.OnDemand, "OFFER", func(h *api.Provisioned) string { return orAll(h.Offer) }),
			"none were provisioned"},
		{"Time on local and reserved nodes, by researcher", a.own(u.Own, money), "none"},
		{"On-demand nodes: creations, time, cost, by researcher",
			a.provisioned(u.OnDemandBy, "RESEARCHER", func(h *api.Provisioned) string { return orYard(h.Researcher) }),
			"none were provisioned"},
		{"Paid for but not used", a.unused(u.Unused, money), "none"},
	} {
		if _, err := fmt.Fprintf(a.Stdout, "\n%s\n", group.title); err != nil {
			return err
		}

		if group.table.Len() == 0 {
			if _, err := io.WriteString(a.Stdout, group.none+"\n"); err != nil {
				return err
			}

			continue
		}

		if err := group.table.Write(a.Stdout); err != nil {
			return err
		}
	}

	a.noteTariff(u.NoTariff)

	return nil
}

// moneyWriter returns how costs are written: without a tariff, nothing was not spent but is not known, and is left out.
func moneyWriter(noTariff bool) func(float64) string {
	return func(amount float64) string {
		if noTariff && amount == 0 {
			return ""
		}

		return humanize.Dollars(amount)
	}
}

// noteTariff says why costs are missing.
func (a *app) noteTariff(missing bool) {
	if missing {
		a.Note("The server has no tariff, so what local and reserved nodes cost is not known; " +
			"an admin sets it with --tariff.")
	}
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

func (a *app) rates(list []api.UseRate) *table.Table {
	t := a.NewTable("CLASS", "NODE", "GPUS USED", "", "GPU-HOURS", "NODES USED", "NODE-HOURS")
	of := func(busy, all float64) string { return hours(busy) + " of " + hours(all) }

	for _, r := range list {
		drawn := bar(r.GPURate)
		rate := humanize.Percent(r.GPURate)

		gpuHours := of(r.BusyGPU, r.AvailableGPU)
		if r.AvailableGPU == 0 {
			drawn, rate, gpuHours = bar(r.NodeRate), "no GPUs", ""
		}

		t.Row(
			string(r.Class),
			orAll(string(r.Node)),
			drawn,
			rate,
			gpuHours,
			humanize.Percent(r.NodeRate),
			of(r.BusyNode, r.AvailableNode),
		)
	}

	return t
}

func (a *app) provisioned(list []api.Provisioned, head string, name func(*api.Provisioned) string) *table.Table {
	t := a.NewTable(head, "CREATIONS", "NODE-HOURS", "GPU-HOURS", "ESTIMATED", "BILLED")

	for i := range list {
		h := &list[i]
		if head == "OFFER" && len(list) == 1 && h.Creations == 0 && h.NodeSeconds == 0 {
			continue // all of nothing
		}

		billed := ""
		if h.BilledLeases > 0 {
			billed = fmt.Sprintf("%s for %s", humanize.Dollars(h.Billed), humanize.Count(h.BilledLeases, "lease"))
		}

		t.Row(
			name(h),
			strconv.Itoa(h.Creations),
			hours(h.NodeSeconds),
			hours(h.GPUSeconds),
			humanize.Dollars(h.Estimated),
			billed,
		)
	}

	return t
}

func (a *app) own(list []api.OwnTime, money func(float64) string) *table.Table {
	t := a.NewTable("RESEARCHER", "CLASS", "NODE-HOURS", "GPU-HOURS", "COST")
	for _, x := range list {
		t.Row(orYard(x.Researcher), string(x.Class), hours(x.NodeSeconds), hours(x.GPUSeconds), money(x.Cost))
	}

	return t
}

func (a *app) unused(list []api.Unused, money func(float64) string) *table.Table {
	t := a.NewTable("CLASS", "WHY", "NODE-HOURS", "GPU-HOURS", "COST")
	for _, x := range list {
		t.Row(string(x.Class), x.Account, hours(x.NodeSeconds), hours(x.GPUSeconds), money(x.Cost))
	}

	return t
}
