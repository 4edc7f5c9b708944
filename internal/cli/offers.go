package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
)

func (a *app) offers() *cobra.Command {
	var f api.OfferFilter
	var spot, closed bool
	cmd := &cobra.Command{
		Use:   "offers",
		Short: "List offers that can be provisioned, cheapest first",
		Args:  exit.NoArgs,
		Long: `List the on-demand nodes that can be provisioned, the cheapest first. After a provider has refused an
offer it is not requested again for a while: --closed lists those offers, and why.`,
		Example: "  trainyard offers --gpu A100\n  trainyard offers --gpu A100:80GB --spot\n  trainyard offers --closed",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("spot") {
				f.Spot = &spot
			}

			return a.withClient(func(c *api.Client) error { return a.listOffers(cmd.Context(), c, f, closed) })
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&f.GPU, "gpu", "", "only with this GPU `type`, e.g. A100 or A100:80GB")
	flags.StringVar(&f.Provider, "provider", "", "only offers of this `provider`")
	flags.StringVar(&f.Region, "region", "", "only offers in this `region`")
	flags.BoolVar(&spot, "spot", false, "only spot offers; --spot=false for on-demand offers only")
	flags.BoolVar(&closed, "closed", false, "list offers that are not requested now, and why")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}

func (a *app) listOffers(ctx context.Context, c *api.Client, f api.OfferFilter, closed bool) error {
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

	return a.Show(all, names, func() error {
		if closed {
			return a.WriteTable(a.closedTable(all.Closed), "no closed offers")
		}

		if n := len(all.Closed); n > 0 {
			defer a.Note(
				"Refused recently and not requested now: %s. See: trainyard offers --closed",
				humanize.Count(n, "offer"),
			)
		}

		f.Page = api.Page{}
		if f == (api.OfferFilter{}) && len(all.Closed) == 0 {
			return a.WriteTable(
				a.offerTable(all.Offers),
				"no offers: the server has no cloud provider",
				"trainyard server --help     see --clouds",
			)
		}

		return a.WriteTable(a.offerTable(all.Offers), "no matching offers", "trainyard offers            all offers")
	})
}

func (a *app) offerTable(offers []fleet.Offer) *table.Table {
	t := a.NewTable("OFFER", "GPUS", "CPUS", "MEMORY", "HOURLY", "PER GPU", "SPOT", "BILLED", "BOOT")

	for i := range offers {
		f := &offers[i]
		gpus := ""
		each := ""
		spot := ""
		billed := "per second"
		boot := ""

		if f.GPUs > 0 {
			gpus, each = table.GPUs(f.GPUs, f.GPU, f.GPUMemory, f.Fake), humanize.Dollars(f.PerGPU().Of(1).For(time.Hour))
		}

		if f.Spot {
			spot = "spot"
			if f.LossRate > 0 {
				spot = "spot, lost " + humanize.Percent(f.LossRate) + " per hour"
				if f.LossRate >= 1 {
					spot = fmt.Sprintf("spot, lost %.2g times per hour", f.LossRate)
				}
			}
		}

		if f.BillingIncrement > 0 {
			billed = "per " + humanize.Duration(time.Duration(f.BillingIncrement))
		}

		if f.Boot > 0 {
			boot = humanize.Duration(time.Duration(f.Boot))
		}

		t.Row(
			f.Name,
			gpus,
			f.CPUs.String(),
			humanize.Size(f.Memory),
			humanize.Dollars(f.PerHour().For(time.Hour)),
			each,
			spot,
			billed,
			boot,
		)
	}

	return t
}

func (a *app) closedTable(list []api.Closing) *table.Table {
	now := a.Clock.Now()
	t := a.NewTable("NOT REQUESTED", "WHY", "REFUSED", "LAST", "RETRY", "OFFERS")
	for _, c := range list {
		t.Row(
			c.What,
			c.Why,
			humanize.Count(c.Times, "time"),
			humanize.Ago(c.Since, now),
			humanize.Ago(c.Until, now),
			fmt.Sprint(c.Offers),
		)
	}

	return t
}
