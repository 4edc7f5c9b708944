package queue

import (
	"cmp"
	"slices"
)

// Portions is what each of those who have a job here has used, users or projects. The
// fair share is the mean of all. The zero value is empty.
type Portions[K cmp.Ordered] struct {
	of   map[K]*Portion[K]
	list []*Portion[K] // by name: sums are the same whoever came first
	none float64       // what Over is for who has no job here
}

// Portion is someone's part.
type Portion[K cmp.Ordered] struct {
	Over float64 // fair shares that they have had beyond one, -1 for nothing at all
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

// Leave takes a job off again. Who has none left no longer counts.
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

// Weigh works out who has had how much by what each has used. Without that nobody has
// had more than anyone else.
func (p *Portions[K]) Weigh(usage func(K) float64) {
	sum := 0.0
	for _, x := range p.list {
		x.Over = 0
		if usage != nil {
			x.used = usage(x.name)
			sum += x.used
		}
	}

	p.none = 0
	if usage == nil || len(p.list) < 2 || sum <= 0 {
		return
	}

	for _, x := range p.list {
		x.Over = x.used*float64(len(p.list))/sum - 1
	}

	p.none = -1
}

// Of returns the portion of someone who may have no job here.
func (p *Portions[K]) Of(k K) *Portion[K] {
	if x, ok := p.of[k]; ok {
		return x
	}

	return &Portion[K]{name: k, Over: p.none}
}
