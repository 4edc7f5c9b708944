package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/id"
)

func (a *app) usage() *cobra.Command {
	var r reportFlags
	var researcher string
	cmd := &cobra.Command{
		Use: "usage", Short: "Report how much was used, by whom, and what it cost", Args: exit.NoArgs,
		Long: "Report the use rate of local and reserved nodes; on-demand nodes created, their time and cost; time on local and reserved\n" +
			"nodes by researcher; on-demand nodes by researcher; and what was there and not used. What runs now counts as if it ended now.",
		Example: "  trainyard usage\n  trainyard usage --last 7d\n  trainyard usage --from 2026-11-01 --to 2026-12-01 --csv > november.csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := r.query(cmd, a.Clock.Now())
			if err != nil {
				return err
			}
			q.Researcher = id.User(researcher)
			return a.withClient(func(c *api.Client) error {
				if r.csv {
					return c.CSV(cmd.Context(), "usage", q, a.Stdout)
				}
				u, err := c.Usage(cmd.Context(), q)
				if err != nil {
					return err
				}
				return a.Show(u, nil, func() error { return a.usageText(&u) })
			})
		},
	}
	a.reportFlags(cmd, &r)
	cmd.Flags().StringVar(&researcher, "researcher", "", "only what this `user` used and pays for")
	return cmd
}

// usageText writes the groups one below the other, each with its name.
func (a *app) usageText(u *api.Usage) error {
	if len(u.UseRate)+len(u.Own)+len(u.OnDemandBy)+len(u.Unused) == 0 {
		a.Note("nothing was there to be used %s", a.period(u.From, u.To))
		a.Next("trainyard usage --last all                    since the beginning", "trainyard tokens create --join                then join a machine with what it prints")
		return nil
	}
	gpu, money := make([]float64, len(u.Trend)), make([]float64, len(u.Trend))
	used, spent := 0.0, 0.0
	for i, t := range u.Trend {
		gpu[i], money[i] = t.GPUSeconds, t.Cost
		used, spent = used+t.GPUSeconds, spent+t.Cost
	}
	if _, err := fmt.Fprintf(a.Stdout, "Usage %s\n\nGPU-hours  %s  %s\nMoney      %s  %s\n", a.period(u.From, u.To), spark(gpu), hours(used), spark(money), table.Dollars(spent)); err != nil {
		return err
	}
	for _, group := range []struct {
		title string
		table *table.Table
		none  string
	}{
		{"Use rate of local and reserved nodes", a.rates(u.UseRate), "there are none"},
		{"On-demand nodes: creations, time, cost", a.hired(u.OnDemand, "OFFER", func(h *api.Hired) string { return orAll(h.Offer) }), "none were hired"},
		{"Time on local and reserved nodes, by researcher", a.own(u.Own), "nobody used them"},
		{"On-demand nodes: creations, time, cost, by researcher", a.hired(u.OnDemandBy, "RESEARCHER", func(h *api.Hired) string { return orYard(h.Researcher) }), "none were hired"},
		{"There and not used", a.unused(u.Unused), "nothing"},
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

func (a *app) rates(list []api.UseRate) *table.Table {
	t := a.NewTable("CLASS", "NODE", "GPUS USED", "", "GPU-HOURS", "NODES USED", "NODE-HOURS")
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

func (a *app) hired(list []api.Hired, head string, name func(*api.Hired) string) *table.Table {
	t := a.NewTable(head, "CREATIONS", "NODE-HOURS", "GPU-HOURS", "ESTIMATED", "BILLED")
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

func (a *app) own(list []api.OwnTime) *table.Table {
	t := a.NewTable("RESEARCHER", "CLASS", "NODE-HOURS", "GPU-HOURS", "COST")
	for _, x := range list {
		t.Row(orYard(x.Researcher), string(x.Class), hours(x.NodeSeconds), hours(x.GPUSeconds), table.Dollars(x.Cost))
	}
	return t
}

func (a *app) unused(list []api.Unused) *table.Table {
	t := a.NewTable("CLASS", "WHY", "NODE-HOURS", "GPU-HOURS", "COST")
	for _, x := range list {
		t.Row(string(x.Class), x.Account, hours(x.NodeSeconds), hours(x.GPUSeconds), table.Dollars(x.Cost))
	}
	return t
}
