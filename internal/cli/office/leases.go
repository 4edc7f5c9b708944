package office

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

func (o *Office) offers() *cobra.Command {
	var f api.OfferFilter
	var spot, closed bool
	cmd := &cobra.Command{
		Use: "offers", Short: "List what can be hired, the cheapest first", Args: exit.NoArgs,
		Long:    "List the kinds of on-demand nodes that can be hired, the cheapest first. What a provider refused lately is not asked for\nuntil some time has passed: --closed lists that, and why.",
		Example: "  trainyard offers --gpu A100\n  trainyard offers --gpu A100:80GB --spot\n  trainyard offers --closed",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("spot") {
				f.Spot = &spot
			}
			return o.call(func(c *api.Client) error { return o.listOffers(cmd.Context(), c, f, closed) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.GPU, "gpu", "", "only with this `kind` of GPU: A100 or A100:80GB")
	flags.StringVar(&f.Provider, "provider", "", "only of this `provider`")
	flags.StringVar(&f.Region, "region", "", "only in this `region`")
	flags.BoolVar(&spot, "spot", false, "only such that can be taken back; --spot=false for the others")
	flags.BoolVar(&closed, "closed", false, "list what is not asked for now, and why")
	o.OutputFlag(cmd)
	o.QuietFlag(cmd)
	return cmd
}

func (o *Office) listOffers(ctx context.Context, c *api.Client, f api.OfferFilter, closed bool) error {
	all := api.OfferPage{Closed: []api.Closing{}}
	var err error
	all.Offers, err = collect(func(p api.Page) ([]fleet.Offer, string, error) {
		f.Page = p
		page, err := c.Offers(ctx, f)
		all.Closed = append(all.Closed, page.Closed...)
		return page.Offers, page.Next, err
	})
	if err != nil {
		return err
	}
	names := func() []string {
		var list []string
		for i := range all.Offers {
			list = append(list, all.Offers[i].Name)
		}
		return list
	}
	return o.Show(all, names, func() error {
		if closed {
			return o.WriteTable(o.closedTable(all.Closed), "everything that is offered may be asked for")
		}
		if n := len(all.Closed); n > 0 {
			defer o.Note("Refused lately and not asked for now: %s. See: trainyard offers --closed", table.Count(n, "kind of node"))
		}
		f.Page = api.Page{}
		if f == (api.OfferFilter{}) && len(all.Closed) == 0 {
			return o.WriteTable(o.offerTable(all.Offers), "nothing can be hired: the server was not told of a provider", "trainyard server --help     see --clouds")
		}
		return o.WriteTable(o.offerTable(all.Offers), "nothing that can be hired fits", "trainyard offers            all that can be hired")
	})
}

func (o *Office) offerTable(offers []fleet.Offer) *table.Table {
	t := o.NewTable("OFFER", "GPUS", "CPUS", "MEMORY", "HOURLY", "PER GPU", "SPOT", "BILLED", "BOOT")
	for i := range offers {
		f := &offers[i]
		gpus, each, spot, billed, boot := "", "", "", "by the second", ""
		if f.GPUs > 0 {
			gpus, each = table.GPUs(f.GPUs, f.GPU, f.GPUMemory, f.Fake), table.Dollars(float64(f.Hourly)/1e6/float64(f.GPUs))
		}
		if f.Spot {
			spot = "spot"
			if f.Losses > 0 {
				spot = "spot, lost " + table.Percent(f.Losses) + " an hour"
				if f.Losses >= 1 {
					spot = fmt.Sprintf("spot, lost %.2g times an hour", f.Losses)
				}
			}
		}
		if f.Bills > 0 {
			billed = "by " + table.Duration(time.Duration(f.Bills))
		}
		if f.Boot > 0 {
			boot = table.Duration(time.Duration(f.Boot))
		}
		t.Row(f.Name, gpus, f.CPUs.String(), f.Memory.Short(), table.Dollars(float64(f.Hourly)/1e6), each, spot, billed, boot)
	}
	return t
}

func (o *Office) closedTable(list []api.Closing) *table.Table {
	now := o.Clock.Now()
	t := o.NewTable("NOT ASKED FOR", "WHY", "REFUSED", "LAST", "ASKED AGAIN", "OFFERS")
	for _, c := range list {
		t.Row(c.What, c.Why, table.Count(c.Times, "time"), table.Ago(c.Since, now), table.Ago(c.Until, now), fmt.Sprint(c.Offers))
	}
	return t
}

func (o *Office) leases() *cobra.Command {
	var f api.LeaseFilter
	var all bool
	var owner, job string
	cmd := &cobra.Command{
		Use: "leases [LEASE]", Aliases: []string{"lease"}, Short: "List the nodes that are hired, or show one", Args: exit.Args(0, 1, "lease"),
		Long:    "List the yard's holds on hired nodes, newest first: those that have not ended, or all with --all. Researchers see what was hired for them.",
		Example: "  trainyard leases\n  trainyard leases --all\n  trainyard leases l7\n  trainyard leases report",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.call(func(c *api.Client) error {
				if len(args) == 1 {
					l, err := c.Lease(cmd.Context(), id.Lease(args[0]))
					if err != nil {
						return err
					}
					return o.Show(l, func() []string { return []string{string(l.ID)} }, func() error { return o.leaseDetail(&l) })
				}
				f.Live, f.Owner, f.Job = !all, id.User(owner), id.Job(job)
				return o.listLeases(cmd.Context(), c, f)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&all, "all", "a", false, "also those that have ended")
	flags.StringVar(&owner, "owner", "", "only what was hired for this `user`")
	flags.StringVar(&job, "job", "", "only what was hired for this `job`")
	o.OutputFlag(cmd, console.Wide)
	o.QuietFlag(cmd)
	cmd.AddCommand(o.reaper())
	return cmd
}

func (o *Office) listLeases(ctx context.Context, c *api.Client, f api.LeaseFilter) error {
	leases, err := collect(func(p api.Page) ([]api.Lease, string, error) {
		f.Page = p
		page, err := c.Leases(ctx, f)
		return page.Leases, page.Next, err
	})
	if err != nil {
		return err
	}
	names := func() []string {
		var list []string
		for i := range leases {
			list = append(list, string(leases[i].ID))
		}
		return list
	}
	return o.Show(api.LeasePage{Leases: leases}, names, func() error {
		return o.WriteTable(o.leaseTable(leases), "nothing is hired", "trainyard leases --all      also what was hired before", "trainyard offers            what could be hired")
	})
}

func (o *Office) leaseTable(leases []api.Lease) *table.Table {
	now, wide := o.Clock.Now(), o.Output == console.Wide
	head := []string{"LEASE", "STATE", "SINCE", "OFFER", "NODE", "JOB", "OWNER", "KEPT", "COST", "ENDS"}
	if wide {
		head = append(head, "INSTANCE", "ASKED", "REASON")
	}
	t := o.NewTable(head...)
	for i := range leases {
		l := &leases[i]
		ends := ""
		if l.Ends != nil && !l.State.Final() {
			ends = table.Ago(*l.Ends, now)
		}
		row := []table.Cell{
			{Text: string(l.ID)}, {Text: leaseState(l), Color: leaseColor(l)}, {Text: table.Ago(l.Since, now)}, {Text: l.Offer.Name}, {Text: string(l.Node)},
			{Text: string(l.Job)}, {Text: string(l.Owner)}, {Text: kept(l)}, {Text: table.Dollars(l.Cost)}, {Text: ends},
		}
		if wide {
			row = append(row, table.Cell{Text: l.Instance}, table.Cell{Text: table.Ago(l.Asked, now)}, table.Cell{Text: l.Reason})
		}
		t.Cells(row...)
	}
	return t
}

func leaseState(l *api.Lease) string {
	if l.Stray {
		return string(l.State) + " (stray)"
	}
	return string(l.State)
}

func leaseColor(l *api.Lease) table.Color {
	switch {
	case l.Stray || l.State == fleet.LeaseRefused:
		return table.Red
	case l.State == fleet.LeaseActive:
		return table.Green
	case l.State == fleet.LeaseEnded:
		return table.Gray
	}
	return table.Yellow
}

func kept(l *api.Lease) string {
	if l.Kept == 0 {
		return ""
	}
	return table.Duration(time.Duration(l.Kept * float64(time.Second)))
}

func (o *Office) leaseDetail(l *api.Lease) error {
	now := o.Clock.Now()
	cost := table.Dollars(l.Cost) + " by the offer's price of " + l.Offer.Hourly.String() + " an hour"
	if l.Billed != nil {
		cost += "; the provider charged " + table.Dollars(*l.Billed)
	}
	return o.Fields(
		console.Field{Name: "Lease", Value: string(l.ID)}, console.Field{Name: "State", Value: since(leaseState(l), table.Ago(l.Since, now)), Color: leaseColor(l)},
		console.Field{Name: "Reason", Value: l.Reason}, console.Field{Name: "Offer", Value: l.Offer.Name}, console.Field{Name: "Machine", Value: l.Instance},
		console.Field{Name: "Node", Value: string(l.Node)}, console.Field{Name: "Job", Value: string(l.Job)}, console.Field{Name: "Owner", Value: string(l.Owner)},
		console.Field{Name: "Project", Value: string(l.Project)}, console.Field{Name: "Gang", Value: l.Gang},
		console.Field{Name: "Asked", Value: stamp(&l.Asked, now)}, console.Field{Name: "Granted", Value: stamp(l.Granted, now)},
		console.Field{Name: "Joined", Value: stamp(l.Joined, now)}, console.Field{Name: "Ends", Value: stamp(l.Ends, now)},
		console.Field{Name: "Returned", Value: stamp(l.Returned, now)}, console.Field{Name: "Ended", Value: stamp(l.Ended, now)},
		console.Field{Name: "Kept", Value: kept(l)}, console.Field{Name: "Cost", Value: cost},
	)
}

func (o *Office) giveBack() *cobra.Command {
	cmd := &cobra.Command{
		Use: "return LEASE...", Short: "Give hired nodes back", Args: exit.Args(1, 0, "lease"),
		Long:    "Give hired nodes back to their providers. What runs there is stopped, with its grace time, and starts again elsewhere.",
		Example: "  trainyard leases\n  trainyard return l7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.call(func(c *api.Client) error {
				if err := o.sure(cmd.Context(), "Give back "+strings.Join(args, ", ")+"? What runs there starts again elsewhere."); err != nil {
					return err
				}
				page := api.LeasePage{Leases: []api.Lease{}}
				for _, name := range args {
					l, err := c.ReturnLease(cmd.Context(), id.Lease(name))
					if err != nil {
						return fmt.Errorf("return %s: %w", name, err)
					}
					page.Leases = append(page.Leases, l)
				}
				return o.Show(page, nil, func() error { return o.leaseTable(page.Leases).Write(o.Stdout) })
			})
		},
	}
	o.YesFlag(cmd)
	o.OutputFlag(cmd)
	return cmd
}

func (o *Office) reaper() *cobra.Command {
	cmd := &cobra.Command{
		Use: "report", Short: "Say what was found at providers and no lease explains", Args: exit.NoArgs,
		Long:    "Say what was found when the leases were compared with what providers show: machines that no lease knew of, orders of which it\nwas not known whether they made a machine, leases past their end, and providers that do not answer.",
		Example: "  trainyard leases report",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.call(func(c *api.Client) error {
				r, err := c.Reaper(cmd.Context())
				if err != nil {
					return err
				}
				return o.Show(r, nil, func() error { return o.reaperText(&r) })
			})
		},
	}
	o.OutputFlag(cmd)
	return cmd
}

func (o *Office) reaperText(r *api.ReaperReport) error {
	now := o.Clock.Now()
	var states []string
	for _, s := range fleet.LeaseStates() {
		if n := r.States[string(s)]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(states) == 0 {
		states = []string{"none"}
	}
	if err := o.Pairs("Leases", strings.Join(states, ", ")); err != nil {
		return err
	}
	for _, f := range r.Failing {
		if _, err := fmt.Fprintf(o.Stdout, "%s does not answer as it should: %s\n", table.Plain(f.Provider), table.Plain(f.Why)); err != nil {
			return err
		}
	}
	if len(r.Overdue) > 0 {
		if _, err := io.WriteString(o.Stdout, "\nNot ended though their time is over:\n"); err != nil {
			return err
		}
		if err := o.leaseTable(r.Overdue).Write(o.Stdout); err != nil {
			return err
		}
	}
	events := slices.Concat(r.Strays, r.Unclear, r.Failures)
	if len(events) == 0 {
		_, err := io.WriteString(o.Stdout, "Nothing was found that no lease explains, and every provider answered.\n")
		return err
	}
	slices.SortFunc(events, func(a, b api.Event) int { return int(a.Seq) - int(b.Seq) })
	t := o.NewTable("WHEN", "WHAT", "LEASE", "REASON")
	for _, e := range events {
		t.Row(table.Ago(e.At, now), e.Kind, string(e.Lease), e.Reason)
	}
	if _, err := io.WriteString(o.Stdout, "\n"); err != nil {
		return err
	}
	return t.Write(o.Stdout)
}
