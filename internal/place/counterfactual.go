package place

import (
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/queue"
)

// DecisionKind is the kind of a decision whose saving is accounted for.
type DecisionKind string

// The kinds of decisions.
const (
	Placement  DecisionKind = "placement"  // where a job runs, on nodes of the yard or on provisioned ones
	Waiting    DecisionKind = "wait"       // for a node of the yard, instead of provisioning one
	Preemption DecisionKind = "preemption" // of a job for another: the gain of one and the loss of the other
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

// Deferral is the decision that a queued job waits for nodes of the yard although nodes could be
// provisioned for it. A policy need not repeat it for an item that is marked as deferred.
type Deferral struct {
	Item *queue.Item
	// Counterfactual is nil if nothing would have been provisioned either way.
	Counterfactual *Counterfactual
}

// Stay is the counterfactual of stopping a running job: it goes on where it is. Ratio compares its
// speed there with that of the nodes to which it moves; it is 1 if it goes back to the queue.
func Stay(now time.Time, kind DecisionKind, r *Running, ratio float64) *Counterfactual {
	c := &Counterfactual{Kind: kind, What: "continue on " + r.where(), Allocations: r.Allocations, Ratio: ratio}
	if end, known := r.ExpectedEnd(now); known {
		c.Runs = end.Sub(now)
	}

	if s := r.Outlook.Speed; s != nil {
		c.Startup, c.Restart = time.Duration(s.Start), time.Duration(s.Start)
	}

	return c
}

// AddStays adds to the stops of a plan that starts the same jobs again what would have become of
// them otherwise: they stay where they are. kind returns the kind of decision. Jobs whose speed is
// unknown, there or here, are left out, and so are jobs that go back to the queue: that is a loss
// which only means something beside the gain of the jobs that take their place.
func AddStays(v *View, p *Plan, kind func(*Stop) DecisionKind) {
	if len(p.Stops) == 0 {
		return
	}

	starts := make(map[*queue.Item]*Start, len(p.Starts))
	for i := range p.Starts {
		starts[p.Starts[i].Item] = &p.Starts[i]
	}

	for i := range p.Stops {
		s := &p.Stops[i]
		start := starts[s.Running.Item]
		if start == nil || s.Running.Rate <= 0 {
			continue
		}

		if rate := RateOn(s.Running.Outlook.Speed, start.Allocations, v.node); rate > 0 {
			s.Counterfactual = Stay(v.Now, kind(s), s.Running, rate/s.Running.Rate)
		}
	}
}

// where names the nodes of a running job.
func (r *Running) where() string {
	name := string(r.Allocations[0].Node)
	if more := len(r.Allocations) - 1; more > 0 {
		return name + " and " + humanize.Count(more, "other node")
	}

	return name
}
