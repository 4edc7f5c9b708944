package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// QuotaRequest sets the quota and budget of a user or project. What is left out is not limited.
type QuotaRequest struct {
	GPUs       int               `json:"gpus,omitempty" minimum:"0" doc:"at once"`
	Nodes      int               `json:"nodes,omitempty" minimum:"0" doc:"on-demand nodes at once"`
	GPUHours   float64           `json:"gpu_hours,omitempty" minimum:"0" doc:"in a period"`
	Budget     job.Money         `json:"budget,omitempty" doc:"in a period: cost of nodes and energy"`
	Period     tenant.Period     `json:"period,omitempty" enum:"day,week,month" doc:"month if left out"`
	OnExceeded tenant.OnExceeded `json:"on_exceeded,omitempty" enum:"warn,ask,downgrade,stop" doc:"what happens when the budget or the GPU-hours are used up; ask if left out"`
	Borrow     bool              `json:"borrow,omitempty" doc:"allow more GPUs at once while no other job is queued for them"`
	WarnAt     float64           `json:"warn_at,omitempty" minimum:"0" maximum:"1" doc:"share of the quota at which people are warned; 0.8 if left out"`
}

// Quota is the quota and budget of a user or project.
type Quota struct {
	Subject string `json:"subject" doc:"user/NAME, project/NAME, each/user or each/project"`
	QuotaRequest
}

// QuotaUsage is what a user or project uses of its quota.
type QuotaUsage struct {
	Subject  string      `json:"subject"`
	Quota    *Quota      `json:"quota,omitempty" doc:"that applies; left out if none does"`
	GPUs     float64     `json:"gpus" doc:"in use now"`
	Local    float64     `json:"gpus_local"`
	Reserved float64     `json:"gpus_reserved"`
	OnDemand float64     `json:"gpus_ondemand"`
	Nodes    int         `json:"nodes" doc:"on-demand nodes now"`
	Hourly   float64     `json:"hourly_usd" doc:"spent per hour now"`
	Begin    time.Time   `json:"begin" doc:"of the period"`
	Ends     time.Time   `json:"ends" doc:"of the period; usage starts at 0 again then"`
	Cost     PeriodUsage `json:"cost_usd"`
	GPUHours PeriodUsage `json:"gpu_hours"`
}

// PeriodUsage is the usage in a period so far and as expected at its end.
type PeriodUsage struct {
	Limit    float64    `json:"limit,omitempty"`
	Used     float64    `json:"used"`
	Expected float64    `json:"expected" doc:"at the end of the period, if nothing more starts"`
	UsedUp   *time.Time `json:"used_up,omitempty" doc:"when the limit is, or was, reached; left out if it is not reached in the period"`
}

// QuotaPage is one page of usage, by name; the quotas are on the first page.
type QuotaPage struct {
	Quotas []Quota      `json:"quotas"`
	Usage  []QuotaUsage `json:"usage"`
	Next   string       `json:"next,omitempty"`
}

// Quotas returns one page of quotas, and what is used of them.
func (c *Client) Quotas(ctx context.Context, p Page) (QuotaPage, error) {
	return get[QuotaPage](ctx, c, at("quotas"), p.query())
}

// PutQuota sets the quota of a subject: user/NAME, project/NAME, each/user, each/project.
func (c *Client) PutQuota(ctx context.Context, subject string, in QuotaRequest) (Quota, error) {
	kind, name, _ := strings.Cut(subject, "/")
	return put[Quota](ctx, c, at("quotas", kind, name), in)
}

// RemoveQuota removes the quota of a subject.
func (c *Client) RemoveQuota(ctx context.Context, subject string) error {
	kind, name, _ := strings.Cut(subject, "/")
	return c.call(ctx, http.MethodDelete, at("quotas", kind, name), nil, nil, nil)
}
