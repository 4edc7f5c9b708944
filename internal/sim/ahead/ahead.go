// Package ahead simulates a live yard for people who would change it: as it is, and with other nodes, prices,
// priorities, another policy or load.
//
// Both cases are simulated several times with run times drawn from the prediction intervals of the forecasts, the same
// for both, so that the figures have intervals and the difference between them is that of the change. What comes out
// is bounded, and so is the time that it takes: what is not done by then is left out. The server answers what-if
// questions with it, beside its loop.
package ahead

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/internal/sim/trace"
	"trainyard/internal/sim/trace/nodes"
	"trainyard/internal/sim/yardview"
)

// Bounds of a question.
const (
	maxJobs     = 2_000
	maxAgain    = 300 // jobs of the last day that are submitted again
	usualDraws  = 11
	usualLength = time.Hour
	day         = 24 * time.Hour
	horizon     = 30 * day
)

// Yard is what is known of a yard beside what its API says.
type Yard struct {
	Policies place.Registry
	Tariff   *fleet.Tariff // nil for none
	// Patience is how long the simulations may take. Those that are done by then are the answer.
	Patience time.Duration
	Clock    clock.Clock
}

// question is a request that was understood.
type question struct {
	*Yard
	view    *yardview.View
	lengths *yardview.Lengths
	recent  []sim.Job
	cases   [2]variant // today, then
	draws   int
}

// variant is the yard in one case.
type variant struct {
	policy  func() place.Policy
	add     []fleet.Node
	tariff  *fleet.Tariff
	load    float64 // 0 if nobody submits anything
	changed map[id.Job]int
}

// Ask simulates a yard as a source shows it.
func (y *Yard) Ask(ctx context.Context, s yardview.Source, in *api.WhatIfRequest) (*api.WhatIf, error) {
	q := &question{Yard: y, draws: in.Draws}
	if q.draws == 0 {
		q.draws = usualDraws
	}

	// What is wrong with the question is said before anything is read.
	changes, err := q.understand(in)
	if err != nil {
		return nil, err
	}

	q.view, err = yardview.Live(ctx, s, yardview.Options{MaxJobs: maxJobs})
	if err != nil {
		return nil, err
	}

	today, err := y.Policies.Make(q.view.Policy)
	if err != nil {
		return nil, err
	}

	q.cases[0].policy = today
	if q.cases[1].policy == nil {
		q.cases[1].policy = today
	}

	if err := q.known(in.Priorities); err != nil {
		return nil, err
	}

	if in.Load != nil {
		q.recent, err = q.view.Recent(ctx, s, day, maxAgain)
		if err != nil {
			return nil, err
		}
	}

	assume := time.Duration(in.Assume)
	if assume <= 0 {
		assume = usualLength
	}

	q.lengths = yardview.NewLengths(q.view, assume)

	games, err := q.play(ctx)
	if err != nil {
		return nil, err
	}

	out := q.answer(games)
	out.Changes = changes
	out.Gaps = q.gaps(assume)

	return out, nil
}

// understand reads what would be changed, and says it in words.
func (q *question) understand(in *api.WhatIfRequest) (changes []string, err error) {
	today, then := &q.cases[0], &q.cases[1]
	today.tariff, then.tariff = q.Tariff, q.Tariff
	changes = []string{}

	if in.AddNodes != "" {
		then.add, err = scenario.Cluster(in.AddNodes, "added-", fleet.Local)
		if err != nil {
			return nil, err
		}

		changes = append(changes, in.AddNodes+" added")
	}

	if in.Policy != "" {
		then.policy, err = q.Policies.Make(in.Policy)
		if err != nil {
			return nil, err
		}

		changes = append(changes, "policy "+in.Policy)
	}

	if len(in.Prices) > 0 {
		then.tariff, err = priced(q.Tariff, in.Prices)
		if err != nil {
			return nil, err
		}

		changes = append(changes, pricesText(in.Prices))
	}

	if in.Load != nil {
		today.load, then.load = 1, *in.Load
		if *in.Load != 1 {
			changes = append(changes, fmt.Sprintf("%g× the submissions of the last day", *in.Load))
		}
	}

	if len(in.Priorities) > 0 {
		then.changed = in.Priorities
		changes = append(changes, "other priorities of "+humanize.Count(len(in.Priorities), "job"))
	}

	return changes, nil
}

// known refuses priorities of jobs that are not there, and such as no job can have.
func (q *question) known(priorities map[id.Job]int) error {
	for j, p := range priorities {
		if p < 0 || p > 100 {
			return fault.New(fault.Invalid, "bad_priority", "priority must be an integer between 0 and 100, got %d", p).
				WithField("priorities")
		}

		if _, ok := q.view.Jobs[j]; !ok {
			return fault.New(fault.NotFound, "job_not_found", "job %s not found among the running and queued jobs", j)
		}
	}

	return nil
}

// priced puts prices in front of a tariff. Nodes of these GPUs cost nothing while they are unused.
func priced(old *fleet.Tariff, prices map[string]float64) (*fleet.Tariff, error) {
	out := &fleet.Tariff{}
	if old != nil {
		*out = *old
	}

	out.Nodes = nil

	for _, kind := range sorted(prices) {
		var gpu job.GPUKind
		if err := gpu.UnmarshalText([]byte(kind)); err != nil || prices[kind] < 0 {
			return nil, fault.New(fault.Invalid, "bad_price", "invalid price %g of %q", prices[kind], kind).
				WithField("prices").WithRemedy("use a GPU such as A100 or A100:80GB, and dollars for an hour")
		}

		p := fleet.NodePrice{GPU: kind, Off: true}
		for n := range fleet.MaxGPUs + 1 {
			p.Hourly = append(p.Hourly, money.PerHour(prices[kind]).Times(float64(n)))
		}

		out.Nodes = append(out.Nodes, p)
	}

	if old != nil {
		out.Nodes = append(out.Nodes, old.Nodes...)
	}

	return out, nil
}

func sorted(prices map[string]float64) []string {
	var names []string
	for name := range prices {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

func pricesText(prices map[string]float64) string {
	var parts []string
	for _, kind := range sorted(prices) {
		parts = append(parts, fmt.Sprintf("%s at %s/h", kind, humanize.Dollars(prices[kind])))
	}

	return strings.Join(parts, ", ")
}

// game is one simulation of one case.
type game struct {
	result  *sim.Result
	ends    map[id.Job]sim.Outcome
	arrived int
}

// play simulates both cases, draw by draw, until all are done or the time is up.
func (q *question) play(ctx context.Context) ([][2]game, error) {
	until := q.Clock.Now().Add(q.Patience)
	stop := func() bool { return ctx.Err() != nil || q.Clock.Now().After(until) }

	var games [][2]game

	for draw := range q.draws {
		var pair [2]game

		for i := range q.cases {
			g, err := q.simulate(&q.cases[i], draw, stop)
			if err != nil {
				return nil, fmt.Errorf("simulate the yard: %w", err)
			}

			pair[i] = g
		}

		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if stop() {
			break
		}

		games = append(games, pair)
	}

	if len(games) == 0 {
		return nil, errTooLong(q.Patience)
	}

	return games, nil
}

func errTooLong(patience time.Duration) error {
	return fault.New(fault.OverLimit, "too_long", "the simulation takes longer than %s", humanize.Duration(patience)).
		WithRemedy("simulate with trainyard simulate --from-yard")
}

// simulate lets the yard go on in one case. The same draw gives jobs the same run times in every case.
func (q *question) simulate(v *variant, draw int, stop func() bool) (game, error) {
	g := game{ends: map[id.Job]sim.Outcome{}}
	again := q.again(v.load, draw)
	g.arrived = len(again)
	last := q.view.State.LastJob

	r, err := sim.Run(sim.Config{
		Policy: v.policy(), Changes: joins(v.add), Jobs: &workload{again}, FairShare: true, Tariff: v.tariff,
		Until: horizon, Detect: time.Minute, Stop: stop, Keep: keep,
		Begin: &sim.Beginning{Now: q.view.Now, State: v.state(&q.view.State), Truth: func(j job.Job) *sim.Job {
			return q.lengths.Drawn(j, deviations(draw, j.ID))
		}},
		OnEnd: func(o *sim.Outcome) {
			if n, _ := o.ID.Number(); n <= last {
				g.ends[o.ID] = *o
			}
		},
	})
	g.result = r

	return g, err
}

// keep is how many points of a series are kept.
const keep = 500

// deviations says how many standard deviations from its forecast a job is in a draw. The first draw is what the
// forecasts say.
func deviations(draw int, j id.Job) float64 {
	if draw == 0 {
		return 0
	}

	n, _ := j.Number()

	return trace.NewRand(uint64(draw), n).NormFloat64()
}

// joins lets nodes join at once.
func joins(add []fleet.Node) sim.Changes {
	var list []sim.Change
	for i := range add {
		list = append(list, sim.Change{Kind: sim.NodeJoins, ID: add[i].ID, Node: &add[i]})
	}

	return nodes.List(list)
}
