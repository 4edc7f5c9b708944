package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

// schedules lists what submits jobs again and again, and stops it.
func (a *app) schedules() *cobra.Command {
	var f api.ScheduleFilter
	var owner string
	cmd := &cobra.Command{
		Use:     "schedules",
		Aliases: []string{"schedule"},
		Short:   "List or stop schedules, which submit jobs again and again",
		Args:    exit.NoArgs,
		Long: `List schedules. Submitting a job file with "every" adds one: its jobs are submitted at an interval or at the
times of a crontab, in UTC, with the files of the working directory as they were when it was added.

If jobs of last time have not ended, nothing is submitted (SKIPPED), unless the job file says overlap: allow.
Times at which no server ran (MISSED) are made up for once.`,
		Example: `  trainyard schedules
  trainyard schedules --all
  trainyard schedules stop s1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Owner = id.User(owner)

			return a.withClient(func(c *api.Client) error {
				list, err := collect(func(p api.Page) ([]api.Schedule, string, error) {
					f.Page = p
					page, err := c.Schedules(cmd.Context(), f)
					return page.Schedules, page.Next, err
				})
				if err != nil {
					return err
				}

				return a.showSchedules(list)
			})
		},
	}

	cmd.Flags().BoolVarP(&f.All, "all", "a", false, "include schedules that were stopped")
	cmd.Flags().StringVar(&owner, "owner", "", "only schedules of this `user`")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.stopSchedule())

	return cmd
}

func (a *app) showSchedules(list []api.Schedule) error {
	names := func() []string {
		ids := make([]string, len(list))
		for i := range list {
			ids[i] = string(list[i].ID)
		}

		return ids
	}

	return a.Show(api.SchedulePage{Schedules: list}, names, func() error {
		now := a.Clock.Now()
		t := a.NewTable("ID", "NAME", "OWNER", "EVERY", "NEXT", "LAST", "LAST JOBS", "SUBMITTED", "SKIPPED", "MISSED",
			"PROBLEM")

		for i := range list {
			s := &list[i]
			next, last := "stopped", ""
			if s.Next != nil {
				next = humanize.Ago(*s.Next, now)
			}

			if s.Last != nil {
				last = humanize.Ago(*s.Last, now)
			}

			t.Cells(
				table.Cell{Text: string(s.ID)}, table.Cell{Text: s.Name}, table.Cell{Text: string(s.Owner)},
				table.Cell{Text: s.Every}, table.Cell{Text: next}, table.Cell{Text: last}, table.Cell{Text: few(s.LastJobs)},
				table.Cell{Text: strconv.Itoa(s.Submitted)}, table.Cell{Text: strconv.Itoa(s.Skipped)},
				table.Cell{Text: strconv.Itoa(s.Missed)}, table.Cell{Text: s.Problem, Color: table.Red},
			)
		}

		return a.WriteTable(t, "no schedules", "add a line such as every: 6h to a job file, and submit it")
	})
}

// scheduled says that a schedule was added.
func (a *app) scheduled(s api.Schedule) error {
	next := "never"
	if s.Next != nil {
		next = stamp(s.Next, a.Clock.Now())
	}

	_, err := fmt.Fprintf(a.Stdout, "Schedule %s added: %s every %s, next %s\n",
		s.ID, humanize.Count(s.Jobs, "job"), s.Every, next)
	a.Next("trainyard schedules             list schedules", fmt.Sprintf("trainyard schedules stop %s     stop it", s.ID))

	return err
}

func (a *app) stopSchedule() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "stop SCHEDULE...",
		Short:   "Stop schedules; the jobs that they submitted go on",
		Example: "  trainyard schedules stop s1",
		Args:    exit.Args(1, 0, "schedule"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				var list []api.Schedule
				for _, name := range args {
					stopped, err := c.StopSchedule(cmd.Context(), id.Schedule(name))
					if err != nil {
						return err
					}

					list = append(list, stopped)
				}

				return a.Show(api.SchedulePage{Schedules: list}, nil, func() error {
					for i := range list {
						if _, err := fmt.Fprintf(a.Stdout, "Schedule %s stopped.\n", list[i].ID); err != nil {
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
