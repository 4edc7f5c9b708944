package forecasts

import (
	"context"
	"fmt"
	"strconv"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
)

// showRecord shows how accurate forecasts have been.
func (f *Forecasts) showRecord(ctx context.Context, c *api.Client) error {
	r, err := c.ForecastRecord(ctx)
	if err != nil {
		return err
	}

	return f.Show(r, nil, func() error {
		if err := f.write("%s", summary(&r)); err != nil {
			return err
		}

		if t := f.accuracyTable(r.Methods); t.Len() > 0 {
			err := f.write("\nMedian error of remaining time by job progress (n = forecasts; none = no estimate)\n")
			if err != nil {
				return err
			}

			if err := t.Write(f.Stdout); err != nil {
				return err
			}
		}

		if err := f.bases(r.Bases); err != nil {
			return err
		}

		if err := f.worst(r.Worst); err != nil {
			return err
		}

		return f.model(&r)
	})
}

// basisWords say what forecasts were based on.
var basisWords = map[string]string{
	"steps":  "declared steps",
	"like":   "similar jobs",
	"alone":  "its own curve",
	"before": "no point yet",
}

// bases shows how accurate forecasts were by what they were based on.
func (f *Forecasts) bases(list []api.BasisAccuracy) error {
	if len(list) == 0 {
		return nil
	}

	if err := f.write("\nAccuracy by basis\n"); err != nil {
		return err
	}

	t := f.NewTable("BASIS", "FORECASTS", "MEDIAN ERROR", "P80 ERROR", "IN 80% INTERVAL")
	for i := range list {
		b := &list[i]

		covered := ""
		if b.CoveredOf > 0 {
			covered = fmt.Sprintf("%s (n=%d)", humanize.Percent(b.Covered), b.CoveredOf)
		}

		t.Row(basisWords[b.Basis], strconv.Itoa(b.Count), humanize.Percent(b.Median), humanize.Percent(b.P80), covered)
	}

	return t.Write(f.Stdout)
}

// worst shows forecasts of the newest jobs that were farthest off.
func (f *Forecasts) worst(list []api.WorstForecast) error {
	if len(list) == 0 {
		return nil
	}

	if err := f.write("\nLargest errors of the newest jobs\n"); err != nil {
		return err
	}

	t := f.NewTable("JOB", "NAME", "OWNER", "FINISHED", "AT", "TOOK", "BASIS", "IN 80% INTERVAL")
	for i := range list {
		w := &list[i]

		covered := ""
		if w.Covered != nil {
			covered = map[bool]string{true: "yes", false: "no"}[*w.Covered]
		}

		t.Row(string(w.Job), w.Name, string(w.Owner), humanize.Ago(w.Finished, f.now()), humanize.Percent(w.Progress),
			fmt.Sprintf("%.2g× the estimate", w.Ratio), basisWords[w.Basis], covered)
	}

	return t.Write(f.Stdout)
}

// summary says how many finished jobs forecasts are based on, and their coverage.
func summary(r *api.ForecastRecord) string {
	text := fmt.Sprintf(
		"History: %s that succeeded; forecasts of %d of them were checked.\n",
		humanize.Count(r.Jobs, "job"),
		r.Scored,
	)

	if r.Scored < r.Wanted {
		return fmt.Sprintf(
			"Little history: forecasts of %d jobs were checked, %d are wanted; until then intervals are guesses, "+
				"marked with \"~\".\n",
			r.Scored,
			r.Wanted,
		) + text
	}

	if r.CoveredOf > 0 {
		text += fmt.Sprintf("Coverage of the 80%% prediction interval: %s of %s.\n",
			humanize.Percent(r.Covered), humanize.Count(r.CoveredOf, "forecast"))
	}

	return text
}

// accuracyTable has a row for each method and a column for each quarter of job progress.
func (f *Forecasts) accuracyTable(methods []api.MethodAccuracy) *table.Table {
	head := []string{"ALL", "0-25%", "25-50%", "50-75%", "75-100%"} // by number of the quarter
	t := f.NewTable(append([]string{"METHOD"}, head...)...)
	for _, m := range methods {
		row := make([]string, 1+len(head))
		row[0] = m.Method
		for _, e := range m.Errors {
			if e.Quarter >= 0 && e.Quarter < len(head) && e.Count > 0 {
				row[1+e.Quarter] = errorOf(&e)
			}
		}

		t.Row(row...)
	}

	return t
}

// errorOf writes how wrong a method was: "12% (n=140)", and how often it gave no estimate.
func errorOf(e *api.Accuracy) string {
	switch {
	case e.Failed >= e.Count:
		return fmt.Sprintf("none (n=%d)", e.Count)
	case e.Failed > 0:
		return fmt.Sprintf("%s (n=%d, %d none)", humanize.Percent(e.Median), e.Count, e.Failed)
	}

	return fmt.Sprintf("%s (n=%d)", humanize.Percent(e.Median), e.Count)
}

// model describes the duration model.
func (f *Forecasts) model(r *api.ForecastRecord) error {
	m := r.Model
	if m == nil {
		if r.NoModel == "" {
			return nil
		}

		return f.write("\nNo duration model: %s\n", table.Plain(r.NoModel))
	}

	err := f.write("\nDuration model %d, trained %s on %s (%.12s)\n",
		m.Version, humanize.Ago(m.Trained, f.now()), humanize.Count(m.Records, "job"), table.Plain(m.Digest))
	if err != nil {
		return err
	}
	if len(m.Validation) == 0 {
		return nil
	}

	t := f.NewTable("LEARNER", "MEDIAN ERROR", "P80 ERROR", "WITHIN 25%", "WEIGHT")
	for _, v := range m.Validation {
		t.Row(
			v.Learner,
			humanize.Percent(v.Median),
			humanize.Percent(v.P80),
			humanize.Percent(v.Within25),
			humanize.Percent(v.Weight),
		)
	}

	return t.Write(f.Stdout)
}
