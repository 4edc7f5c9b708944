package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/job"
)

// span is the period that a report is of, as flags say it.
type span struct{ from, to, last string }

func (s *span) flags(cmd *cobra.Command, last string) {
	f := cmd.Flags()
	f.StringVar(&s.from, "from", "", "start `time`, e.g. 2026-11-01 or 2026-11-01T08:00")
	f.StringVar(&s.to, "to", "", "end `time` (default: now)")
	f.StringVar(&s.last, "last", last, "`duration` to look back, e.g. 24h or 7d; all for everything")
	cmd.MarkFlagsMutuallyExclusive("from", "last")
}

// read returns the two ends of the period; zero for no end.
func (s *span) read(cmd *cobra.Command, now time.Time) (from, to time.Time, err error) {
	to, err = moment(s.to)
	if err != nil {
		return from, to, exit.Usagef(cmd, "--to: %v", err)
	}

	if s.from != "" {
		from, err = moment(s.from)
		if err != nil {
			return from, to, exit.Usagef(cmd, "--from: %v", err)
		}

		return from, to, nil
	}

	if s.last == "all" {
		return from, to, nil
	}

	d, err := job.ParseDuration(s.last)
	if err != nil || d <= 0 {
		return from, to, exit.Usagef(cmd, "--last must be a duration such as 24h or 7d, or all; got %q", s.last)
	}

	if !to.IsZero() {
		now = to
	}

	return now.Add(-time.Duration(d)), to, nil
}

// moment reads a time in UTC.
func moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}

	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}

	return time.Time{}, &badTime{text}
}

type badTime struct{ text string }

func (e *badTime) Error() string {
	return strconv.Quote(e.text) + " is not a time: use 2026-11-01 or 2026-11-01T08:00, in UTC"
}

// reportFlags are those of every report.
type reportFlags struct {
	span
	by, where []string
	csv       bool
}

// reportFlags gives a command the flags of every report.
func (a *app) reportFlags(cmd *cobra.Command, r *reportFlags) {
	r.flags(cmd, "30d")
	cmd.Flags().BoolVar(&r.csv, "csv", false, "write comma-separated values")
	a.OutputFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("csv", "output")
}

// query returns what the flags ask for.
func (r *reportFlags) query(cmd *cobra.Command, now time.Time) (api.UsageQuery, error) {
	from, to, err := r.read(cmd, now)
	return api.UsageQuery{From: from, To: to, By: r.by, Where: r.where}, err
}

// period writes the period of a report.
func (a *app) period(from, to *time.Time) string {
	const layout = "2006-01-02 15:04"
	text := "since the start of recording"
	if from != nil {
		text = "from " + from.UTC().Format(layout) + " UTC"
	}

	if to == nil {
		return text + " until now"
	}

	return text + " to " + to.UTC().Format(layout) + " UTC"
}
