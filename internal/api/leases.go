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
	Offer     fleet.Offer      `json:"offer" doc:"as it was when it was taken"`
	State     fleet.LeaseState `json:"state"`
	Since     time.Time        `json:"since"`
	Reason    string           `json:"reason"`
	Job       id.Job           `json:"job,omitempty" doc:"for which it was provisioned"`
	Owner     id.User          `json:"owner,omitempty"`
	Project   id.Project       `json:"project,omitempty"`
	Gang      string           `json:"gang,omitempty" doc:"leases that are of use only together share this"`
	Requested time.Time        `json:"requested"`
	Granted   *time.Time       `json:"granted,omitempty" doc:"when the provider gave the machine"`
	Joined    *time.Time       `json:"joined,omitempty"`
	Ends      *time.Time       `json:"ends,omitempty" doc:"when the machine shuts itself down unless the lease is renewed"`
	Released  *time.Time       `json:"released,omitempty"`
	Ended     *time.Time       `json:"ended,omitempty"`
	Instance  string           `json:"instance,omitempty" doc:"the provider's name for the machine"`
	Node      id.Node          `json:"node,omitempty"`
	Stray     bool             `json:"stray,omitempty" doc:"an instance was found that had no lease"`
	Kept      float64          `json:"kept_seconds" doc:"for which the machine was there by now"`
	Cost      float64          `json:"cost_usd" doc:"so far, by the offer's price"`
	Billed    *float64         `json:"billed_usd,omitempty" doc:"what the provider says that it charged, where it says so"`
}

// LeasePage is one page of leases, newest first.
type LeasePage struct {
	Leases []Lease `json:"leases"`
	Next   string  `json:"next,omitempty"`
}

// ReaperReport is what the yard found when it compared its leases with what providers show.
type ReaperReport struct {
	At       time.Time         `json:"at"`
	Live     int               `json:"live" doc:"leases that have not ended"`
	Overdue  []Lease           `json:"overdue" doc:"not ended though their time is over"`
	Strays   []Event           `json:"strays" doc:"instances without a lease, the newest last"`
	Unclear  []Event           `json:"unclear" doc:"requests with an unknown outcome"`
	Failures []Event           `json:"failures" doc:"when providers stopped and began again to answer"`
	Failing  []FailingProvider `json:"failing" doc:"providers that do not answer as they should now"`
	States   map[string]int    `json:"states" doc:"live leases by state"`
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
