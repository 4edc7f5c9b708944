package queue

import (
	"cmp"
	"slices"
)

// Portions is the usage of each user or project that has jobs in a queue, compared with the
// fair share, which is the mean of all. The zero value is empty.
type Portions[K cmp.Ordered] struct {
	of         map[K]*Portion[K]
	list       []*Portion[K] // by name, so that floating-point sums do not depend on the order of arrival
	absentOver float64       // Over of a user or project without jobs
}

// Portion is the usage of one user or project.
type Portion[K cmp.Ordered] struct {
	Over float64 // usage in fair shares, less one: 0 for exactly the fair share, -1 for no usage
	name K
	jobs int
	used float64
}

// Join counts a job.
func (p *Portions[K]) Join(k K) *Portion[K] {
	x, ok := p.of[k]
	if !ok {
		if p.of == nil {
			p.of = map[K]*Portion[K]{}
		}

		x = &Portion[K]{name: k}
		p.of[k] = x
		p.list = slices.Insert(p.list, p.find(k), x)
	}

	x.jobs++

	return x
}

// Leave removes a job. A user or project without jobs no longer counts.
func (p *Portions[K]) Leave(k K) {
	x, ok := p.of[k]
	if !ok {
		return
	}

	x.jobs--
	if x.jobs == 0 {
		delete(p.of, k)
		at := p.find(k)
		p.list = slices.Delete(p.list, at, at+1)
	}
}

func (p *Portions[K]) find(k K) int {
	at, _ := slices.BinarySearchFunc(p.list, k, func(o *Portion[K], k K) int { return cmp.Compare(o.name, k) })
	return at
}

// Weigh computes the portions from the usage of each. With a nil usage all are equal.
func (p *Portions[K]) Weigh(usage func(K) float64) {
	sum := 0.0
	for _, x := range p.list {
		x.Over = 0
		if usage != nil {
			x.used = usage(x.name)
			sum += x.used
		}
	}

	p.absentOver = 0
	if usage == nil || len(p.list) < 2 || sum <= 0 {
		return
	}

	for _, x := range p.list {
		x.Over = x.used*float64(len(p.list))/sum - 1
	}

	p.absentOver = -1
}

// Of returns the portion of a user or project that may have no jobs.
func (p *Portions[K]) Of(k K) *Portion[K] {
	if x, ok := p.of[k]; ok {
		return x
	}

	return &Portion[K]{name: k, Over: p.absentOver}
}
