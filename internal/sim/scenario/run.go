package scenario

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/sim"
)

// Config returns what to simulate, all but the policy. Each call makes a workload
// of its own, so that one scenario can be simulated many times at once. With a
// load of 2 the jobs come twice as fast.
func (s *Scenario) Config(load float64, seed uint64) (sim.Config, error) {
	jobs, err := s.workload(seed)
	if err != nil {
		return sim.Config{}, fmt.Errorf("scenario %s: %w", s.Name, err)
	}

	cfg := sim.Config{
		Nodes: slices.Clone(s.nodes), Jobs: Scaled(jobs, load), Changes: s.timeline(seed), Tariff: s.tariff(),
		FairShare: s.shares, Until: s.Until, Detect: s.detect,
	}

	s.hybrid.setUp(&cfg)

	return cfg, nil
}

// keepSpans is how many spans are kept where what is provisioned is billed by them.
const keepSpans = 1 << 20

// Run simulates the scenario with a policy, and returns the log of decisions.
func (s *Scenario) Run(p place.Policy) (*sim.Result, string, error) {
	cfg, err := s.Config(1, s.Seed)
	if err != nil {
		return nil, "", err
	}

	var log bytes.Buffer
	cfg.Policy, cfg.Log = p, &log
	r, err := s.Simulate(cfg)

	return r, log.String(), err
}

// Simulate runs a configuration that was made of the scenario. What sim.Run leaves
// out is added: provisioned nodes are paid for whole stretches of time.
func (s *Scenario) Simulate(cfg sim.Config) (*sim.Result, error) {
	billed := slices.ContainsFunc(s.groups, func(g group) bool { return g.billed > 0 })
	keep := cfg.Keep
	if billed {
		cfg.Keep = max(keep, keepSpans)
	}

	r, err := sim.Run(cfg)
	if err != nil || !billed {
		return r, err
	}

	s.bill(r)

	if keep == 0 {
		r.Use, r.Distribution, r.Spans = nil, nil, nil
	} else if len(r.Spans) > keep {
		r.Spans = r.Spans[:keep]
	}

	return r, nil
}

// bill adds what is paid beyond the time of use because it is billed in whole stretches.
func (s *Scenario) bill(r *sim.Result) {
	perGroup := map[string]*group{}
	for i := range s.groups {
		g := &s.groups[i]
		for _, n := range g.nodes {
			if g.billed > 0 && len(g.price.Hourly) > 0 {
				perGroup[string(n)] = g
			}
		}
	}

	spans := slices.Clone(r.Spans)
	slices.SortStableFunc(spans, func(a, b sim.Span) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.From, b.From))
	})
	for i := 0; i < len(spans); {
		node, from, to := spans[i].Node, spans[i].From, spans[i].To
		for i++; i < len(spans) && spans[i].Node == node && spans[i].From <= to; i++ {
			to = max(to, spans[i].To)
		}

		g := perGroup[node]
		if g == nil {
			continue
		}

		used, step := seconds(to-from), g.billed
		more := (used + step - 1).Truncate(step) - used

		// What the node costs with the fewest GPUs in use: nothing runs there any more.
		cost := float64(g.price.Hourly[min(1, len(g.price.Hourly)-1)].For(more))
		r.Money += cost
		r.ByClass[g.class] += cost
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// rounds is how long the five more rounds take: they must differ in time to be
// rounds of their own, and no policy should care for so little.
const rounds = 5 * time.Nanosecond

// StillWater runs the scenario once more and asks the policy for five more rounds:
// at the time that the scenario names, or when jobs are left for good at the end.
// It returns the decisions that were made only because the policy was asked
// again. A policy that keeps deciding in an unchanged yard would never let it rest.
func (s *Scenario) StillWater(newPolicy func() place.Policy) ([]string, error) {
	cfg, err := s.Config(1, s.Seed)
	if err != nil {
		return nil, err
	}

	at := s.Still
	cfg.Policy = newPolicy()
	last := time.Duration(0)
	cfg.OnStep = func(now time.Duration, _ int) { last = now }
	r, err := sim.Run(cfg)
	switch {
	case err != nil:
		return nil, err
	case at < 0 && r.Unfinished == 0:
		return nil, nil // the yard is empty: there is nothing to decide about
	case at < 0 && s.Until > 0:
		at = s.Until - rounds
	case at < 0:
		at = last + time.Second
	}

	cfg, err = s.Config(1, s.Seed)
	if err != nil {
		return nil, err
	}

	asker := &persistent{Policy: newPolicy(), from: sim.Epoch().Add(at), to: sim.Epoch().Add(at + rounds)}
	cfg.Policy = asker
	if cfg.Until == 0 {
		cfg.Until = at + rounds
	}

	if _, err := sim.Run(cfg); err != nil {
		return nil, err
	}

	return asker.decided, nil
}

// persistent is a policy that is asked again and again within a stretch of time.
type persistent struct {
	place.Policy
	from, to time.Time
	decided  []string
}

// Shares reports whether the policy lets jobs share GPUs.
func (p *persistent) Shares() bool { return place.Shares(p.Policy) }

// Plan lets the policy plan, and asks to be asked again.
func (p *persistent) Plan(v *place.View) place.Plan {
	plan := p.Policy.Plan(v)
	if v.Now.Before(p.from) {
		if plan.WakeAt.IsZero() || plan.WakeAt.After(p.from) {
			plan.WakeAt = p.from
		}

		return plan
	}

	if v.Now.After(p.to) {
		return plan
	}

	note := func(what string, j id.Job, why string) {
		p.decided = append(p.decided, fmt.Sprintf("%s %s (%s)", what, j, why))
	}
	for _, s := range plan.Stops {
		note("stop", s.Running.Job, s.Reason)
	}

	for _, s := range plan.Starts {
		note("start", s.Item.Job, s.Reason)
	}

	if next := v.Now.Add(time.Nanosecond); !next.After(p.to) {
		plan.WakeAt = next
	}

	return plan
}
