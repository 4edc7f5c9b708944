package forecaster

import (
	"context"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/forecast/calibrate"
)

// What is shown of forecasts that were far off.
const (
	maxWorst    = 10
	worstNewest = 200 // jobs that are looked through
)

// addQuality adds how good forecasts were by basis and over time, and whether probabilities came true.
func addQuality(out *api.ForecastRecord, r *calibrate.Record) {
	for _, q := range r.ByClass() {
		out.Bases = append(out.Bases, api.BasisAccuracy{Basis: string(q.Class), Quality: toQuality(&q.Quality)})
	}

	for _, q := range r.OverTime() {
		out.Trend = append(out.Trend, api.TrendAccuracy{Start: q.Start, Quality: toQuality(&q.Quality)})
	}

	for _, l := range r.Reliability() {
		out.Reliability = append(out.Reliability,
			api.Reliability{Expected: l.Expected, Observed: l.Observed, Count: l.Forecasts})
	}
}

func toQuality(q *calibrate.Quality) api.Quality {
	return api.Quality{
		Median: q.Median, P80: q.P80, Count: q.Forecasts, Covered: q.Covered, CoveredOf: q.Intervals,
	}
}

// worstForecasts returns the worst forecasts of jobs that the caller may read. Imported jobs are not in this yard.
func (f *Forecaster) worstForecasts(ctx context.Context, e Edge, r *calibrate.Record) ([]api.WorstForecast, error) {
	var list []api.WorstForecast

	for _, m := range r.Worst(worstNewest) {
		j, err := f.Store.Job(ctx, m.Job)
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}

		if !e.Sees(ctx, &j) {
			continue
		}

		list = append(list, api.WorstForecast{
			Job: j.ID, Name: j.Spec.Name, Owner: j.Owner, Finished: m.Finished, Progress: m.Progress,
			Basis: string(m.Class), Ratio: m.Ratio, Covered: m.Covered,
		})

		if len(list) == maxWorst {
			break
		}
	}

	return list, nil
}
