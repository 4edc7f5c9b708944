package place

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// DecisionKind is the kind of a decision whose saving is accounted for.
type DecisionKind string

// The kinds of decisions.
const (
	Placement  DecisionKind = "placement"  // where a job runs, on nodes of the yard or on provisioned ones
	Waiting    DecisionKind = "wait"       // for a node of the yard, instead of provisioning one
	Preemption DecisionKind = "preemption" // stop or move of a job for another: the gain of one and the loss of the other
	Move       DecisionKind = "move"       // of a running job to other nodes, or to more or fewer GPUs
	Power      DecisionKind = "power"      // fewer or slower GPUs, or a node that is switched off, to save energy
)

// DecisionKinds lists the kinds of decisions.
func DecisionKinds() []DecisionKind {
	return []DecisionKind{Placement, Waiting, Preemption, Move, Power}
}

// Counterfactual is what the policy would have done if the option that it chose had not existed,
// under the same objective and rules. It says where the job would have run and how fast; what that
// would have cost is computed from the prices of the nodes, when the job has ended and it is known
// how much work it did.
type Counterfactual struct {
	Kind DecisionKind
	What string // for people: provision aws/p4d (8× A100)

	Allocations []Allocation // nodes of the yard that it would have had
	Offer       string       // or what would have been provisioned, by its name
	Count       int          // and how many of them

	StartsIn time.Duration // until the nodes are free; 0 for provisioned ones
	ReadyIn  time.Duration // until the program starts there: StartsIn, boot and staging of data
	Runs     time.Duration // how long it is expected to run there; 0 if unknown
	// Ratio is how long the job works there for each second that it works where it is placed.
	Ratio float64
	// Startup is the start-up of each run, which is the same everywhere. Restart is the start-up
	// that only the decision makes necessary: of a job that would have gone on running.
	Startup, Restart time.Duration
}

// Compare sets how long a queued job works by the counterfactual for each second that it works where it
// is placed, where it is expected to run for so long.
func (c *Counterfactual) Compare(it *queue.Item, runs time.Duration) {
	c.Ratio = 1
	if it.Outlook != nil && it.Outlook.Speed != nil {
		c.Startup = time.Duration(it.Outlook.Speed.Start)
	}

	if works := runs - c.Startup; works > 0 {
		c.Ratio = float64(max(c.Runs-c.Startup, 0)) / float64(works)
	}
}

// Deferral is the decision that a queued job waits for nodes of the yard although nodes could be
// provisioned for it. A policy need not repeat it for an item that is marked as deferred.
type Deferral struct {
	Item *queue.Item
	// Counterfactual is nil if nothing would have been provisioned either way.
	Counterfactual *Counterfactual
}

// Stay is the counterfactual of stopping a running job: it goes on where it is. next is where it
// starts again by the same plan, nil if it goes back to the queue.
func Stay(now time.Time, s *Stop, next *Start, node func(id.Node) *fleet.Node) *Counterfactual {
	r := s.Running
	c := &Counterfactual{Kind: s.Kind, What: "continue on " + r.where(), Allocations: r.Allocations, Ratio: 1}
	if next != nil {
		c.Ratio = r.Speedup(next.Allocations, node)
	}

	switch {
	case c.Kind != "":
	case next != nil:
		c.Kind = Move
	default:
		c.Kind = Preemption
	}

	if end, known := r.ExpectedEnd(now); known {
		c.Runs = end.Sub(now)
	}

	_, start := r.Outlook.RestartCost()
	c.Startup, c.Restart = start, start

	return c
}

// Speedup returns how much faster a running job is on other allocations: by its rates if they are
// known there and here, else by the rule for expected run times.
func (r *Running) Speedup(on []Allocation, node func(id.Node) *fleet.Node) float64 {
	if rate := ExpectedRate(r.Outlook, on, node); rate > 0 && r.Rate > 0 {
		return rate / r.Rate
	}

	if r.Pace > 0 {
		return Pace(r.Item, on, node) / r.Pace
	}

	return 1
}

// where names the nodes of a running job.
func (r *Running) where() string {
	name := string(r.Allocations[0].Node)
	if more := len(r.Allocations) - 1; more > 0 {
		return name + " and " + humanize.Count(more, "other node")
	}

	return name
}
