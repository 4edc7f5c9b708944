package api

import (
	"context"
	"net/url"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Lease is the claim on a provisioned node as people see it.
type Lease struct {
	ID        id.Lease         `json:"id"`
	Offer     fleet.Offer      `json:"offer" doc:"offer as it was when the lease was requested"`
	State     fleet.LeaseState `json:"state"`
	Since     time.Time        `json:"since"`
	Reason    string           `json:"reason"`
	Job       id.Job           `json:"job,omitempty" doc:"job it was provisioned for"`
	Owner     id.User          `json:"owner,omitempty"`
	Project   id.Project       `json:"project,omitempty"`
	Gang      string           `json:"gang,omitempty" doc:"identifies leases that were provisioned together for one job"`
	Requested time.Time        `json:"requested"`
	Granted   *time.Time       `json:"granted,omitempty" doc:"when the provider granted the instance"`
	Joined    *time.Time       `json:"joined,omitempty"`
	Ends      *time.Time       `json:"ends,omitempty" doc:"expiry: the instance shuts itself down at this time unless the lease is renewed"`
	Released  *time.Time       `json:"released,omitempty"`
	Ended     *time.Time       `json:"ended,omitempty"`
	Instance  string           `json:"instance,omitempty" doc:"instance ID at the provider"`
	Node      id.Node          `json:"node,omitempty"`
	Stray     bool             `json:"stray,omitempty" doc:"created for an instance found without a lease"`
	Kept      float64          `json:"kept_seconds" doc:"seconds for which the instance has existed"`
	Cost      float64          `json:"cost_usd" doc:"estimated cost so far, at the offer's price"`
	Billed    *float64         `json:"billed_usd,omitempty" doc:"cost reported by the provider, if it reports one"`
}

// LeasePage is one page of leases, newest first.
type LeasePage struct {
	Leases []Lease `json:"leases"`
	Next   string  `json:"next,omitempty"`
}

// ReaperReport is what the yard found when it compared its leases with what providers show.
type ReaperReport struct {
	At       time.Time         `json:"at"`
	Live     int               `json:"live" doc:"number of live leases"`
	Overdue  []Lease           `json:"overdue" doc:"leases past their expiry that have not ended"`
	Strays   []Event           `json:"strays" doc:"instances without a lease, newest last"`
	Unclear  []Event           `json:"unclear" doc:"requests with an unknown outcome"`
	Failures []Event           `json:"failures" doc:"provider outages and recoveries"`
	Failing  []FailingProvider `json:"failing" doc:"providers that are failing now"`
	States   map[string]int    `json:"states" doc:"number of live leases by state"`
}

// FailingProvider is one that does not answer as it should.
type FailingProvider struct {
	Provider string `json:"provider"`
	Why      string `json:"why"`
}

// LeaseFilter says which leases are wanted. Empty fields do not filter.
type LeaseFilter struct {
	Owner   id.User
	Project id.Project
	Job     id.Job
	Live    bool // only those that have not ended
	From    time.Time
	To      time.Time
	Page
}

func (f LeaseFilter) query() url.Values {
	q := f.Page.query()
	set(q, "owner", string(f.Owner))
	set(q, "project", string(f.Project))
	set(q, "job", string(f.Job))

	if f.Live {
		q.Set("live", "true")
	}

	setTime(q, "from", f.From)
	setTime(q, "to", f.To)

	return q
}

// Leases returns one page of leases, newest first.
func (c *Client) Leases(ctx context.Context, f LeaseFilter) (LeasePage, error) {
	return get[LeasePage](ctx, c, at("leases"), f.query())
}

// Lease returns one lease.
func (c *Client) Lease(ctx context.Context, l id.Lease) (Lease, error) {
	return get[Lease](ctx, c, at("leases", string(l)), nil)
}

// ReleaseLease releases a provisioned node.
func (c *Client) ReleaseLease(ctx context.Context, l id.Lease) (Lease, error) {
	return post[Lease](ctx, c, at("leases", string(l), "release"), nil)
}

// Reaper returns what was found when leases were compared with what providers show.
func (c *Client) Reaper(ctx context.Context) (ReaperReport, error) {
	return get[ReaperReport](ctx, c, at("reaper"), nil)
}
