package yardmaster

import "trainyard/internal/fleet"

// need returns what a job needs of its nodes, in the places that the rules of its data allow and where the checkpoint
// from which it continues can be restored.
func (y *Yard) need(r *jobRecord) fleet.Need {
	n := fleet.NeedOf(r.Spec, r.Floor, r.Avoid)
	n.Place = y.data.Place(&r.Job)
	n.Shared = r.outlook.Saved.Shared

	return n
}
