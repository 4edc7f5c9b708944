package place

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// MaxLoan is how long a job may be expected to run on GPUs that another one lends it. For a longer one the other job is
// stopped: it would wait longer than it takes to start again elsewhere.
const MaxLoan = time.Hour

// Loan is the decision to suspend a running job in place instead of stopping it, so that another one gets its GPU. It
// keeps its node and its memory there, and continues when the other one has ended.
type Loan struct {
	To   *Start
	Runs time.Duration // how long that job is expected to run
	Room job.Bytes     // host memory that the GPU memory may take
}

// LoanFor decides whether a job that a plan preempts is suspended in place, and returns nil if it is not: it must
// run on one whole GPU of a node that can suspend it and has enough memory and CPUs for both, and a short job must
// get the GPU. starts is what the same plan starts. Which of the running jobs is preempted, and for whom, is the
// policy's decision.
func LoanFor(v *View, s *Stop, starts []Start) *Loan {
	r := s.Running
	if s.Kind != "" && s.Kind != Preemption || r.Began.IsZero() {
		return nil
	}

	if len(r.Allocations) != 1 || r.Allocations[0].Share > 0 || bits.OnesCount64(r.Allocations[0].GPUs) != 1 {
		return nil
	}

	own := &r.Allocations[0]
	room := v.room(own.Node)
	if room == nil || !room.Node.Inventory.Lends().OK {
		return nil
	}

	loan := &Loan{Room: room.Memory}
	cpus := room.CPUs + hold(room, r.Run).CPUs

	for i := range starts {
		for _, a := range starts[i].Allocations {
			if a.Node != own.Node {
				continue
			}

			loan.Room -= starts[i].Item.Shape.Need.Memory
			cpus -= starts[i].Item.Shape.Need.CPUs

			if a.GPUs&own.GPUs != 0 {
				loan.To = &starts[i]
			}
		}
	}

	if loan.To == nil || loan.Room < 0 || cpus < 0 {
		return nil
	}

	loan.Runs = RunTimeOn(loan.To.Item, loan.To.Allocations, v.node)
	if loan.Runs == 0 || loan.Runs > MaxLoan { // 0 is unknown
		return nil
	}

	return loan
}

// hold returns what a run holds of a room.
func hold(room *fleet.Room, run id.Run) fleet.Hold {
	for i := range room.Holds {
		if room.Holds[i].Run == run {
			return room.Holds[i]
		}
	}

	return fleet.Hold{}
}
