// Package offers keeps what can be hired ready to be compared with many jobs: which
// offers a need fits on, and which is best for jobs that are much alike. The policy rules
// asks it for every job that might be hired for.
package offers

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/job"
)

// Offers is what can be hired. What was asked once is remembered.
type Offers struct {
	of        []fleet.Offer // as they were given
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

// New makes offers ready. They must not be changed after that.
func New(list []fleet.Offer) *Offers {
	o := &Offers{of: list, list: slices.Clone(list), fits: map[fleet.Need]*hire.Fit{}, choices: map[choice]int{}, alone: map[alone]*hire.Fit{}}
	for i := range o.list {
		o.list[i].TFLOPS = o.list[i].Speed() // what is reached, as of the yard's own nodes
	}
	o.catalogue = hire.NewCatalogue(o.list, nil)
	return o
}

// Are reports whether these are the offers that were made ready: the very same list. It
// is also not so when too much is remembered.
func (o *Offers) Are(list []fleet.Offer) bool {
	return len(o.of) == len(list) && (len(list) == 0 || &o.of[0] == &list[0]) && len(o.choices) < maxChoices
}

// Fit compares a need with all offers.
func (o *Offers) Fit(need *fleet.Need) *hire.Fit {
	plain := *need
	plain.Avoid = "" // nobody has failed there yet
	f, ok := o.fits[plain]
	if !ok {
		f = o.catalogue.Fit(plain)
		o.fits[plain] = f
	}
	return f
}

// First returns the best way to hire for a job. Which offer that is, is looked up
// for jobs that are much alike; what it comes to is reckoned for each.
func (o *Offers) First(need *fleet.Need, q *hire.Query) (hire.Option, bool) {
	if q.Takes != nil || q.Stage != nil {
		return o.Fit(need).First(*q)
	}
	plain := *need
	plain.Avoid = ""
	key := choice{plain, q.Value, int(math.Log(max(q.Run.Seconds(), 1)) * 20), q.Every, q.NoSpot, q.Base}
	at, known := o.choices[key]
	if !known {
		like := *q // one of them for all, whoever asks first
		like.Run = job.Seconds(math.Exp((float64(key.length) + 0.5) / 20))
		best, ok := o.Fit(need).First(like)
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
