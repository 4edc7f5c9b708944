package rules

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/job"
)

// offers is what can be hired, made ready to be compared with many jobs. It is kept
// from round to round as long as the offers are the same.
type offers struct {
	of        []fleet.Offer // as the view had them
	list      []fleet.Offer
	catalogue *hire.Catalogue
	fits      map[fleet.Need]*hire.Fit
	choices   map[choice]int // index of the best offer, -1 if there is none
	alone     map[alone]*hire.Fit
}

// choice is what the best offer for a job depends on. Jobs that last about as long
// have the same.
type choice struct {
	need   fleet.Need
	value  float64
	length int // logarithm of how long it lasts, in steps of a twentieth
	every  time.Duration
	noSpot bool
	base   float64
}

type alone struct {
	need  fleet.Need
	offer int
}

// maxChoices bounds what is remembered.
const maxChoices = 1 << 16

// takeOffers takes up what can be hired now. What was worked out for jobs with other
// offers is dropped.
func (e *engine) takeOffers() {
	o := e.policy.offers
	if o != nil && len(o.of) == len(e.view.Offers) && (len(o.of) == 0 || &o.of[0] == &e.view.Offers[0]) && len(o.choices) < maxChoices {
		return
	}
	o = &offers{of: e.view.Offers, list: slices.Clone(e.view.Offers), fits: map[fleet.Need]*hire.Fit{}, choices: map[choice]int{}, alone: map[alone]*hire.Fit{}}
	for i := range o.list {
		o.list[i].TFLOPS = o.list[i].Speed() // what is reached, as of the yard's own nodes
	}
	o.catalogue = hire.NewCatalogue(o.list, nil)
	e.policy.offers = o
	e.line.unprice()
}

// offers returns what can be hired now.
func (e *engine) offers() *offers { return e.policy.offers }

// fit compares a need with all offers.
func (o *offers) fit(need *fleet.Need) *hire.Fit {
	plain := *need
	plain.Avoid = "" // nobody has failed there yet
	f, ok := o.fits[plain]
	if !ok {
		f = o.catalogue.Fit(plain)
		o.fits[plain] = f
	}
	return f
}

// first returns the best way to hire for a job. Which offer that is, is looked up
// for jobs that are much alike; what it comes to is reckoned for each.
func (o *offers) first(need *fleet.Need, q *hire.Query) (hire.Option, bool) {
	if q.Takes != nil || q.Stage != nil {
		return o.fit(need).First(*q)
	}
	plain := *need
	plain.Avoid = ""
	key := choice{plain, q.Value, int(math.Log(max(q.Run.Seconds(), 1)) * 20), q.Every, q.NoSpot, q.Base}
	at, known := o.choices[key]
	if !known {
		like := *q // one of them for all, whoever asks first
		like.Run = job.Seconds(math.Exp((float64(key.length) + 0.5) / 20))
		best, ok := o.fit(need).First(like)
		if at = -1; ok {
			at = slices.IndexFunc(o.list, func(of fleet.Offer) bool { return of.Name == best.Offer.Name })
		}
		o.choices[key] = at
	}
	if at < 0 {
		return hire.Option{}, false
	}
	one := alone{plain, at}
	f, ok := o.alone[one]
	if !ok {
		f = hire.NewCatalogue(o.list[at:at+1], nil).Fit(plain)
		o.alone[one] = f
	}
	return f.First(*q)
}
