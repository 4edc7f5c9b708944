package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

func (a *app) waste() *cobra.Command {
	var period span
	var owner string
	cmd := &cobra.Command{
		Use:   "waste",
		Short: "List what was paid for without use, and what would avoid it",
		Args:  exit.NoArgs,
		Long: `List what was paid for, or kept from others, without use, with the figures behind it and what would avoid it:
local and reserved nodes that are mostly idle or out of service, what on-demand nodes cost beside runs, jobs
that fail again and again, and jobs that ask for more than they use. Of jobs the newest 200 that ended in the
period are looked at. Researchers see what concerns their own jobs.

To compare with other nodes, prices and settings, see trainyard recommend.`,
		Example: "  trainyard waste\n  trainyard waste --last 7d\n  trainyard waste --owner ada -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, to, err := period.read(cmd, a.Clock.Now())
			if err != nil {
				return err
			}

			if from.IsZero() { // all: the server would take the last 30 days
				from = time.Unix(0, 0)
			}

			return a.withClient(func(c *api.Client) error {
				w, err := c.Waste(cmd.Context(), from, to, id.User(owner))
				if err != nil {
					return err
				}

				return a.Show(w, nil, func() error { return a.wasteText(&w) })
			})
		},
	}

	period.flags(cmd, "30d")
	cmd.Flags().StringVar(&owner, "owner", "", "only what concerns jobs of this `user`")
	a.OutputFlag(cmd)

	return cmd
}

// wasteWords are the kinds of findings as tables name them.
var wasteWords = map[string]string{
	api.WasteIdleNode:     "idle node",
	api.WasteBrokenNode:   "out of service",
	api.WasteProvisioning: "provisioning",
	api.WasteRequests:     "requests",
	api.WasteFailures:     "failures",
}

func (a *app) wasteText(w *api.Waste) error {
	t := a.NewTable("WHAT", "SUBJECT", "OWNER", "COST", "GPU-HOURS", "EVIDENCE", "REMEDY")
	money := moneyWriter(true) // what has no price is not free

	for i := range w.Findings {
		f := &w.Findings[i]

		evidence := f.Evidence
		if len(f.Jobs) > 0 {
			evidence += " (" + jobNames(f) + ")"
		}

		t.Row(wasteWords[f.Kind], f.Subject, string(f.Owner), money(f.Cost), orNone(f.GPUSeconds > 0, hours(f.GPUSeconds)),
			evidence, f.Remedy)
	}

	if t.Len() == 0 {
		a.Note("no waste found %s; %s checked", a.period(&w.From, &w.To), humanize.Count(w.JobsChecked, "ended job"))
		return nil
	}

	if _, err := fmt.Fprintf(a.Stdout, "Waste %s; %s checked\n\n", a.period(&w.From, &w.To),
		humanize.Count(w.JobsChecked, "ended job")); err != nil {
		return err
	}

	if err := t.Write(a.Stdout); err != nil {
		return err
	}

	a.noteTariff(w.NoTariff)

	return nil
}

// jobNames lists the jobs behind a finding.
func jobNames(f *api.Finding) string {
	names := make([]string, len(f.Jobs))
	for i, j := range f.Jobs {
		names[i] = string(j)
	}

	text := strings.Join(names, ", ")
	if more := f.JobCount - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}

	return text
}
