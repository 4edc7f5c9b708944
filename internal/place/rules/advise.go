package rules

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
)

// advise turns a job's options into what people are shown.
func (e *engine) advise(j *queuedJob) []place.Option {
	s := e.shapeOf(j)
	j.nowOnly, j.limited = false, false
	options := e.options(j, s)
	taken := e.choose(j, options)
	if taken != nil { // it may move when others are added
		chosen := *taken
		options = slices.DeleteFunc(slices.Clone(options), func(o option) bool {
			return o.provisions() == chosen.provisions() &&
				o.score == chosen.score
		})

		if !chosen.provisions() && chosen.startsIn > 0 {
			if freed := e.preempt(j, &chosen); freed != nil {
				options = slices.Insert(options, 0, chosen)
				chosen = *freed
			}
		}

		options = slices.Insert(options, 0, chosen)
		options = append(options, e.others(j, s, options)...)
		taken = &options[0]
	}

	options = append(options, e.exhausted(j, s)...)
	if taken != nil {
		taken = &options[0]
	}

	var list []place.Option

	for i := range options {
		o := &options[i]
		cost := e.ledgerCost(j, o)
		p := place.Option{
			What: e.describeOption(o), Start: e.view.Now.Add(o.readyIn), Finish: e.view.Now.Add(o.done()),
			Cost: cost, Basis: j.basedOn(), Guess: j.guess, Count: len(o.rooms),
		}

		p.Earliest, p.Latest = e.interval(j, o)
		p.CostMost = cost
		if o.runs > 0 {
			p.CostMost = max(p.CostMost, cost.Times(float64(p.Latest.Sub(p.Start))/float64(o.runs)))
		}

		if o.provisions() {
			held := job.Duration(p.Latest.Sub(e.view.Now))
			p.CostMost = max(cost, o.offer.Offer.Cost(held).Times(float64(o.offer.Nodes)))
			p.Class = fleet.OnDemand
			p.Offer = o.offer.Offer.Name
			p.Count = o.offer.Nodes
		} else {
			p.Class, p.Nodes = o.class(), e.names(o.rooms)
			p.Unpriced = cost == 0 && e.unpriced(o.rooms)
		}

		switch {
		case o == taken:
			p.Verdict = "chosen: " + e.because(j, o, options)
		case o.barredBy != "":
			p.Verdict, p.Excluded = "not allowed: "+o.barredBy, o.barredBy
		case o.provisions() && j.costSensitive:
			p.Verdict = fmt.Sprintf("only if no node that is paid for anyway is free within %s (cost-sensitive job)",
				job.Duration(e.cfg.Patience))
		case taken != nil && o.done() > taken.done() && cost >= e.ledgerCost(j, taken):
			p.Verdict = "slower and not cheaper"
		case taken != nil && o.done() > taken.done():
			p.Verdict = "cheaper but slower"
		case taken != nil:
			p.Verdict = "faster but more expensive"
		default:
			p.Verdict = "considered"
		}

		list = append(list, p)
		if o == taken {
			list[0], list[len(list)-1] = list[len(list)-1], list[0]
		}
	}

	return list
}

// unpriced reports whether the tariff says of none of the nodes what they cost.
func (e *engine) unpriced(rooms []int32) bool {
	for _, at := range rooms {
		if e.view.Tariff.Of(e.view.Rooms[at].Node) != nil {
			return false
		}
	}

	return true
}

// maxOthers bounds how many offers are shown beside the best.
const maxOthers = 4

// others lists offers to be shown beside those that are among the options already.
func (e *engine) others(j *queuedJob, s *shape, options []option) []option {
	var list []option
	a := e.allowance(j)

	if len(e.view.Offers) == 0 || !fleet.OnDemand.Allows(s.Match.Need.Place) {
		return nil
	}

	for _, h := range e.policy.catalogue.Fit(&s.Match.Need).Options(e.query(j)) {
		o := e.asOption(&h)
		o.barredBy = e.barred(j, a, &o)

		if lists(options, h.Offer) || lists(list, h.Offer) {
			continue
		}

		e.score(j, &o)
		list = append(list, o)
		if len(list) == maxOthers {
			break
		}
	}

	return list
}

// lists reports whether an offer is among the options: it is shown once, with the number of nodes
// that is best.
func lists(options []option, of *fleet.Offer) bool {
	return slices.ContainsFunc(options, func(o option) bool { return o.provisions() && o.offer.Offer.Name == of.Name })
}

// exhausted lists the offers of which no more nodes may be provisioned, to be shown.
func (e *engine) exhausted(j *queuedJob, s *shape) []option {
	if len(e.view.Exhausted) == 0 || !fleet.OnDemand.Allows(s.Match.Need.Place) {
		return nil
	}

	var list []option
	for _, h := range ondemand.NewCatalogue(e.view.Exhausted).Fit(&s.Match.Need).Options(e.query(j)) {
		if lists(list, h.Offer) {
			continue
		}

		o := e.asOption(&h)
		o.barredBy = fmt.Sprintf("its limit of %d nodes (max_nodes) is reached", h.Offer.MaxNodes)
		e.score(j, &o)
		list = append(list, o)
		if len(list) == maxOthers {
			break
		}
	}

	return list
}

// interval is the 80 % prediction interval of the finish, by what the estimate is based on:
// what people expect is off by a half and more, a measured speed is not.
func (e *engine) interval(j *queuedJob, o *option) (from, to time.Time) {
	low, high := 0.5, 2.0
	switch {
	case j.high > 0:
		low, high = float64(j.low)/float64(max(j.lasts, 1)), float64(j.high)/float64(max(j.lasts, 1))
	case j.basis == measured:
		low, high = 0.85, 1.25
	case j.basis == guessed:
		low, high = 0.05, 12
	}

	low, high = min(low, 1), max(high, 1) // a mean may lie beyond the quantiles; the estimate lies in its interval
	start := e.view.Now.Add(o.readyIn)

	return start.Add(job.Seconds(o.runs.Seconds() * low)), start.Add(job.Seconds(o.runs.Seconds() * high))
}
