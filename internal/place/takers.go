package place

import (
	"slices"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

// Takers says which jobs get the GPUs that running jobs hold, so that the reasons of a plan can
// name them.
type Takers map[id.Node][]Start

// TakersOf returns the takers of the GPUs of a plan's starts.
func TakersOf(starts []Start) Takers {
	t := Takers{}
	for i := range starts {
		for _, a := range starts[i].Allocations {
			t[a.Node] = append(t[a.Node], Start{Item: starts[i].Item, Allocations: []Allocation{a}})
		}
	}

	return t
}

// Of lists the other jobs that get GPUs which a running job holds, in the order of the starts.
func (t Takers) Of(r *Running) []id.Job {
	var list []id.Job
	for _, held := range r.Allocations {
		for _, s := range t[held.Node] {
			if s.Item.Job != r.Job && s.Allocations[0].GPUs&held.GPUs != 0 && !slices.Contains(list, s.Item.Job) {
				list = append(list, s.Item.Job)
			}
		}
	}

	return list
}

// JobNames names jobs: "j5, j6 and 2 other jobs".
func JobNames(list []id.Job) string {
	const most = 3
	names := make([]string, 0, most)
	for i, j := range list {
		if i == most-1 && len(list) > most {
			names = append(names, humanize.Count(len(list)-i, "other job"))
			break
		}

		names = append(names, string(j))
	}

	return humanize.List(names...)
}
