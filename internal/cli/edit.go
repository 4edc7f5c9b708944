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
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/spec"
)

// edit changes a job that does not run.
func (a *app) edit() *cobra.Command {
	var changes []string
	var dry bool
	cmd := &cobra.Command{
		Use:   "edit JOB",
		Short: "Change a queued or paused job",
		Long: `Change fields of a job that is queued or paused, by their path in the job file: priority, expect,
deadline, late_cost, objective, pool, nodes, avoid, and everything below resources. An empty value removes
a field. The job keeps its ID and its time in the queue, and the schedule is made anew.

What could not have been submitted is refused: a priority above your own, or resources that no node has.
With --dry-run nothing is changed: it says where in the queue the job would be, whether it would start, and
which jobs would wait longer or be preempted for it.
Who changed what is recorded (trainyard events --job JOB --kind job.edited).

` + handlesHelp,
		Example: `  trainyard edit j7 --set priority=60
  trainyard edit j7 --set priority=60 --dry-run
  trainyard edit @last --set resources.gpus=2 --set resources.gpu=A100
  trainyard edit resnet50 --set deadline=2026-12-01T09:00 --set expect=6h
  trainyard edit j7 --set avoid=gpu-3 --set objective=time`,
		Args:              exit.Args(1, 1, "job"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(changes) == 0 {
				return exit.Usagef(cmd, "nothing to change: give at least one --set KEY=VALUE")
			}

			return a.withClient(func(client *api.Client) error {
				if dry {
					return a.previewEdit(cmd.Context(), client, id.Job(args[0]), changes)
				}

				return a.doEdit(cmd.Context(), client, id.Job(args[0]), changes)
			})
		},
	}

	cmd.Flags().StringArrayVar(&changes, "set", nil, "change a field, `KEY=VALUE`; may be given several times")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would change, without changing anything")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)

	return cmd
}

// previewEdit shows what an edit would change.
func (a *app) previewEdit(ctx context.Context, client *api.Client, handle id.Job, changes []string) error {
	changes, err := a.withZone(changes)
	if err != nil {
		return err
	}

	p, err := client.PreviewEdit(ctx, handle, changes...)
	if err != nil {
		return err
	}

	return a.Show(p, nil, func() error {
		fields := []console.Field{
			{Name: "Position", Value: positions(&p)},
			{Name: "Now", Value: sentenceOf(p.Before.Why)},
			{Name: "Then", Value: sentenceOf(p.After.Why)},
			{Name: "Passes", Value: affected(p.Passed.Count, p.Passed.Jobs)},
			{Name: "Passed by", Value: affected(p.Passing.Count, p.Passing.Jobs)},
			{Name: "Preempts", Value: affected(len(p.Preempted), p.Preempted)},
		}

		return a.Fields(fields...)
	})
}

// positions writes the positions in the queue before and after an edit.
func positions(p *api.EditPreview) string {
	place := func(n int) string {
		if n == 0 {
			return "not in the queue"
		}

		return strconv.Itoa(n)
	}

	if p.Before.Position == p.After.Position {
		return place(p.Before.Position)
	}

	return place(p.Before.Position) + " now, then " + place(p.After.Position)
}

func sentenceOf(w *api.Why) string {
	if w == nil {
		return ""
	}

	return w.Sentence
}

// affected lists jobs on which an edit has an effect.
func affected(count int, jobs []api.AffectedJob) string {
	if count == 0 {
		return ""
	}

	var parts []string
	for _, j := range jobs[:min(len(jobs), 5)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", j.Job, j.Owner))
	}

	if more := count - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}

	return fmt.Sprintf("%s: %s", humanize.Count(count, "job"), humanize.List(parts...))
}

func (a *app) doEdit(ctx context.Context, client *api.Client, handle id.Job, changes []string) error {
	changes, err := a.withZone(changes)
	if err != nil {
		return err
	}

	j, err := client.EditJob(ctx, handle, changes...)
	if err != nil {
		return err
	}

	return a.Show(j, func() []string { return []string{string(j.ID)} }, func() error {
		_, err := fmt.Fprintf(a.Stdout, "%s changed: %s\n", j.ID, strings.Join(changes, ", "))
		a.Next(fmt.Sprintf("trainyard job %s          show when it is expected to start", j.ID))

		return err
	})
}

// withZone writes deadlines with the zone of this machine, which the server does not know.
func (a *app) withZone(changes []string) ([]string, error) {
	changes = slices.Clone(changes)

	for i, change := range changes {
		value, ok := strings.CutPrefix(change, "deadline=")
		if !ok || value == "" {
			continue
		}

		text := fmt.Appendf(nil, "run: nothing\ndeadline: %s\n", value)

		file, err := spec.Parse(text, spec.Options{Now: a.Clock.Now(), Location: a.Clock.Now().Local().Location()})
		if err != nil {
			return nil, fault.WithoutPlace(err)
		}

		if due := file.Jobs[0].Spec.Deadline; due != nil {
			changes[i] = "deadline=" + due.Format(time.RFC3339)
		}
	}

	return changes, nil
}
