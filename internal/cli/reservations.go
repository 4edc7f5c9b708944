package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// reservations lists, adds and ends reservations of nodes for users.
func (a *app) reservations() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "reservations",
		Short: "List, add or end reservations of nodes for a user and a time",
		Args:  exit.NoArgs,
		Long: `List the nodes that are set aside for a user and a time. While a reservation lasts, only jobs of that user
start on its nodes. Jobs of others that still run there when it begins save a checkpoint and are requeued.
For some time before (--notice) no job of others starts there any more.

Adding and ending reservations requires an operator or admin.`,
		Example: `  trainyard reservations
  trainyard reservations add gpu-1 gpu-2 --user ada --from 2026-12-01T09:00 --for 8h
  trainyard reservations rm r1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error {
				list, err := c.Reservations(cmd.Context(), all)
				if err != nil {
					return err
				}

				return a.showReservations(list)
			})
		},
	}

	cmd.Flags().BoolVarP(&all, "all", "a", false, "include reservations that are over")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.addReservation(), a.endReservation())

	return cmd
}

func (a *app) showReservations(list api.ReservationList) error {
	names := func() []string {
		ids := make([]string, len(list.Reservations))
		for i := range list.Reservations {
			ids[i] = string(list.Reservations[i].ID)
		}

		return ids
	}

	return a.Show(list, names, func() error {
		now := a.Clock.Now()
		t := a.NewTable("ID", "USER", "NODES", "FROM", "UNTIL", "BY", "STATE", "WHY")

		for i := range list.Reservations {
			r := &list.Reservations[i]
			t.Row(string(r.ID), string(r.User), few(r.Nodes), stamp(&r.From, now), stamp(&r.Until, now), string(r.By),
				reservationState(r, now), r.Why)
		}

		return a.WriteTable(t, "no reservations", "trainyard reservations add NODE... --user USER --for 8h")
	})
}

// reservationState says what a reservation does now.
func reservationState(r *api.Reservation, now time.Time) string {
	switch {
	case r.Ended != nil:
		return "over"
	case !now.Before(r.From):
		return "active"
	case !now.Before(r.From.Add(-time.Duration(r.Notice))):
		return "closed to others"
	}

	return "planned"
}

func (a *app) addReservation() *cobra.Command {
	var in api.ReservationRequest
	var from, lasts, notice string
	cmd := &cobra.Command{
		Use:   "add NODE...",
		Short: "Set nodes aside for a user",
		Long: `Set nodes aside for a user, from now or a later time on. On-demand nodes cannot be reserved: they are
provisioned for jobs and released.`,
		Example: `  trainyard reservations add gpu-1 --user ada --for 4h
  trainyard reservations add gpu-1 gpu-2 --user ada --from 2026-12-01T09:00 --for 8h --notice 2h --why "deadline"`,
		Args: exit.Args(1, 0, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Nodes = args
			if in.User == "" || lasts == "" {
				return exit.Usagef(cmd, "--user and --for are required")
			}

			begin := a.Clock.Now()
			if from != "" {
				at, err := moment(from)
				if err != nil {
					return exit.Usagef(cmd, "--from: %v", err)
				}

				begin, in.From = at, &at
			}

			d, err := job.ParseDuration(lasts)
			if err != nil {
				return exit.Usagef(cmd, "--for: %v", err)
			}

			in.Until = begin.Add(time.Duration(d))

			in.Notice, err = job.ParseDuration(notice)
			if err != nil {
				return exit.Usagef(cmd, "--notice: %v", err)
			}

			return a.withClient(func(c *api.Client) error {
				r, err := c.Reserve(cmd.Context(), in)
				if err != nil {
					return err
				}

				return a.Show(r, func() []string { return []string{string(r.ID)} }, func() error {
					_, err := fmt.Fprintf(a.Stdout, "Reservation %s: %s for %s from %s until %s\n", r.ID,
						humanize.Count(len(r.Nodes), "node"), r.User, stamp(&r.From, a.Clock.Now()), stamp(&r.Until, a.Clock.Now()))
					return err
				})
			})
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&in.User, "user", "", "`user` for whom the nodes are set aside")
	flags.StringVar(&from, "from", "", "`time` at which it begins, e.g. 2026-12-01T09:00, in UTC; now without it")
	flags.StringVar(&lasts, "for", "", "`duration` of the reservation, e.g. 8h")
	flags.StringVar(&notice, "notice", "1h", "`duration` before it begins in which no jobs of others start on the nodes")
	flags.StringVar(&in.Why, "why", "", "`reason`, shown with it")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}

func (a *app) endReservation() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm RESERVATION...",
		Aliases: []string{"end"},
		Short:   "End reservations before their time",
		Example: "  trainyard reservations rm r1",
		Args:    exit.Args(1, 0, "reservation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				var list api.ReservationList
				for _, name := range args {
					r, err := c.RemoveReservation(cmd.Context(), id.Reservation(name))
					if err != nil {
						return err
					}

					list.Reservations = append(list.Reservations, r)
				}

				return a.Show(list, nil, func() error {
					for i := range list.Reservations {
						if _, err := fmt.Fprintf(a.Stdout, "Reservation %s ended.\n", list.Reservations[i].ID); err != nil {
							return err
						}
					}

					return nil
				})
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}
