package spec

import (
	"slices"
	"time"

	"trainyard/internal/job"
)

// LeftOut is what a job that is submitted again does without.
type LeftOut struct {
	Deadline bool     // it has passed
	Needs    []string // jobs of the same file
}

// OfElement makes the spec of an array one of the value of a single element.
func OfElement(s *job.Spec, value string) { s.Array = &job.Array{Values: []string{value}} }

// Again prepares the spec of a job that was submitted before for another submission of its own.
func Again(s *job.Spec, now time.Time) LeftOut {
	var left LeftOut

	if s.Deadline != nil && !s.Deadline.After(now) {
		left.Deadline = true
		s.Deadline, s.LateCost = nil, 0
	}

	left.Needs = slices.DeleteFunc(slices.Clone(s.Needs), Outside)
	s.Needs = slices.DeleteFunc(slices.Clone(s.Needs), func(need string) bool { return !Outside(need) })

	if len(s.Needs) == 0 {
		s.After = ""
	}

	return left
}
