package place

import (
	"fmt"
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
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

// LoanFor decides whether a job that a plan preempts is suspended in place: it must run on one whole GPU of a node
// that can suspend it and has enough memory and CPUs for both, and a short job must get the GPU. Otherwise it returns
// why not; nothing if its node never suspends programs, or if the job is not preempted. starts is what the same plan
// starts. Which of the running jobs is preempted, and for whom, is the policy's decision.
func LoanFor(v *View, s *Stop, starts []Start) (*Loan, string) {
	r := s.Running
	if s.Kind != "" && s.Kind != Preemption {
		return nil, ""
	}

	room := v.room(r.Allocations[0].Node)
	if room == nil || room.Node.Inventory.Snapshots == nil {
		return nil, ""
	}

	if why := cannotBeSuspended(r, room.Node); why != "" {
		return nil, why
	}

	loan, cpus := loanOn(room, r, starts)

	switch {
	case loan.To == nil:
		return nil, "no job gets its GPU at once"
	case loan.Room < 0:
		return nil, fmt.Sprintf("node %s has too little memory for both programs", room.Node.ID)
	case cpus < 0:
		return nil, fmt.Sprintf("node %s has too few CPUs until other jobs have stopped there", room.Node.ID)
	}

	loan.Runs = RunTimeOn(loan.To.Item, loan.To.Allocations, v.node)

	switch to := loan.To.Item.Job; {
	case loan.Runs == 0:
		return nil, fmt.Sprintf("how long %s will run is unknown", to)
	case loan.Runs > MaxLoan:
		return nil, fmt.Sprintf("%s is expected to run for %s, longer than %s", to,
			humanize.Duration(loan.Runs), humanize.Duration(MaxLoan))
	}

	return loan, ""
}

// cannotBeSuspended says why a running job cannot be suspended whoever gets its GPU, "" if it can be.
func cannotBeSuspended(r *Running, n *fleet.Node) string {
	if r.Began.IsZero() {
		return "its program has not started yet"
	}

	own := &r.Allocations[0]
	if len(r.Allocations) != 1 || own.Share > 0 || bits.OnesCount64(own.GPUs) != 1 {
		return "only programs on one whole GPU are suspended"
	}

	if lends := n.Inventory.Lends(); !lends.OK {
		return fmt.Sprintf("node %s cannot: %s", n.ID, lends.Reason)
	}

	return ""
}

// loanOn returns the loan of a running job's GPU to one of those that a plan starts, with the memory that is left, and
// how many CPUs are left.
func loanOn(room *fleet.Room, r *Running, starts []Start) (*Loan, job.CPUs) {
	own := &r.Allocations[0]
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

	return loan, cpus
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
