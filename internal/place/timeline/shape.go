package timeline

import (
	"slices"

	"trainyard/internal/fleet"
)

// Shape is a need compared with the pools. All jobs with the same need share one.
type Shape struct {
	Match *fleet.Matcher // nil until Compare was called
	Takes Size           // of each node
	Able  []*Pool        // pools that could run it if their nodes were empty

	version uint64 // version of the timeline that it was compared with
	shifts  int    // shift count of the timeline when room was computed
	room    bool
}

// Compare finds the pools that could run a need. It does nothing if the shape was compared with
// this version of the timeline already.
func (t *Timeline) Compare(s *Shape, need *fleet.Need) {
	if s.Match != nil && s.version == t.version {
		return
	}

	s.version, s.Match, s.Takes, s.Able, s.shifts = t.version, fleet.NewMatcher(*need), SizeOf(need), nil, 0

	// To whom a node is dedicated changes with its runs, not with the version.
	anyone := *need
	anyone.Owner = ""
	match := fleet.NewMatcher(anyone)

	for _, p := range t.pools {
		if !p.Class.Allows(need.Place) {
			continue
		}

		// All rooms of a pool have the same kind of GPU: if the sample has no suitable GPU, no other room has one.
		if p.Kind >= 0 && need.GPUs > 0 && p.Sample.Sound != 0 && match.MatchingGPUs(p.Sample) == 0 {
			continue
		}

		eligible := func(at int32) bool { return t.rooms[at].Open && match.Eligible(&t.rooms[at]) }
		if slices.ContainsFunc(p.rooms, eligible) {
			s.Able = append(s.Able, p)
		}
	}
}

// MayFit reports whether there may be rooms with as many free GPUs as a shape needs. False is
// certain; true must be checked by a search.
func (t *Timeline) MayFit(s *Shape) bool {
	if s.shifts != t.shifts {
		s.shifts = t.shifts
		s.room = slices.ContainsFunc(s.Able, func(p *Pool) bool {
			return p.hasFree(s.Match.Need.GPUs) || s.Match.Need.Share > 0 && len(p.shared)+len(p.cut) > 0
		})
	}

	return s.room
}

// hasFree reports whether a room is listed with at least the given number of free GPUs.
func (p *Pool) hasFree(gpus int) bool {
	for ; gpus < len(p.free); gpus++ {
		if len(p.free[gpus]) > 0 {
			return true
		}
	}

	return false
}
