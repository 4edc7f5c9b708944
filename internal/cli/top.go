package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// top shows what running jobs use of their nodes.
func (a *app) top() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "top [JOB...]",
		Short: "Show what running jobs use of CPUs, memory, GPUs, disks and network",
		Long: `Show what running jobs use: your own, and for operators and admins all. All nodes of a job are counted
together; GPU is the share of the time in which its GPUs work. A dash is shown for what the agent
cannot measure; trainyard job says why. Agents measure every few seconds.

Of the jobs that you name it shows what they use now, with reads, writes and the network by the second, until they have
ended or you press Ctrl-C: on a terminal in place, elsewhere a line for each measurement. With -o json or yaml it is
shown once.`,
		Example:           "  trainyard top\n  trainyard top -w\n  trainyard top j7\n  trainyard top -o json",
		Args:              exit.Args(0, 0, "job"),
		ValidArgsFunction: a.completeJobsIn([]job.State{job.Running}),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if len(args) > 0 {
					return a.topOf(cmd.Context(), c, args)
				}

				if watch {
					return a.watch(cmd.Context(), func(ctx context.Context, now time.Time) ([]byte, error) {
						return a.topScreen(ctx, c, now)
					})
				}

				page, err := c.Utilizations(cmd.Context())
				if err != nil {
					return err
				}

				return a.Show(page, nil, func() error { return a.topTable(page.Jobs) })
			})
		},
	}

	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "refresh the list every two seconds")
	a.OutputFlag(cmd)

	return cmd
}

// topScreen is one look of a watch.
func (a *app) topScreen(ctx context.Context, client *api.Client, now time.Time) ([]byte, error) {
	page, err := client.Utilizations(ctx)
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	screen := a.screen(&out, now)
	err = screen.Show(page, nil, func() error { return screen.topTable(page.Jobs) })

	return out.Bytes(), err
}

func (a *app) topTable(jobs []api.Utilization) error {
	t := a.NewTable("JOB", "NAME", "OWNER", "CPUS", "MEMORY", "GPU", "GPU MEMORY", "READ", "WRITTEN", "RECEIVED", "SENT")
	for i := range jobs {
		u := &jobs[i]

		now := u.Now
		if now == nil {
			now = &api.UseAmounts{}
		}

		t.Row(string(u.Job), u.Name, string(u.Owner), ofAsked(cpuText(now.CPUs), cpusAsked(u)),
			ofAsked(sizeText(now.Memory), memoryAsked(u)), busyText(u, now.GPUBusy), sizeText(now.GPUMemory),
			sizeText(u.Total.Read), sizeText(u.Total.Written), sizeText(u.Total.Received), sizeText(u.Total.Sent))
	}

	return a.WriteTable(t, "no running job was measured yet", "trainyard jobs")
}

// topOf shows what some jobs use: live, or once for programs.
func (a *app) topOf(ctx context.Context, c *api.Client, args []string) error {
	jobs := make([]id.Job, len(args))

	for i, handle := range args {
		j, err := c.FindJob(ctx, handle)
		if err != nil {
			return err
		}

		jobs[i] = j
	}

	if a.Output != console.Table {
		page, _, err := usesOf(ctx, c, jobs)
		if err != nil {
			return err
		}

		return a.Show(page, nil, func() error { return nil })
	}

	shown := map[id.Job]time.Time{} // the newest measurement of each that was written

	err := a.watch(ctx, func(ctx context.Context, now time.Time) ([]byte, error) {
		page, live, err := usesOf(ctx, c, jobs)

		switch {
		case err != nil:
			return nil, err
		case !live:
			return nil, errAllEnded
		case !a.OnTerminal(a.Stdout):
			return liveLines(page.Jobs, shown), nil
		case len(page.Jobs) == 0:
			return []byte("not measured yet\n"), nil
		}

		var out bytes.Buffer
		err = a.screen(&out, now).liveTable(page.Jobs)

		return out.Bytes(), err
	})
	if errors.Is(err, errAllEnded) {
		return nil
	}

	return err
}

// errAllEnded ends a watch of jobs.
var errAllEnded = fault.New(fault.Conflict, "job_state", "the jobs have ended")

// usesOf returns what jobs use, without those that were not measured yet, and whether one of them has not ended.
func usesOf(ctx context.Context, c *api.Client, jobs []id.Job) (page api.UtilizationPage, live bool, err error) {
	page.Jobs = []api.Utilization{}

	for _, name := range jobs {
		detail, err := c.Job(ctx, name)
		if err != nil {
			return page, false, err
		}

		live = live || !detail.State.Final()

		if u := detail.Utilization; u != nil {
			u.Points, u.Earlier = nil, nil
			page.Jobs = append(page.Jobs, *u)
		}
	}

	return page, live, nil
}

// liveFigures are what a job uses now, in the order of the headings.
func liveFigures(u *api.Utilization) []string {
	now, rates := u.Now, u.Rates

	if now == nil {
		now = &api.UseAmounts{}
	}

	if rates == nil {
		rates = &api.UseRates{}
	}

	return []string{
		ofAsked(cpuText(now.CPUs), cpusAsked(u)), ofAsked(sizeText(now.Memory), memoryAsked(u)),
		busyText(u, now.GPUBusy), sizeText(now.GPUMemory), rateText(rates.Read), rateText(rates.Written),
		rateText(rates.Received), rateText(rates.Sent),
	}
}

// liveTable shows what jobs use now.
func (a *app) liveTable(jobs []api.Utilization) error {
	t := a.NewTable("JOB", "CPUS", "MEMORY", "GPU", "GPU MEMORY", "READ", "WRITTEN", "RECEIVED", "SENT")
	for i := range jobs {
		t.Row(append([]string{string(jobs[i].Job)}, liveFigures(&jobs[i])...)...)
	}

	return t.Write(a.Stdout)
}

// liveLines writes a line for each job that was measured since the last look.
func liveLines(jobs []api.Utilization, shown map[id.Job]time.Time) []byte {
	var out bytes.Buffer

	for i := range jobs {
		u := &jobs[i]
		if u.At == nil || !u.At.After(shown[u.Job]) {
			continue
		}

		shown[u.Job] = *u.At
		f := liveFigures(u)
		_, _ = fmt.Fprintf(&out, "%s %s: CPUs %s, memory %s, GPU %s, GPU memory %s, read %s, written %s, received %s, "+
			"sent %s\n", u.At.UTC().Format(time.RFC3339), u.Job, f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7])
	}

	return out.Bytes()
}

func rateText(bytes *float64) string {
	if bytes == nil {
		return unknown
	}

	return humanize.Size(int64(*bytes)) + "/s"
}

// unknown stands for what was not measured.
const unknown = "-"

func cpuText(cpus *float64) string {
	if cpus == nil {
		return unknown
	}

	return fmt.Sprintf("%.1f", *cpus)
}

func sizeText(bytes *int64) string {
	if bytes == nil {
		return unknown
	}

	return humanize.Size(*bytes)
}

func busyText(u *api.Utilization, share *float64) string {
	if share == nil {
		return unknown
	}

	text := humanize.Percent(*share)
	if n := u.Asked.GPUs * max(u.Asked.Nodes, 1); n > 1 {
		text += fmt.Sprintf(" of %d", n)
	}

	return text
}

// cpusAsked is what all nodes of a job together were asked for, "" if that is not known.
func cpusAsked(u *api.Utilization) string {
	if u.Asked.CPUs == 0 {
		return ""
	}

	return (u.Asked.CPUs * job.CPUs(max(u.Asked.Nodes, 1))).String()
}

func memoryAsked(u *api.Utilization) string {
	if u.Asked.Memory == 0 {
		return ""
	}

	return humanize.Size(u.Asked.Memory * job.Bytes(max(u.Asked.Nodes, 1)))
}

// ofAsked writes what is used of what was asked for: "3.8 of 8".
func ofAsked(used, asked string) string {
	if asked == "" || used == unknown {
		return used
	}

	return used + " of " + asked
}

// jobUse writes what a job uses or has used, and what to ask for the next time.
func (a *app) jobUse(u *api.Utilization) error {
	if u == nil {
		return nil
	}

	title := "Use"
	if u.Ended {
		title = "Used"
	}

	if _, err := fmt.Fprintf(a.Stdout, "\n%s (run %s, measured for %s):\n", title, u.Run,
		humanize.Duration(time.Duration(u.Elapsed*float64(time.Second)))); err != nil {
		return err
	}

	if err := a.Fields(useFields(u)...); err != nil {
		return err
	}

	var out strings.Builder
	for _, m := range u.Missing {
		_, _ = fmt.Fprintf(&out, "  %s not measured: %s\n", m.Resource, m.Why)
	}

	if len(u.Advice) > 0 {
		_, _ = out.WriteString("For the next submit:\n")
	}

	for _, line := range u.Advice {
		_, _ = fmt.Fprintf(&out, "  %s\n", line)
	}

	_, err := io.WriteString(a.Stdout, out.String())

	return err
}

// useFields are the figures of a job.
func useFields(u *api.Utilization) []console.Field {
	line := func(mean, peak, asked string) string {
		var parts []string
		if mean != unknown {
			parts = append(parts, mean+" on average")
		}
		if peak != unknown {
			parts = append(parts, peak+" at most")
		}
		if len(parts) > 0 && asked != "" {
			parts = append(parts, "asked for "+asked)
		}

		return strings.Join(parts, ", ")
	}

	pair := func(first *int64, a string, second *int64, b string) string {
		if first == nil || second == nil {
			return ""
		}

		return humanize.Size(*first) + " " + a + ", " + humanize.Size(*second) + " " + b
	}

	asked := ""
	if n := u.Asked.GPUs * max(u.Asked.Nodes, 1); n > 0 {
		asked = humanize.Count(n, "GPU")
	}

	memory := ""
	if u.Asked.Memory > 0 {
		memory = humanize.Size(u.Asked.Memory)
		if u.Asked.Nodes > 1 {
			memory += " on each node"
		}
	}

	fields := []console.Field{
		{Name: "CPUs", Value: line(cpuText(u.Mean.CPUs), cpuText(u.Peak.CPUs), cpusAsked(u))},
		{Name: "Memory", Value: line(sizeText(u.Mean.Memory), sizeText(u.Peak.Memory), memory)},
		{Name: "GPUs busy", Value: line(busyText(u, u.Mean.GPUBusy), busyText(u, u.Peak.GPUBusy), asked)},
		{Name: "Disks", Value: pair(u.Total.Read, "read", u.Total.Written, "written")},
		{Name: "Network", Value: pair(u.Total.Received, "received", u.Total.Sent, "sent")},
	}

	if u.Peak.GPUMemory != nil {
		fields = append(fields, console.Field{Name: "GPU memory", Value: sizeText(u.Peak.GPUMemory) + " at most on one GPU"})
	}

	return fields
}
