// Package place decides what runs where.
//
// A policy is a function from a view of the yard to a plan. It does no I/O,
// starts no goroutine, reads no clock and changes nothing in the view: the
// time is in the view, and it tries things out on a copy. That is what lets the
// server and the simulator run the same code. Every plan passes
// Check before the yardmaster applies it, so a policy may be wrong about what
// is best but can never overbook a node.
package place

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/queue"
)

// Policy turns a view into a plan. It cannot fail: with nothing to do it
// returns an empty plan.
type Policy interface {
	Name() string
	// Revises reports whether the policy also stops or moves running jobs. Such a policy plans
	// whenever something changes, others only while jobs are queued.
	Revises() bool
	Plan(v *View) Plan
}

// Deliberator is a policy that says whether its plans take long.
type Deliberator interface {
	Policy
	// Slow reports whether a plan may take so long that the server must make it outside its
	// loop, on a Clone of the view. Such a policy makes one plan at a time and is not an Adviser.
	Slow() bool
}

// IsSlow reports whether the plans of a policy are made outside the server's loop.
func IsSlow(p Policy) bool {
	d, ok := p.(Deliberator)

	return ok && d.Slow()
}

// Searcher is a policy that searches for a better plan as long as it has time.
type Searcher interface {
	Deliberator
	// Search is Plan with a time limit: once stop reports true it returns the best plan found
	// so far. With a nil stop it is the same as Plan.
	Search(v *View, stop func() bool) Plan
}

// Rehearser is a policy that remembers something from plan to plan.
type Rehearser interface {
	Policy
	// Rehearsal returns a policy that decides as this one would and shares nothing with it that
	// changes, for plans that are not carried out.
	Rehearsal() Policy
}

// Rehearsal returns a policy for plans that are not carried out, on a clone of a view. Asking
// it changes no later plan of p. One that is no Rehearser remembers nothing.
func Rehearsal(p Policy) Policy {
	if r, ok := p.(Rehearser); ok {
		return r.Rehearsal()
	}

	return p
}

// Within returns the plan of a policy. stop ends the search of a Searcher; nil sets no limit.
func Within(p Policy, v *View, stop func() bool) Plan {
	if s, ok := p.(Searcher); ok {
		return s.Search(v, stop)
	}

	return p.Plan(v)
}

// Provisioner is a policy that decides itself for which jobs nodes are provisioned. For other
// policies the common rule of package place/ondemand does.
type Provisioner interface {
	Policy
	// Provisions reports whether the plan for a view has all that is to be provisioned.
	Provisions(v *View) bool
}

// Relocator is a policy that moves running jobs also while none is queued: those on provisioned
// nodes, and those that are too slow.
type Relocator interface {
	Policy
	// Relocates reports whether it does.
	Relocates() bool
	// Faster lists where a running job that is too slow would end noticeably earlier: on idle nodes of
	// the yard, and on nodes that quotas and budgets allow to provision; of each at most one. Whether
	// it is worth it is for its owner to say.
	Faster(v *View, r *Running) []Faster
}

// Faster is a way to run a job that is too slow.
type Faster struct {
	Allocations []Allocation // on nodes of the yard; nil if nodes are provisioned

	Offer string // to be provisioned; "" if nothing is
	Count int    // of nodes
	GPUs  int    // of all nodes

	What   string        // it would run on: node n1 (local, 1× A100 80GB)
	GPU    string        // model
	EndsIn time.Duration // from now, with boot, save, transfer and restore
	Left   time.Duration // without that, once it works there
	Cost   money.Amount  // of what is provisioned and carried; 0 on nodes of the yard
}

// Plan is what a policy decides. The stops come first: a start may use what they free, and a
// job that is stopped may be started again with other GPUs, which is how a job moves, grows
// and shrinks.
type Plan struct {
	Stops      []Stop
	Starts     []Start
	Provisions []Provision
	Deferrals  []Deferral
	// Reservation is the first queued job that could not be started, and the nodes that are
	// reserved for it. Nil if there is none.
	Reservation *Reservation
	// Bookings are the nodes that the plan keeps for queued jobs from a later time on. A policy that
	// lists some lists all that it keeps; one that lists none keeps nobody off a node.
	Bookings []Booking
	// Slow are running jobs that are too slow and that no move would help, each with what could be
	// done.
	Slow []Slow
	// Releases are nodes that were provisioned for running jobs and that these no longer need.
	Releases []Release
	// Waits are queued jobs that could start, because there is room or nodes can be provisioned,
	// and that the policy lets wait all the same, each with its reason. It need not be complete:
	// of a job that is not listed people are told only that the policy lets it wait. A policy
	// lists what it finds anyway, at most MaxWaits.
	Waits []Wait
	// WakeAt is when the policy wants to plan again even if nothing changes. Zero for never.
	WakeAt time.Time
}

// Wait is a queued job that is not started although it could be.
type Wait struct {
	Job    id.Job
	Reason string // why, as a sentence for its owner
}

// MaxWaits bounds how many waits of a plan are worth writing down: with more, nobody reads each.
const MaxWaits = 1000

// Stop preempts a running job. It saves a checkpoint and is requeued, unless the same plan
// starts it again.
type Stop struct {
	Running *Running
	Reason  string // why, as a sentence for its owner
	// Kind is the kind of decision, if it is a special one. Otherwise it is a move of a job that
	// the plan starts again, and a preemption of one that it does not. What would have become of
	// the job is the same under every policy (Stay), so that no policy can keep a loss to itself.
	Kind DecisionKind
}

// Start places a job on nodes: a queued one, or a running one that the same plan stops.
type Start struct {
	Item        *queue.Item
	Allocations []Allocation // in rank order
	Reason      string       // why here, as a sentence for its owner
	// Counterfactual is what would have been done otherwise, nil if the policy does not know or
	// it would have been the same.
	Counterfactual *Counterfactual
}

// Provision provisions on-demand nodes for a job: all of them or none. A queued job starts there. A
// running one continues where it is until a plan moves it there.
type Provision struct {
	Item   *queue.Item
	Offer  string // by its name
	Count  int
	Cost   money.Amount // expected, until the job has ended
	Reason string
	// Counterfactual is what would have been done otherwise, nil if the policy does not know.
	Counterfactual *Counterfactual

	Running *Running // nil for a queued job
	GPUs    int      // that a running job will have there
	By      id.User  // who accepted it; "" if the policy decided it
}

// Release releases a node that was provisioned for a running job (Running.Awaits), or is being
// provisioned.
type Release struct {
	Lease  id.Lease
	Reason string // why it is not needed, as a clause
}

// Allocation is the GPUs of one node that a rank gets.
type Allocation struct {
	Node  id.Node
	GPUs  uint64
	Share float64 // of the one GPU, if the job shares it; 0 for whole GPUs
}

// Adviser is a policy that can list, for one job, where it could run, at what cost and with
// which estimated finish.
type Adviser interface {
	Options(v *View, it *queue.Item) []Option
}

// Option is one way to run a job. The first of a list is what the policy would do.
type Option struct {
	Class    fleet.Class
	Nodes    []id.Node // on which it would run, or for which it would wait
	Offer    string    // to be provisioned, "" if nothing is
	Count    int       // of nodes
	What     string    // what it would run on: 2× A100 on n1
	Start    time.Time // zero if unknown
	Finish   time.Time // expected; zero if unknown
	Earliest time.Time // the 80 % prediction interval of Finish
	Latest   time.Time
	Cost     money.Amount // expected
	CostMost money.Amount // at the end of the interval
	Unpriced bool         // what the nodes cost is not known; Cost is 0
	Basis    string       // of the times: "your expect", "speed in the job file", "38 earlier jobs", "nothing is known"
	Guess    bool         // how long the job takes is not known: its finish is what it is planned by
	Verdict  string       // why it is chosen, or why it is not
	Excluded string       // quota or budget that forbids it, "" if none does
}

// Booking keeps nodes for a queued job from a later time on. It is valid until the next plan.
type Booking struct {
	Item     *queue.Item
	Rooms    []int32       // indices of View.Rooms
	StartsIn time.Duration // from now
	Lasts    time.Duration
}

// Slow is a running job that is too slow where it is.
type Slow struct {
	Running *Running
	Reason  string // how slow it is, and the options there are
}

// Reservation reserves nodes for a job that cannot start yet.
type Reservation struct {
	Job   id.Job
	Nodes []id.Node
	At    time.Time // expected start; zero if run times are unknown
}
