package problem

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Solution is the assignment of each task: its candidate and its nodes.
type Solution struct {
	Assigned  []int
	positions [][]int32
}

// Snapshot returns the current solution.
func (y *Yard) Snapshot() Solution {
	a := Solution{Assigned: make([]int, len(y.Tasks)), positions: make([][]int32, len(y.Tasks))}
	for i := range y.Tasks {
		a.Assigned[i], a.positions[i] = y.Tasks[i].Assigned, slices.Clone(y.Tasks[i].Positions)
	}

	return a
}

// Restore restores a solution.
func (y *Yard) Restore(a *Solution) {
	for i := range y.Tasks {
		y.Unassign(&y.Tasks[i])
	}

	for i := range y.Tasks {
		t := &y.Tasks[i]
		t.Positions = append(t.Positions[:0], a.positions[i]...)
		y.AssignAt(t, a.Assigned[i])
	}
}

// NewRand returns the random source of one plan. The same seed and time give the same plan.
func NewRand(seed uint64, now time.Time) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(now.UnixNano())))
}
