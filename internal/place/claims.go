package place

import (
	"fmt"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// NodeLimit is the yard's limit on provisioned nodes.
type NodeLimit struct {
	Max   int // 0 if there is no limit
	InUse int // nodes that are provisioned or being provisioned
}

// Claims is what a plan in the making starts and provisions. What it takes of quotas, budgets and
// limits on nodes is no longer there for its next part: a policy that asks Claims instead of the
// view plans nothing that is dropped when the plan is carried out.
type Claims struct {
	view     *View
	nodes    int            // that it provisions
	offers   map[string]int // the same by offer
	users    map[id.User]claim
	projects map[id.Project]claim
	leased   map[id.Job]bool // jobs for which nodes are provisioned: of their quotas GPUs are kept
}

// claim is what the jobs of one user or project get by a plan.
type claim struct {
	gpus  int // of jobs that start
	nodes int // that are provisioned
	money money.Amount
}

func (c claim) plus(o claim) claim {
	return claim{c.gpus + o.gpus, c.nodes + o.nodes, c.money + o.money}
}

// NewClaims returns the claims of an empty plan.
func NewClaims(v *View) *Claims {
	c := &Claims{view: v}
	if v.Limits == nil {
		return c
	}

	for _, l := range v.Leases {
		if l.Job == "" || !l.Live() {
			continue
		}

		if c.leased == nil {
			c.leased = map[id.Job]bool{}
		}

		c.leased[l.Job] = true
	}

	return c
}

// Provision adds nodes that the plan provisions. The GPUs that the job needs at least are kept for
// it until it starts there.
func (c *Claims) Provision(p *Provision) {
	if c.offers == nil {
		c.offers = map[string]int{}
	}

	c.nodes += p.Count
	c.offers[p.Offer] += p.Count
	gpus := minGPUs(p.Item)
	if p.Running != nil { // it gives back what it has
		gpus = max(p.GPUs-p.Running.GPUs, 0)
	}

	c.add(p.Item, claim{gpus: gpus, nodes: p.Count, money: p.Cost})
}

// Start adds a job that the plan starts on so many GPUs.
func (c *Claims) Start(it *queue.Item, gpus int) {
	if c.leased[it.Job] { // others cannot use these already
		gpus = max(gpus-minGPUs(it), 0)
	}

	c.add(it, claim{gpus: gpus})
}

// minGPUs returns how many GPUs a job needs at least.
func minGPUs(it *queue.Item) int { return it.Shape.Need.GPUs * it.Shape.Need.Nodes }

func (c *Claims) add(it *queue.Item, more claim) {
	if c.view.Limits == nil {
		return
	}

	if c.users == nil {
		c.users = map[id.User]claim{}
		c.projects = map[id.Project]claim{}
	}

	c.users[it.User] = c.users[it.User].plus(more)
	if it.Project != "" {
		c.projects[it.Project] = c.projects[it.Project].plus(more)
	}
}

// Allow returns what a job may still use: what the view allows, less what its owner or its project
// gets by the plan, whichever is more. The view does not say which of the two limits the job, so
// that may be less than it really is; the next plan knows.
func (c *Claims) Allow(it *queue.Item) tenant.Allowance {
	a := c.view.Allow(it)
	if c.users == nil {
		return a
	}

	user, project := c.users[it.User], c.projects[it.Project]
	gpus, nodes := max(user.gpus, project.gpus), max(user.nodes, project.nodes)

	a.GPUs = lessen(a.GPUs, gpus)
	a.Ceiling = lessen(a.Ceiling, gpus)
	a.Nodes = lessen(a.Nodes, nodes)
	a.Money -= max(user.money, project.money)

	return a
}

// lessen subtracts from a count that may be unlimited.
func lessen(limit, by int) int {
	if limit == tenant.NoLimit {
		return limit
	}

	return max(limit-by, 0)
}

// Limit says which limit on provisioned nodes forbids so many more of an offer, "" if none does.
func (c *Claims) Limit(o *fleet.Offer, nodes int) string {
	limit := c.view.NodeLimit
	if limit.Max > 0 && limit.InUse+c.nodes+nodes > limit.Max {
		return fmt.Sprintf("limit of %d provisioned nodes (max_nodes): %d in use, %d needed",
			limit.Max, limit.InUse+c.nodes, nodes)
	}

	if o.MaxNodes > 0 && c.offers[o.Name]+nodes > o.MaxNodes {
		return fmt.Sprintf("its limit (max_nodes) allows %d more, %d needed",
			max(o.MaxNodes-c.offers[o.Name], 0), nodes)
	}

	return ""
}

// Any reports whether the plan has claimed something, so that a limit may be reached only in this
// plan.
func (c *Claims) Any() bool { return c.nodes > 0 || c.users != nil }
