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
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// quota lists quotas, and sets and removes them.
func (a *app) quota() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "List quotas and budgets, set or remove them",
		Args:  exit.NoArgs,
		Long: `List the quotas and budgets of users and projects, what is used of them, and the usage expected at the
end of the period if no further job starts. Researchers see their own.`,
		Example: `  trainyard quota
  trainyard quota set user/ann --gpus 8 --budget 500 --period month --on-exceeded downgrade
  trainyard quota set each/user --gpus 4 --borrow
  trainyard quota remove user/ann`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error { return a.listQuotas(cmd.Context(), c) })
		},
	}

	a.OutputFlag(cmd)
	cmd.AddCommand(a.setQuota(), a.removeQuota())

	return cmd
}

// allQuotas reads all pages of quotas and usage.
func (a *app) allQuotas(ctx context.Context, c *api.Client) (api.QuotaPage, error) {
	all := api.QuotaPage{Quotas: []api.Quota{}}
	var err error
	all.Usage, err = collect(func(p api.Page) ([]api.QuotaUsage, string, error) {
		page, err := c.Quotas(ctx, p)
		all.NoTariff = page.NoTariff
		all.Quotas = append(all.Quotas, page.Quotas...)

		return page.Usage, page.Next, err
	})

	return all, err
}

func (a *app) listQuotas(ctx context.Context, c *api.Client) error {
	all, err := a.allQuotas(ctx, c)
	if err != nil {
		return err
	}

	return a.Show(all, nil, func() error {
		t := a.NewTable("SUBJECT", "GPUS", "NODES", "COST", "GPU-HOURS", "PERIOD", "WHEN EXCEEDED", "OUTLOOK")
		for i := range all.Usage {
			a.quotaUsageRow(t, &all.Usage[i], moneyWriter(all.NoTariff))
		}

		for i := range all.Quotas {
			if strings.HasPrefix(all.Quotas[i].Subject, "each/") {
				eachQuotaRow(t, &all.Quotas[i])
			}
		}

		return a.WriteTable(t, "no quotas",
			"trainyard quota set user/ann --gpus 8 --budget 500     8 GPUs at once, $500 per month")
	})
}

// eachQuotaRow adds the row of a quota that applies to everyone without one of their own.
func eachQuotaRow(t *table.Table, q *api.Quota) {
	t.Row(q.Subject, countOrNone(q.GPUs), countOrNone(q.Nodes),
		orNone(q.Budget > 0, humanize.Dollars(q.Budget.Amount())),
		orNone(q.GPUHours > 0, gpuHours(q.GPUHours)),
		"each "+string(q.Period), string(q.OnExceeded),
		"for each "+strings.TrimPrefix(q.Subject, "each/")+" without a quota of its own")
}

// gpuHours writes GPU-hours as reports of usage do, whole ones without a decimal.
func gpuHours(h float64) string { return strings.TrimSuffix(hours(h*time.Hour.Seconds()), ".0") }

func countOrNone(n int) string { return orNone(n > 0, strconv.Itoa(n)) }

// quotaUsageRow adds the row of one user or project.
func (a *app) quotaUsageRow(t *table.Table, u *api.QuotaUsage, money func(float64) string) {
	now := a.Clock.Now()
	gpus := strconv.FormatFloat(u.GPUs, 'f', -1, 64)
	nodes := strconv.Itoa(u.Nodes)
	onExceeded := "no quota"
	period := "month"

	if q := u.Quota; q != nil {
		if q.GPUs > 0 {
			gpus += " of " + strconv.Itoa(q.GPUs)
			if q.Borrow {
				gpus += " (may borrow)"
			}
		}

		if q.Nodes > 0 {
			nodes += " of " + strconv.Itoa(q.Nodes)
		}

		period = string(q.Period)

		onExceeded = string(q.OnExceeded)
		if q.Subject != u.Subject {
			onExceeded += " (" + q.Subject + ")"
		}
	}

	text, color := outlook(u, now)
	t.Cells(
		table.Cell{Text: u.Subject}, table.Cell{Text: gpus}, table.Cell{Text: nodes},
		table.Cell{Text: costUsage(&u.Cost, money)}, table.Cell{Text: periodUsage(&u.GPUHours, gpuHours)},
		table.Cell{Text: period + ", ends " + humanize.Ago(u.Ends, now)},
		table.Cell{Text: onExceeded}, table.Cell{Text: text, Color: color},
	)
}

// costUsage writes what was spent of a budget. With a budget even nothing is a figure.
func costUsage(u *api.PeriodUsage, money func(float64) string) string {
	if u.Limit > 0 {
		money = humanize.Dollars
	}

	return periodUsage(u, money)
}

// periodUsage writes what was used of a limit.
func periodUsage(u *api.PeriodUsage, write func(float64) string) string {
	if u.Limit == 0 {
		return write(u.Used)
	}

	return fmt.Sprintf("%s of %s (%s)", write(u.Used), write(u.Limit), humanize.Percent(u.Used/u.Limit))
}

// outlook says whether the quota lasts for the period.
func outlook(u *api.QuotaUsage, now time.Time) (string, table.Color) {
	for _, m := range []struct {
		name  string
		usage *api.PeriodUsage
	}{{"budget", &u.Cost}, {"GPU-hours", &u.GPUHours}} {
		switch {
		case m.usage.UsedUp == nil:
		case !m.usage.UsedUp.After(now):
			return m.name + " used up", table.Red
		default:
			return m.name + " used up " + humanize.Ago(*m.usage.UsedUp, now), table.Yellow
		}
	}

	if u.Cost.Expected > u.Cost.Used {
		return humanize.Dollars(u.Cost.Expected) + " expected", table.NoColor
	}

	return "", table.NoColor
}

// quotaFlags are the numbers and words of a quota as flags give them.
type quotaFlags struct {
	api.QuotaRequest
	budget, period, onExceeded, warnAt string
}

func (a *app) setQuota() *cobra.Command {
	var in quotaFlags
	cmd := &cobra.Command{
		Use:   "set SUBJECT",
		Short: "Set the quota and budget of a user or project",
		Args:  exit.Args(1, 1, "subject, e.g. user/ann, project/vision, each/user or each/project"),
		Long: `Set the quota and budget of a user or project. Values without a flag stay as they are; 0 removes one.

When the budget or the GPU-hours of a period are used up, one of these happens:
  warn       users are warned, nothing else changes
  ask        no new job starts until the quota is raised; running jobs continue
  downgrade  jobs on provisioned nodes save a checkpoint and move to local or reserved nodes
  stop       running jobs save a checkpoint, stop, and wait for the next period or a higher quota`,
		Example: `  trainyard quota set user/ann --gpus 8 --budget 500 --period month --on-exceeded downgrade
  trainyard quota set project/vision --nodes 2 --warn-at 90%`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error { return a.doSetQuota(cmd, c, args[0], &in) })
		},
	}

	f := cmd.Flags()
	f.IntVar(&in.GPUs, "gpus", 0, "`number` of GPUs at once")
	f.IntVar(&in.Nodes, "nodes", 0, "`number` of on-demand nodes at once")
	f.Float64Var(&in.GPUHours, "gpu-hours", 0, "`number` of GPU-hours per period")
	f.StringVar(&in.budget, "budget", "", "`dollars` per period, for nodes and energy together")
	f.StringVar(&in.period, "period", "", "`period`: day, week or month (default month)")
	f.StringVar(&in.onExceeded, "on-exceeded", "", "`action` when used up: warn, ask, downgrade or stop (default ask)")
	f.BoolVar(&in.Borrow, "borrow", false, "allow more GPUs at once while no other job is queued for them")
	f.StringVar(&in.warnAt, "warn-at", "", "`share` of the quota at which users are warned (default 80%)")
	a.OutputFlag(cmd)

	return cmd
}

// doSetQuota puts the flags over the quota that there is.
func (a *app) doSetQuota(cmd *cobra.Command, c *api.Client, subject string, in *quotaFlags) error {
	all, err := a.allQuotas(cmd.Context(), c)
	if err != nil {
		return err
	}

	var request api.QuotaRequest

	at := slices.IndexFunc(all.Quotas, func(q api.Quota) bool { return q.Subject == subject })
	if at >= 0 {
		request = all.Quotas[at].QuotaRequest
	}

	if err := in.apply(cmd, subject, &request); err != nil {
		return err
	}

	q, err := c.PutQuota(cmd.Context(), subject, request)
	if err != nil {
		return err
	}

	return a.Show(q, nil, func() error {
		if _, err := fmt.Fprintln(a.Stdout, quotaText(&q)); err != nil {
			return err
		}

		if at < 0 {
			a.noteReplaced(&q, all.Quotas)
		}

		return nil
	})
}

// noteReplaced says which limits of the quota for everyone do not apply any more to a subject that got its own.
func (a *app) noteReplaced(own *api.Quota, all []api.Quota) {
	kind, _, _ := strings.Cut(own.Subject, "/")
	at := slices.IndexFunc(all, func(q api.Quota) bool { return q.Subject == "each/"+kind })
	if at < 0 {
		return
	}

	each := all[at]
	if own.GPUs > 0 {
		each.GPUs = 0
	}

	if own.Nodes > 0 {
		each.Nodes = 0
	}

	if own.Budget > 0 {
		each.Budget = 0
	}

	if own.GPUHours > 0 {
		each.GPUHours = 0
	}

	if parts := quotaLimits(&each); len(parts) > 0 {
		a.Note("note: %s has a quota of its own now, so %s does not apply to it any more (%s); set these too to keep them",
			own.Subject, each.Subject, strings.Join(parts, ", "))
	}
}

// apply changes what flags were given for.
func (in *quotaFlags) apply(cmd *cobra.Command, subject string, to *api.QuotaRequest) error {
	kind, _, ok := strings.Cut(subject, "/")
	if !ok || !slices.Contains([]string{"user", "project", "each"}, kind) {
		return exit.Usagef(cmd, "invalid subject %q: write user/ann, project/vision, each/user or each/project", subject)
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

	if changed("budget") {
		budget, err := job.ParseMoney(in.budget)
		if err != nil {
			return exit.Usagef(cmd, "--budget: %v", err)
		}

		to.Budget = budget
	}

	if changed("warn-at") {
		share, err := parseShare(in.warnAt)
		if err != nil {
			return exit.Usagef(cmd, "--warn-at must be a share such as 80%% or 0.8, got %q", in.warnAt)
		}

		to.WarnAt = share
	}

	if changed("period") {
		to.Period = tenant.Period(in.period)
		if !slices.Contains(tenant.Periods(), to.Period) {
			return exit.Usagef(cmd, "--period must be day, week or month, got %q", in.period)
		}
	}

	if changed("on-exceeded") {
		to.OnExceeded = tenant.OnExceeded(in.onExceeded)
		if !slices.Contains(tenant.ExceededActions(), to.OnExceeded) {
			return exit.Usagef(cmd, "--on-exceeded must be warn, ask, downgrade or stop, got %q", in.onExceeded)
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

// quotaText writes a quota in one line.
func quotaText(q *api.Quota) string {
	text := q.Subject + ": " + strings.Join(quotaLimits(q), ", ")
	if q.Budget > 0 || q.GPUHours > 0 {
		text += fmt.Sprintf("; warning at %s, when exceeded: %s", humanize.Percent(q.WarnAt), q.OnExceeded)
	}

	return text
}

// quotaLimits writes each limit of a quota.
func quotaLimits(q *api.Quota) []string {
	var parts []string

	if q.GPUs > 0 {
		text := humanize.Count(q.GPUs, "GPU") + " at once"
		if q.Borrow {
			text += " (more while no other job is queued)"
		}

		parts = append(parts, text)
	}

	if q.Nodes > 0 {
		parts = append(parts, humanize.Count(q.Nodes, "on-demand node")+" at once")
	}

	if q.Budget > 0 {
		parts = append(parts, dollars(q.Budget)+" per "+string(q.Period))
	}

	if q.GPUHours > 0 {
		parts = append(parts, gpuHours(q.GPUHours)+" GPU-hours per "+string(q.Period))
	}

	return parts
}

func (a *app) removeQuota() *cobra.Command {
	return &cobra.Command{
		Use:     "remove SUBJECT",
		Aliases: []string{"rm"},
		Short:   "Remove a quota",
		Args:    exit.Args(1, 1, "subject, e.g. user/ann, project/vision, each/user or each/project"),
		Example: "  trainyard quota remove user/ann",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if err := c.RemoveQuota(cmd.Context(), args[0]); err != nil {
					return err
				}

				_, err := fmt.Fprintf(a.Stdout, "quota of %s removed\n", args[0])

				return err
			})
		},
	}
}
