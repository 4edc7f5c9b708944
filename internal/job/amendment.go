package job

import (
	"maps"
	"slices"
	"time"

	"trainyard/internal/id"
)

// Amendment is what was changed of a job after its submission, by a decision of its owner or an admin. Each field that
// is set stands in place of what the job file says.
type Amendment struct {
	Budget    Money             `json:"budget,omitempty"`
	GPU       []GPUKind         `json:"gpu,omitempty"`
	GPUs      Range             `json:"gpus,omitzero"`
	GPUMemory ByteRange         `json:"gpu_memory,omitzero"`
	Place     Place             `json:"place,omitempty"`
	Env       map[string]string `json:"env,omitempty"` // added to that of the job file
	Edited    *Edited           `json:"edited,omitempty"`
	By        id.User           `json:"by,omitempty"`
	At        time.Time         `json:"at,omitzero"`
}

// Empty reports whether nothing is changed.
func (a *Amendment) Empty() bool {
	return a == nil || a.Budget == 0 && len(a.GPU) == 0 && a.GPUs == (Range{}) && a.GPUMemory == (ByteRange{}) &&
		a.Place == "" && len(a.Env) == 0 && a.Edited == nil
}

// Edited is what its owner or an admin may change of a job before it runs: all of these fields as they have left them.
// The other fields of an amendment came later.
type Edited struct {
	Resources Resources  `json:"resources"`
	Objective Objective  `json:"objective"`
	Priority  int        `json:"priority,omitempty"`
	Expect    Duration   `json:"expect,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	LateCost  Money      `json:"late_cost,omitempty"`
	Pools     []string   `json:"pool,omitempty"`
	Nodes     []string   `json:"nodes,omitempty"`
	Avoid     []string   `json:"avoid,omitempty"`
	Labels    []string   `json:"labels,omitempty"`
}

// Edit returns the amendment after somebody has edited the job; s is its spec as it shall be.
func (a *Amendment) Edit(s *Spec, by id.User, at time.Time) *Amendment {
	next := Amendment{By: by, At: at, Edited: &Edited{
		Resources: s.Resources, Objective: s.Objective, Priority: s.Priority, Expect: s.Expect, Deadline: s.Deadline,
		LateCost: s.LateCost, Pools: s.Pools, Nodes: s.Nodes, Avoid: s.Avoid, Labels: s.Labels,
	}}

	if a != nil { // what it changed of resources is in the spec that was edited
		next.Budget, next.Place, next.Env = a.Budget, a.Place, a.Env
	}

	return &next
}

// apply puts the fields into a spec.
func (e *Edited) apply(s *Spec) {
	s.Resources, s.Objective, s.Priority, s.Expect = e.Resources, e.Objective, e.Priority, e.Expect
	s.Deadline, s.LateCost, s.Pools, s.Nodes, s.Avoid = e.Deadline, e.LateCost, e.Pools, e.Nodes, e.Avoid
	s.Labels = e.Labels
}

// Apply returns the spec as amended. Applying an amendment twice is the same as once.
func (a *Amendment) Apply(s *Spec) *Spec {
	if a.Empty() || s == nil {
		return s
	}

	amended := *s
	if a.Edited != nil {
		a.Edited.apply(&amended)
	}

	if a.Budget != 0 {
		amended.Budget = a.Budget
	}

	if len(a.GPU) > 0 {
		amended.Resources.GPU = slices.Clone(a.GPU)
	}

	if a.GPUs != (Range{}) {
		amended.Resources.GPUs = a.GPUs
	}

	if a.GPUMemory != (ByteRange{}) {
		amended.Resources.GPUMemory = a.GPUMemory
	}

	if a.Place != "" {
		amended.Place = a.Place
	}

	if len(a.Env) > 0 {
		amended.Env = maps.Clone(s.Env)
		if amended.Env == nil {
			amended.Env = map[string]string{}
		}

		maps.Copy(amended.Env, a.Env)
	}

	return &amended
}

// Then returns the amendment that has the effect of this one and then of another.
func (a *Amendment) Then(next *Amendment) *Amendment {
	if a.Empty() {
		return next
	}
	if next.Empty() {
		return a
	}

	// Fields of an amendment and of a spec are the same things, so that one rule combines them.
	base := Spec{
		Budget: a.Budget, Place: a.Place, Env: a.Env,
		Resources: Resources{GPU: a.GPU, GPUs: a.GPUs, GPUMemory: a.GPUMemory},
	}
	both := next.Apply(&base)

	return &Amendment{
		Edited: a.Edited,
		Budget: both.Budget, GPU: both.Resources.GPU, GPUs: both.Resources.GPUs, GPUMemory: both.Resources.GPUMemory,
		Place: both.Place, Env: both.Env, By: next.By, At: next.At,
	}
}
