package ahead

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/quantile"
	"trainyard/internal/sim"
	"trainyard/internal/sim/whatif"
	"trainyard/internal/sim/yardview"
)

const (
	maxList    = 500 // jobs that are listed
	linePoints = 120 // points of a line
)

// answer puts together what the simulations came to.
func (q *question) answer(games [][2]game) *api.WhatIf {
	return &api.WhatIf{
		Now: q.view.Now, Policy: q.view.Policy, Jobs: len(q.view.State.Jobs), Arrived: games[0][0].arrived,
		Draws: len(games), Figures: figures(games), Timeline: q.timeline(games), List: q.list(games),
	}
}

// band is the median of values with the interval that holds 80 % of them.
func band(values []float64) job.Band {
	values = slices.Sorted(slices.Values(values))

	return job.Band{
		Low: quantile.Linear(values, 0.1), Mid: quantile.Linear(values, 0.5), High: quantile.Linear(values, 0.9),
	}
}

// shown are the measures that people look for. Others are left out if they are nothing in both cases, and hidden
// always: they say little of so few jobs.
var (
	shown  = []string{"completion_mean_s", "waiting_mean_s", "makespan_s", "utilisation"}
	hidden = []string{"jobs", "completion_p50_s", "completion_p99_s", "waiting_p99_s"}
)

func figures(games [][2]game) []api.WhatIfFigure {
	list := []api.WhatIfFigure{}

	for _, m := range whatif.Measures() {
		var values [3][]float64

		something := slices.Contains(shown, m.Key)
		for _, pair := range games {
			today, then := m.Of(pair[0].result), m.Of(pair[1].result)
			something = something || today != 0 || then != 0

			for i, v := range [3]float64{today, then, then - today} {
				values[i] = append(values[i], v)
			}
		}

		if !something || slices.Contains(hidden, m.Key) {
			continue
		}

		title := m.Group
		if m.Title != "" {
			title += ", " + m.Title
		}

		list = append(list, api.WhatIfFigure{
			Key: m.Key, Title: title, Unit: string(m.Unit), Best: m.Best,
			Today: band(values[0]), Then: band(values[1]), Change: band(values[2]),
		})
	}

	return list
}

// timeline draws how both cases go on until the last job has ended.
func (q *question) timeline(games [][2]game) api.WhatIfTimeline {
	end := time.Minute
	for _, pair := range games {
		end = max(end, pair[0].result.Makespan, pair[1].result.Makespan)
	}

	out := api.WhatIfTimeline{}
	for i := range linePoints {
		out.Seconds = append(out.Seconds, math.Round(end.Seconds()*float64(i)/(linePoints-1)))
	}

	left, use := [2]api.WhatIfLine{}, [2]api.WhatIfLine{}

	for c := range q.cases {
		var ended, used [][]float64
		for _, pair := range games {
			ended = append(ended, q.left(&pair[c], out.Seconds))
			used = append(used, steps(pair[c].result.Use, out.Seconds))
		}

		left[c], use[c] = line(ended), line(used)
	}

	out.Left = api.WhatIfLines{Today: left[0], Then: left[1]}
	out.Use = api.WhatIfLines{Today: use[0], Then: use[1]}

	return out
}

// left counts the jobs that are in the yard now and have not ended at each of the times.
func (q *question) left(g *game, at []float64) []float64 {
	var ends []float64
	for _, o := range g.ends {
		ends = append(ends, o.Ended.Seconds())
	}

	slices.Sort(ends)

	out := make([]float64, len(at))
	for i, t := range at {
		n, _ := slices.BinarySearch(ends, t)
		out[i] = float64(len(q.view.State.Jobs) - n)
	}

	return out
}

// steps returns the values of a series at each of the times, 0 after its end.
func steps(series []sim.Point, at []float64) []float64 {
	out := make([]float64, len(at))
	for i, t := range at {
		n, found := slices.BinarySearchFunc(series, t, func(p sim.Point, t float64) int { return cmp.Compare(p.X, t) })
		if !found {
			n--
		}

		if n >= 0 && n < len(series) && t <= series[len(series)-1].X {
			out[i] = series[n].Y
		}
	}

	return out
}

// line sums up what several simulations say for each time.
func line(draws [][]float64) api.WhatIfLine {
	var out api.WhatIfLine

	for i := range draws[0] {
		values := make([]float64, len(draws))
		for k := range draws {
			values[k] = draws[k][i]
		}

		b := band(values)
		out.Low, out.Mid, out.High = append(out.Low, b.Low), append(out.Mid, b.Mid), append(out.High, b.High)
	}

	return out
}

// list says of each job when it would start and end, those that start first first.
func (q *question) list(games [][2]game) []api.WhatIfJob {
	list := []api.WhatIfJob{}

	for i := range q.view.State.Jobs {
		j := &q.view.State.Jobs[i]
		list = append(list, api.WhatIfJob{
			Job: j.ID, Name: j.Spec.Name, Owner: j.Owner, State: j.State, Basis: string(q.lengths.Basis(j.ID)),
			Today: endOf(games, 0, j.ID, j.State.Waiting()), Then: endOf(games, 1, j.ID, j.State.Waiting()),
		})
	}

	slices.SortStableFunc(list, func(a, b api.WhatIfJob) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(start(&a), start(&b)))
	})

	// Whoever asks about a job gets an answer about it, wherever it is in the queue.
	kept := min(len(list), maxList)
	asked := slices.DeleteFunc(slices.Clone(list[kept:]), func(j api.WhatIfJob) bool {
		_, ok := q.cases[1].changed[j.Job]
		return !ok
	})

	return append(list[:kept], asked...)
}

// rank puts jobs that run first, and those that never start last.
func rank(j *api.WhatIfJob) int {
	switch {
	case !j.State.Waiting():
		return 0
	case j.Today.Start != nil:
		return 1
	}

	return 2
}

func start(j *api.WhatIfJob) float64 {
	if j.Today.Start == nil {
		return 0
	}

	return *j.Today.Start
}

// endOf says when a job starts and ends in one case. It does neither if it does not in most simulations.
func endOf(games [][2]game, which int, j id.Job, waits bool) api.WhatIfEnd {
	var starts, ends []float64

	for _, pair := range games {
		o, ended := pair[which].ends[j]
		if !ended || o.State != job.Succeeded {
			continue
		}

		ends = append(ends, o.Ended.Seconds())
		if o.Started != sim.NotStarted {
			starts = append(starts, max(o.Started.Seconds(), 0))
		}
	}

	var out api.WhatIfEnd
	if 2*len(ends) > len(games) {
		b := band(ends)
		out.End = &b
	}

	if waits && 2*len(starts) > len(games) {
		mid := band(starts).Mid
		out.Start = &mid
	}

	return out
}

// gaps says what is not simulated as it really is.
func (q *question) gaps(assume time.Duration) []string {
	out := append([]string{}, q.view.Gaps...)
	counts := map[yardview.Basis]int{}

	for i := range q.view.State.Jobs {
		counts[q.lengths.Basis(q.view.State.Jobs[i].ID)]++
	}

	for _, g := range []struct {
		basis yardview.Basis
		text  string
	}{
		{yardview.BasisMost, "with a maximum duration only, assumed to run that long"},
		{yardview.BasisOverdue, "running longer than expected, assumed to be half done"},
		{yardview.BasisAssumed, "of unknown run time, assumed to run " + humanize.Duration(assume)},
	} {
		if n := counts[g.basis]; n > 0 {
			out = append(out, fmt.Sprintf("%s %s", humanize.Count(n, "job"), g.text))
		}
	}

	if q.Tariff == nil {
		out = append(out, "the server has no tariff: what nodes cost today is unknown, not $0.00")
	}

	return append(out, "no on-demand node is provisioned, and quotas and budgets do not hold jobs")
}
