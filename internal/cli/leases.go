package cli

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
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

func (a *app) leases() *cobra.Command {
	var f api.LeaseFilter
	var all bool
	var owner, job string
	cmd := &cobra.Command{
		Use:     "leases [LEASE]",
		Aliases: []string{"lease"},
		Short:   "List leases of provisioned nodes, or show one",
		Args:    exit.Args(0, 1, "lease"),
		Long: `List the leases of provisioned nodes, newest first: those that have not ended, or all with --all.
Researchers see the nodes that were provisioned for them.`,
		Example: "  trainyard leases\n  trainyard leases --all\n  trainyard leases l7\n  trainyard leases report",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if len(args) == 1 {
					l, err := c.Lease(cmd.Context(), id.Lease(args[0]))
					if err != nil {
						return err
					}

					return a.Show(l, func() []string { return []string{string(l.ID)} }, func() error { return a.leaseDetail(&l) })
				}

				f.Live, f.Owner, f.Job = !all, id.User(owner), id.Job(job)

				return a.listLeases(cmd.Context(), c, f)
			})
		},
	}

	flags := cmd.Flags()
	flags.BoolVarP(&all, "all", "a", false, "also those that have ended")
	flags.StringVar(&owner, "owner", "", "only nodes provisioned for this `user`")
	flags.StringVar(&job, "job", "", "only nodes provisioned for this `job`")
	a.OutputFlag(cmd, console.Wide)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.reaper())

	return cmd
}

func (a *app) listLeases(ctx context.Context, c *api.Client, f api.LeaseFilter) error {
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

	return a.Show(api.LeasePage{Leases: leases}, names, func() error {
		return a.WriteTable(
			a.leaseTable(leases),
			"no leases",
			"trainyard leases --all      include ended leases",
			"trainyard offers            list what can be provisioned",
		)
	})
}

func (a *app) leaseTable(leases []api.Lease) *table.Table {
	now, wide := a.Clock.Now(), a.Output == console.Wide
	head := []string{"LEASE", "STATE", "SINCE", "OFFER", "NODE", "JOB", "OWNER", "KEPT", "COST", "ENDS"}
	if wide {
		head = append(head, "INSTANCE", "REQUESTED", "REASON")
	}

	t := a.NewTable(head...)

	for i := range leases {
		l := &leases[i]
		ends := ""
		if l.Ends != nil && !l.State.Final() {
			ends = humanize.Ago(*l.Ends, now)
		}

		row := []table.Cell{
			{
				Text: string(l.ID),
			},
			{Text: leaseState(l), Color: leaseColor(l)},
			{Text: humanize.Ago(l.Since, now)},
			{Text: l.Offer.Name},
			{Text: string(l.Node)},
			{Text: string(l.Job)},
			{Text: string(l.Owner)},
			{Text: kept(l)},
			{Text: humanize.Dollars(l.Cost)},
			{Text: ends},
		}

		if wide {
			row = append(
				row,
				table.Cell{Text: l.Instance},
				table.Cell{Text: humanize.Ago(l.Requested, now)},
				table.Cell{Text: l.Reason},
			)
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

	return humanize.Duration(time.Duration(l.Kept * float64(time.Second)))
}

func (a *app) leaseDetail(l *api.Lease) error {
	now := a.Clock.Now()
	cost := humanize.Dollars(l.Cost) + " at the offer's price of " + dollars(l.Offer.Hourly) + " per hour"
	if l.Billed != nil {
		cost += "; the provider charged " + humanize.Dollars(*l.Billed)
	}

	return a.Fields(
		console.Field{
			Name:  "Lease",
			Value: string(l.ID),
		},
		console.Field{Name: "State", Value: since(leaseState(l), humanize.Ago(l.Since, now)), Color: leaseColor(l)},
		console.Field{
			Name:  "Reason",
			Value: l.Reason,
		},
		console.Field{Name: "Offer", Value: l.Offer.Name},
		console.Field{Name: "Machine", Value: l.Instance},
		console.Field{
			Name:  "Node",
			Value: string(l.Node),
		},
		console.Field{Name: "Job", Value: string(l.Job)},
		console.Field{Name: "Owner", Value: string(l.Owner)},
		console.Field{Name: "Project", Value: string(l.Project)},
		console.Field{Name: "Gang", Value: l.Gang},
		console.Field{
			Name:  "Requested",
			Value: stamp(&l.Requested, now),
		},
		console.Field{Name: "Granted", Value: stamp(l.Granted, now)},
		console.Field{Name: "Joined", Value: stamp(l.Joined, now)},
		console.Field{Name: "Ends", Value: stamp(l.Ends, now)},
		console.Field{
			Name:  "Released",
			Value: stamp(l.Released, now),
		},
		console.Field{Name: "Ended", Value: stamp(l.Ended, now)},
		console.Field{Name: "Kept", Value: kept(l)},
		console.Field{Name: "Cost", Value: cost},
	)
}

func (a *app) reaper() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report instances without a lease",
		Args:  exit.NoArgs,
		Long: `Report the differences between the leases and what the providers list: instances without a lease,
requests with an unknown outcome, leases past their end, and providers that do not answer.`,
		Example: "  trainyard leases report",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error {
				r, err := c.Reaper(cmd.Context())
				if err != nil {
					return err
				}

				return a.Show(r, nil, func() error { return a.reaperText(&r) })
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) reaperText(r *api.ReaperReport) error {
	now := a.Clock.Now()
	var states []string
	for _, s := range fleet.LeaseStates() {
		if n := r.States[string(s)]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, s))
		}
	}

	if len(states) == 0 {
		states = []string{"none"}
	}

	if err := a.Pairs("Leases", strings.Join(states, ", ")); err != nil {
		return err
	}

	for _, f := range r.Failing {
		if _, err := fmt.Fprintf(
			a.Stdout,
			"%s is not responding properly: %s\n",
			table.Plain(f.Provider),
			table.Plain(f.Why),
		); err != nil {
			return err
		}
	}

	if len(r.Overdue) > 0 {
		if _, err := io.WriteString(a.Stdout, "\nPast their end:\n"); err != nil {
			return err
		}
		if err := a.leaseTable(r.Overdue).Write(a.Stdout); err != nil {
			return err
		}
	}

	events := slices.Concat(r.Strays, r.Unclear, r.Failures)
	if len(events) == 0 {
		_, err := io.WriteString(a.Stdout, "No instances without a lease; every provider answered.\n")
		return err
	}

	slices.SortFunc(events, func(x, y api.Event) int { return int(x.Seq) - int(y.Seq) })

	t := a.NewTable("WHEN", "WHAT", "LEASE", "REASON")
	for _, e := range events {
		t.Row(humanize.Ago(e.At, now), e.Kind, string(e.Lease), e.Reason)
	}

	if _, err := io.WriteString(a.Stdout, "\n"); err != nil {
		return err
	}

	return t.Write(a.Stdout)
}
