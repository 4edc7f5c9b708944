package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// retention shows what the server keeps.
func (a *app) retention() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Show what the server keeps, for how long, and how much that is",
		Args:  exit.NoArgs,
		Long: `Show how long the server keeps files, output, checkpoints, jobs and events, how much is stored, for whom, and
what was removed last. The server removes once an hour what is not kept. Researchers see their own.`,
		Example: "  trainyard retention\n  trainyard retention -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error {
				r, err := c.Retention(cmd.Context())
				if err != nil {
					return err
				}

				return a.Show(r, nil, func() error { return a.retentionText(&r) })
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) retentionText(r *api.Retention) error {
	limits := a.NewTable("WHAT", "KEPT")
	for _, row := range []struct {
		what  string
		limit job.Duration
		after string
	}{
		{"unused blobs", r.Limits.Unused, ""},
		{"working directories", r.Limits.Workdirs, " after the end of the job"},
		{"output", r.Limits.Output, " after the end of the job"},
		{"checkpoints", r.Limits.Checkpoints, " after the end of the job"},
		{"output files", r.Limits.Files, " after the end of the job"},
		{"jobs", r.Limits.Jobs, " after their end"},
		{"events", r.Limits.Events, ""},
		{"usage by job and hour", r.Limits.Postings, ""},
	} {
		kept := "for ever"
		if row.limit > 0 {
			kept = humanize.Duration(time.Duration(row.limit)) + row.after
		}

		limits.Row(row.what, kept)
	}

	for _, row := range []struct {
		what string
		most job.Bytes
	}{
		{"output of ended jobs, each user", r.Limits.MaxOutput},
		{"output of ended jobs, all users", r.Limits.MaxAll},
		{"checkpoints of ended jobs", r.Limits.MaxSaved},
		{"output files of ended jobs, each user", r.Limits.MaxFiles},
		{"output files of ended jobs, all users", r.Limits.MaxAllFiles},
	} {
		if row.most > 0 {
			limits.Row(row.what, "up to "+humanize.Size(row.most))
		}
	}

	if err := limits.Write(a.Stdout); err != nil {
		return err
	}

	if len(r.Disks) > 0 {
		disks := a.NewTable("DISK", "FREE", "TOTAL", "RESERVED")
		for _, d := range r.Disks {
			disks.Row(d.Path, humanize.Size(d.Free), humanize.Size(d.Total), humanize.Size(d.Reserve))
		}

		if err := a.after(disks.Write); err != nil {
			return err
		}
	}

	if err := a.collectionText(r.Collected); err != nil {
		return err
	}
	if len(r.Users) == 0 {
		return nil
	}

	users := a.NewTable("USER", "JOBS", "OUTPUT", "CHECKPOINTS", "OUTPUT FILES")
	for _, u := range r.Users {
		users.Row(string(u.User), strconv.Itoa(u.Jobs), humanize.Size(u.Output), humanize.Size(u.Checkpoints),
			humanize.Size(u.Files))
	}

	return a.after(users.Write)
}

// after writes a table after others.
func (a *app) after(write func(io.Writer) error) error {
	if _, err := io.WriteString(a.Stdout, "\n"); err != nil {
		return err
	}

	return write(a.Stdout)
}

// collectionText says what the last collection found and removed.
func (a *app) collectionText(c *api.Collection) error {
	if c == nil {
		return nil
	}

	outcome := "removed nothing"
	if c.Removed != "" {
		outcome = c.Removed
	}

	if c.Failure != "" {
		outcome += "; failed: " + c.Failure
	}

	if _, err := fmt.Fprintf(a.Stdout, "\nLast collection %s: %s\n", humanize.Time(c.At, a.Here(a.Clock.Now())),
		outcome); err != nil {
		return err
	}

	stored := a.NewTable("STORED", "COUNT", "SIZE")
	for _, row := range []struct {
		what   string
		amount api.Amount
	}{{"files", c.Files}, {"chunks of checkpoints and output files", c.Chunks}, {"output", c.Output}} {
		stored.Row(row.what, strconv.Itoa(row.amount.Count), humanize.Size(row.amount.Bytes))
	}

	return a.after(stored.Write)
}
