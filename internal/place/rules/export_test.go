package rules

import (
	"fmt"
	"slices"

	"trainyard/internal/place"
)

// Twin returns a policy that remembers the same of the jobs it has met, which is part of
// what it decides by, and has seen no view.
func (p *Policy) Twin() *Policy { return p.Rehearsal().(*Policy) }

// Known says what it remembers of the jobs it has met.
func (p *Policy) Known() string {
	return fmt.Sprint(p.patiences)
}

// Shapes returns of how many shapes something is kept.
func (p *Policy) Shapes() int { return len(p.backlog.shapes) }

// Kins returns of how many kins something is kept.
func (p *Policy) Kins() int { return len(p.backlog.kins) }

// MaxKins is up to how many of them are kept without a queued job.
const MaxKins = maxKins

// GPUTexts returns how many texts of GPUs are kept after another was asked for.
func (p *Policy) GPUTexts(model string) (kept int, text string) {
	text = p.gpuText(gpuCount{count: 1, model: model})

	return len(p.gpuTexts), text
}

// MaxGPUTexts is how many of them are kept.
const MaxGPUTexts = maxGPUTexts

// PlanOneByOne is Plan without lanes: it considers every queued job.
func (p *Policy) PlanOneByOne(v *place.View) place.Plan {
	e := newEngine(p, v)
	defer p.tidyUp()

	e.backlog.settle()

	var all []*queuedJob
	for _, j := range e.backlog.jobs {
		e.weigh(j)
		all = append(all, j)
	}

	slices.SortFunc(all, compareJobs)

	for _, j := range all {
		e.consider(j)
	}

	return e.finish()
}

// Considered counts the jobs that a round considers one by one.
func (p *Policy) Considered(v *place.View) int {
	e := newEngine(p, v)
	defer p.tidyUp()

	count := 0
	queued := e.walk()
	for j := queued.next(); j != nil; j = queued.next() {
		e.consider(j)
		count++
	}

	return count
}
