package place

import (
	"fmt"
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

// LoanFor decides whether a job that a plan preempts is suspended in place. starts is what the same plan starts.
// If it is not, why says what is against it; which of the running jobs is preempted, and for whom, is the policy's
// decision.
func LoanFor(v *View, s *Stop, starts []Start) (loan *Loan, why string) {
	r := s.Running

	switch {
	case s.Kind != "" && s.Kind != Preemption:
		return nil, "it is not preempted for another job"
	case len(r.Allocations) != 1 || r.Allocations[0].Share > 0 || bits.OnesCount64(r.Allocations[0].GPUs) != 1:
		return nil, "only a job with one GPU is suspended in place"
	case r.Began.IsZero():
		return nil, "it does not run yet"
	}

	own := &r.Allocations[0]
	room := v.room(own.Node)
	if room == nil {
		return nil, fmt.Sprintf("node %s is gone", own.Node)
	}
	if can := room.Node.Inventory.Lends(); !can.OK {
		return nil, fmt.Sprintf("node %s cannot suspend it: %s", own.Node, can.Reason)
	}

	loan = &Loan{Room: room.Memory}
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

	switch {
	case loan.To == nil:
		return nil, "nobody gets its GPU"
	case loan.Room < 0 || cpus < 0:
		return nil, fmt.Sprintf("node %s has not enough memory and CPUs for both", own.Node)
	}

	loan.Runs = RunTimeOn(loan.To.Item, loan.To.Allocations, v.node)
	switch {
	case loan.Runs == 0:
		return nil, fmt.Sprintf("the run time of %s is unknown", loan.To.Item.Job)
	case loan.Runs > MaxLoan:
		return nil, fmt.Sprintf("%s takes longer than %s", loan.To.Item.Job, job.Duration(MaxLoan))
	}

	return loan, ""
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
