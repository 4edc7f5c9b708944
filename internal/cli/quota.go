package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

func (a *app) limits() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limits", Short: "List who may have what, and where they stand", Args: exit.NoArgs,
		Long:    "List the limits, what has been used of them, and where that goes if nothing more starts. Researchers see themselves.",
		Example: "  trainyard limits\n  trainyard limit set user/ann --gpus 8 --money 500",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error { return a.listLimits(cmd.Context(), c) })
		},
	}
	a.OutputFlag(cmd)
	return cmd
}

func (a *app) allLimits(ctx context.Context, c *api.Client) (api.LimitPage, error) {
	all := api.LimitPage{Limits: []api.Limit{}}
	var err error
	all.Standings, err = collect(func(p api.Page) ([]api.Standing, string, error) {
		page, err := c.Limits(ctx, p)
		all.Limits = append(all.Limits, page.Limits...)
		return page.Standings, page.Next, err
	})
	return all, err
}

func (a *app) listLimits(ctx context.Context, c *api.Client) error {
	all, err := a.allLimits(ctx, c)
	if err != nil {
		return err
	}
	return a.Show(all, nil, func() error {
		t := a.NewTable("WHO", "GPUS", "NODES", "MONEY", "GPU-HOURS", "PERIOD", "AT THE LIMIT", "OUTLOOK")
		for i := range all.Standings {
			a.standing(t, &all.Standings[i])
		}
		for i := range all.Limits {
			if l := &all.Limits[i]; strings.HasPrefix(l.Subject, "each/") {
				t.Row(l.Subject, most(l.GPUs), most(l.Nodes), orNone(l.Money > 0, table.Dollars(float64(l.Money)/1e6)), orNone(l.GPUHours > 0, table.Amount(l.GPUHours)),
					"each "+string(l.Period), string(l.At), "for each "+strings.TrimPrefix(l.Subject, "each/")+" without a limit of its own")
			}
		}
		return a.WriteTable(t, "nobody is limited", "trainyard limit set user/ann --gpus 8 --money 500     8 GPUs at once, $500 a month")
	})
}

func most(n int) string { return orNone(n > 0, strconv.Itoa(n)) }

// standing adds the line of one user or project.
func (a *app) standing(t *table.Table, s *api.Standing) {
	now := a.Clock.Now()
	gpus, nodes, at := strconv.FormatFloat(s.GPUs, 'f', -1, 64), strconv.Itoa(s.Nodes), "no limit"
	period := "month"
	if l := s.Limit; l != nil {
		if l.GPUs > 0 {
			gpus += " of " + strconv.Itoa(l.GPUs)
			if l.Borrow {
				gpus += " (may borrow)"
			}
		}
		if l.Nodes > 0 {
			nodes += " of " + strconv.Itoa(l.Nodes)
		}
		period = string(l.Period)
		if at = string(l.At); l.Subject != s.Subject {
			at += " (" + l.Subject + ")"
		}
	}
	text, color := outlook(s, now)
	t.Cells(table.Cell{Text: s.Subject}, table.Cell{Text: gpus}, table.Cell{Text: nodes}, table.Cell{Text: course(&s.Money, table.Dollars)},
		table.Cell{Text: course(&s.GPUHours, table.Amount)}, table.Cell{Text: period + ", ends " + table.Ago(s.Ends, now)}, table.Cell{Text: at}, table.Cell{Text: text, Color: color})
}

// course writes what was used of a limit.
func course(c *api.Course, write func(float64) string) string {
	if c.Limit == 0 {
		return write(c.Used)
	}
	return fmt.Sprintf("%s of %s (%s)", write(c.Used), write(c.Limit), table.Percent(c.Used/c.Limit))
}

// outlook says whether a limit lasts for the period.
func outlook(s *api.Standing, now time.Time) (string, table.Color) {
	for _, m := range []struct {
		name  string
		c     *api.Course
		write func(float64) string
	}{{"money", &s.Money, table.Dollars}, {"GPU-hours", &s.GPUHours, table.Amount}} {
		switch {
		case m.c.UsedUp == nil:
		case !m.c.UsedUp.After(now):
			return m.name + " used up", table.Red
		default:
			return m.name + " used up " + table.Ago(*m.c.UsedUp, now), table.Yellow
		}
	}
	if s.Money.Expected > s.Money.Used {
		return table.Dollars(s.Money.Expected) + " expected", table.NoColor
	}
	return "", table.NoColor
}

func (a *app) limit() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit", Short: "Set or remove what a user or project may have", Args: exit.NoArgs,
		Example: "  trainyard limit set user/ann --gpus 8 --money 500 --period month --at downgrade\n  trainyard limit set each/user --gpus 4 --borrow\n  trainyard limit remove user/ann",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.setLimit(), a.removeLimit())
	return cmd
}

// limitFlags are the numbers and words of a limit as flags say them.
type limitFlags struct {
	api.LimitRequest
	money, period, at, warn string
}

func (a *app) setLimit() *cobra.Command {
	var in limitFlags
	cmd := &cobra.Command{
		Use: "set SUBJECT", Short: "Set what a user or project may have", Args: exit.Args(1, 1, "user or project: user/ann, project/vision, each/user or each/project"),
		Long: "Set what a user or project may have at once and in a period. What no flag is given for stays as it is; 0 takes a number away.\n\n" +
			"At the limit of money or GPU-hours, one of these happens:\n" +
			"  warn       people are told, and all goes on\n" +
			"  ask        nothing new starts until the limit is raised; what runs goes on\n" +
			"  downgrade  what costs rent saves itself and goes on where no rent is paid\n" +
			"  stop       what runs saves itself, stops, and waits for the next period or a higher limit",
		Example: "  trainyard limit set user/ann --gpus 8 --money 500 --period month --at downgrade\n  trainyard limit set project/vision --nodes 2 --warn 90%",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				all, err := a.allLimits(cmd.Context(), c)
				if err != nil {
					return err
				}
				var request api.LimitRequest
				if at := slices.IndexFunc(all.Limits, func(l api.Limit) bool { return l.Subject == args[0] }); at >= 0 {
					request = all.Limits[at].LimitRequest
				}
				if err := in.apply(cmd, &request); err != nil {
					return err
				}
				l, err := c.PutLimit(cmd.Context(), args[0], request)
				if err != nil {
					return err
				}
				return a.Show(l, nil, func() error {
					_, err := fmt.Fprintln(a.Stdout, limitText(&l))
					return err
				})
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&in.GPUs, "gpus", 0, "so `many` GPUs at once")
	f.IntVar(&in.Nodes, "nodes", 0, "so `many` on-demand nodes at once")
	f.Float64Var(&in.GPUHours, "gpu-hours", 0, "so `many` GPU-hours in a period")
	f.StringVar(&in.money, "money", "", "so many `dollars` in a period, rent and energy together")
	f.StringVar(&in.period, "period", "", "`day`, week or month; month unless said")
	f.StringVar(&in.at, "at", "", "what happens at the limit: `warn`, ask, downgrade or stop; ask unless said")
	f.BoolVar(&in.Borrow, "borrow", false, "more GPUs at once while nobody else waits for them")
	f.StringVar(&in.warn, "warn", "", "`share` of the limit from which people are warned; 80% unless said")
	a.OutputFlag(cmd)
	return cmd
}

// apply changes what flags were given for.
func (in *limitFlags) apply(cmd *cobra.Command, to *api.LimitRequest) error {
	if !slices.Contains([]string{"user", "project", "each"}, strings.SplitN(cmd.Flags().Arg(0), "/", 2)[0]) || !strings.Contains(cmd.Flags().Arg(0), "/") {
		return exit.Usagef(cmd, "%q is nobody to limit: write user/ann, project/vision, each/user or each/project", cmd.Flags().Arg(0))
	}
	changed := cmd.Flags().Changed
	if changed("gpus") {
		to.GPUs = in.GPUs
	}
	if changed("nodes") {
		to.Nodes = in.Nodes
	}
	if changed("gpu-hours") {
		to.GPUHours = in.GPUHours
	}
	if changed("borrow") {
		to.Borrow = in.Borrow
	}
	if changed("money") {
		m, err := job.ParseMoney(in.money)
		if err != nil {
			return exit.Usagef(cmd, "--money: %v", err)
		}
		to.Money = m
	}
	if changed("warn") {
		share, err := parseShare(in.warn)
		if err != nil {
			return exit.Usagef(cmd, "--warn: %q is no share: write 80%% or 0.8", in.warn)
		}
		to.WarnAt = share
	}
	if changed("period") {
		if to.Period = tenant.Period(in.period); !slices.Contains(tenant.Periods(), to.Period) {
			return exit.Usagef(cmd, "--period cannot be %q: choose day, week, month", in.period)
		}
	}
	if changed("at") {
		if to.At = tenant.AtLimit(in.at); !slices.Contains(tenant.LimitActions(), to.At) {
			return exit.Usagef(cmd, "--at cannot be %q: choose warn, ask, downgrade, stop", in.at)
		}
	}
	return nil
}

// parseShare reads 80% or 0.8.
func parseShare(text string) (float64, error) {
	number, isPercent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if isPercent {
		f /= 100
	}
	if err == nil && !(f > 0 && f <= 1) {
		err = strconv.ErrRange
	}
	return f, err
}

// limitText says what a limit is, in a sentence.
func limitText(l *api.Limit) string {
	var parts []string
	if l.GPUs > 0 {
		text := table.Count(l.GPUs, "GPU") + " at once"
		if l.Borrow {
			text += " and more while nobody else waits"
		}
		parts = append(parts, text)
	}
	if l.Nodes > 0 {
		parts = append(parts, table.Count(l.Nodes, "on-demand node")+" at once")
	}
	if l.Money > 0 {
		parts = append(parts, l.Money.String()+" a "+string(l.Period))
	}
	if l.GPUHours > 0 {
		parts = append(parts, table.Amount(l.GPUHours)+" GPU-hours a "+string(l.Period))
	}
	text := l.Subject + " may have " + strings.Join(parts, ", ")
	if l.Money > 0 || l.GPUHours > 0 {
		text += fmt.Sprintf("; a warning at %s, at the limit: %s", table.Percent(l.WarnAt), l.At)
	}
	return text
}

func (a *app) removeLimit() *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove SUBJECT", Aliases: []string{"rm"}, Short: "Take a limit away", Args: exit.Args(1, 1, "limit: user/ann, project/vision, each/user or each/project"),
		Example: "  trainyard limit remove user/ann",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if err := c.RemoveLimit(cmd.Context(), args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.Stdout, "the limit of %s is removed\n", args[0])
				return err
			})
		},
	}
	return cmd
}
