package ondemand

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/provision"
)

// Catalogue is what can be provisioned, ready to be compared with many jobs. Which offer is
// best is remembered for jobs that are much alike.
type Catalogue struct {
	of      []fleet.Offer // as they were given
	list    []fleet.Offer
	all     *provision.Index
	fits    map[fleet.Need]*provision.Fit
	choices map[choiceKey]int // index of the best offer, -1 if there is none
	single  map[offerKey]*provision.Fit
}

// choiceKey is what the best offer for a job depends on. Jobs that last about as long have
// the same.
type choiceKey struct {
	need   fleet.Need
	value  money.PerHour
	length int // logarithm of how long it lasts, in steps of a twentieth
	every  time.Duration
	noSpot bool
	base   job.Reference
	fixed  bool         // equally long on all hardware
	limit  job.Duration // of wall time
}

type offerKey struct {
	need  fleet.Need
	offer int
}

// maxChoices bounds what is remembered.
const maxChoices = 1 << 16

// NewCatalogue returns the catalogue of offers, which must not be changed after that.
func NewCatalogue(list []fleet.Offer) *Catalogue {
	o := &Catalogue{of: list, list: slices.Clone(list), fits: map[fleet.Need]*provision.Fit{},
		choices: map[choiceKey]int{}, single: map[offerKey]*provision.Fit{}}
	for i := range o.list {
		o.list[i].TFLOPS = o.list[i].Speed() // what is reached, as of the yard's own nodes
	}

	o.all = provision.NewIndex(o.list, nil)

	return o
}

// IsOf reports whether these are the offers of the catalogue: the very same list. It says no
// when too much is remembered, so that a new catalogue is made.
func (o *Catalogue) IsOf(list []fleet.Offer) bool {
	return len(o.of) == len(list) && (len(list) == 0 || &o.of[0] == &list[0]) && len(o.choices) < maxChoices
}

// Fit compares a need with all offers.
func (o *Catalogue) Fit(need *fleet.Need) *provision.Fit {
	plain := *need
	plain.Avoid, plain.Except = "", "" // nobody has failed there yet, and the names are new
	f, ok := o.fits[plain]
	if !ok {
		f = o.all.Fit(plain)
		o.fits[plain] = f
	}

	return f
}

// First returns the best way to provision nodes for a job. Which offer that is, is looked up
// for jobs that are much alike; what it costs is computed for each.
func (o *Catalogue) First(need *fleet.Need, q *provision.Query) (provision.Option, bool) {
	if q.RunTime != nil || q.Stage != nil {
		return o.Fit(need).Best(*q)
	}

	plain := *need
	plain.Avoid, plain.Except = "", ""
	key := choiceKey{
		plain,
		q.HourValue,
		int(math.Log(max(q.Run.Seconds(), 1)) * 20),
		q.CheckpointEvery,
		q.NoSpot,
		q.Reference,
		false,
		0,
	}

	if q.Spec != nil && q.Spec.MaxDuration > 0 {
		key.fixed, key.limit = q.Spec.Expect == 0, q.Spec.MaxDuration
	}

	at, known := o.choices[key]
	if !known {
		like := *q // the same length for all of this key, whichever comes first
		like.Run = job.Seconds(math.Exp((float64(key.length) + 0.5) / 20))
		best, ok := o.Fit(need).Best(like)

		at = -1
		if ok {
			at = slices.IndexFunc(o.list, func(of fleet.Offer) bool { return of.Name == best.Offer.Name })
		}

		o.choices[key] = at
	}

	if at < 0 {
		return provision.Option{}, false
	}

	one := offerKey{plain, at}
	f, ok := o.single[one]
	if !ok {
		f = provision.NewIndex(o.list[at:at+1], nil).Fit(plain)
		o.single[one] = f
	}

	return f.Best(*q)
}
