package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// top shows what running jobs use of their nodes.
func (a *app) top() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what running jobs use of CPUs, memory, GPUs, disks and network",
		Args:  exit.NoArgs,
		Long: `Show what running jobs use: your own, and for operators and admins all. All nodes of a job are counted
together; GPU is the share of the time in which its GPUs work. A dash is shown for what the agent
cannot measure; trainyard job says why. Agents measure every few seconds, GPUs every half minute.`,
		Example: "  trainyard top\n  trainyard top -w\n  trainyard top -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error {
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
