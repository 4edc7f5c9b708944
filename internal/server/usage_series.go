package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/ledger"
	"trainyard/internal/server/httpapi"
)

type usageSeriesInput struct {
	Period
	By    string   `query:"by" enum:"researcher,project,class,gpu,account,provider,offer,node" default:"researcher" doc:"key that tells the lines apart"`
	Where []string `query:"where,explode" maxItems:"100" doc:"KEY=VALUE; several values of one key are alternatives"`
	Most  int      `query:"most" minimum:"1" maximum:"20" default:"6" doc:"number of values with a line of their own; the others are added up"`
}

// usageSeries reports how a period went. It is answered from totals of hours and days, and is as large as there are
// stretches and lines, however many values the key has.
func (s *Server) usageSeries(ctx context.Context, in *usageSeriesInput) (*httpapi.Body[api.UsageSeries], error) {
	now := s.Clock.Now()
	by := step(in.From, cmp.Or(in.To, now))
	ask := usageReportInput{Period: in.Period, By: []string{string(by), in.By}, Where: in.Where}

	q, err := ask.question()
	if err == nil {
		err = s.confine(ctx, &q)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	if _, err := ledger.NewSummary(q); err != nil { // before anything is read
		return nil, s.fail(ctx, err)
	}

	end, err := s.reports.begin(ctx, callerOf(ctx).User)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	var out api.UsageSeries

	err = s.readLedger(ctx, func(r *reading) error {
		if q.From.Before(r.detailed) && q.Group[0] == ledger.ByHour {
			q.Group[0] = ledger.ByDay
		}

		report, err := r.sum(ctx, q)
		if err != nil {
			return err
		}

		out, err = toUsageSeries(report, cmp.Or(in.To, now), in.Most)
		out.NoTariff = r.noTariff

		return err
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.UsageSeries]{Body: out}, nil
}

// toUsageSeries makes lines of a report by a stretch of time and another key.
func toUsageSeries(r *ledger.Report, to time.Time, most int) (api.UsageSeries, error) {
	out := api.UsageSeries{
		From: timeOrNil(r.From), To: timeOrNil(r.To), Step: string(r.Group[0]), By: string(r.Group[1]),
		Starts: []time.Time{}, Lines: []api.UsageLine{}, Total: toAmounts(&r.Total),
	}

	labels, err := stretches(r, to)
	if err != nil {
		return out, err
	}

	for _, label := range labels {
		start, err := ledger.StretchStart(r.Group[0], label)
		if err != nil {
			return out, fmt.Errorf("report usage over time: %w", err)
		}

		out.Starts = append(out.Starts, start)
	}

	lines := linesOf(r, most)
	for i := range lines {
		out.Lines = append(out.Lines, api.UsageLine{
			Key: lines[i].key, Others: lines[i].others, Cost: make([]float64, len(labels)),
			GPUSeconds: make([]float64, len(labels)), Energy: make([]float64, len(labels)),
		})
	}

	for i := range r.Rows {
		row := &r.Rows[i]
		at, _ := slices.BinarySearch(labels, row.Keys[0])

		line := slices.IndexFunc(lines, func(l seriesLine) bool { return l.key == row.Keys[1] && l.others == 0 })
		if line < 0 {
			line = len(lines) - 1
		}

		l := &out.Lines[line]
		l.Cost[at] += row.Cost().Dollars()
		l.GPUSeconds[at] += seconds(row.GPUTime)
		l.Energy[at] += row.Energy.KWh()
	}

	return out, nil
}

// stretches names all stretches of a report in order, also those in which nothing was.
func stretches(r *ledger.Report, to time.Time) ([]string, error) {
	from := r.From
	if from.IsZero() && len(r.Rows) > 0 {
		var err error

		from, err = ledger.StretchStart(r.Group[0], r.Rows[0].Keys[0])
		if err != nil {
			return nil, fmt.Errorf("report usage over time: %w", err)
		}
	}

	labels := ledger.Buckets(r.Group[0], from, to)
	for i := range r.Rows {
		labels = append(labels, r.Rows[i].Keys[0])
	}

	slices.Sort(labels)

	return slices.Compact(labels), nil
}

// seriesLine is a value that has a line, or all others together.
type seriesLine struct {
	key    string
	others int
	sum    ledger.Amounts
}

// linesOf returns the values that cost most, or took most GPU time where nothing has a price, and a line for the
// others.
func linesOf(r *ledger.Report, most int) []seriesLine {
	sums := map[string]*seriesLine{}

	for i := range r.Rows {
		key := r.Rows[i].Keys[1]
		if sums[key] == nil {
			sums[key] = &seriesLine{key: key}
		}

		sum, a := &sums[key].sum, &r.Rows[i].Amounts
		sum.NodeCost += a.NodeCost
		sum.EnergyCost += a.EnergyCost
		sum.GPUTime += a.GPUTime
	}

	var lines []seriesLine
	for _, l := range sums {
		lines = append(lines, *l)
	}

	slices.SortFunc(lines, func(a, b seriesLine) int {
		return cmp.Or(cmp.Compare(b.sum.Cost(), a.sum.Cost()), cmp.Compare(b.sum.GPUTime, a.sum.GPUTime),
			cmp.Compare(a.key, b.key))
	})

	if len(lines) <= most {
		return lines
	}

	return append(lines[:most:most], seriesLine{others: len(lines) - most})
}
