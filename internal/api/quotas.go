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
	GPUs       int               `json:"gpus,omitempty" minimum:"0" doc:"maximum GPUs in use at once"`
	Nodes      int               `json:"nodes,omitempty" minimum:"0" doc:"maximum on-demand nodes at once"`
	GPUHours   float64           `json:"gpu_hours,omitempty" minimum:"0" doc:"maximum GPU-hours per period"`
	Budget     job.Money         `json:"budget,omitempty" doc:"maximum cost of nodes and energy per period"`
	Period     tenant.Period     `json:"period,omitempty" enum:"day,week,month" doc:"period of the quota; default month"`
	OnExceeded tenant.OnExceeded `json:"on_exceeded,omitempty" enum:"warn,ask,downgrade,stop" doc:"what happens when the budget or the GPU-hours are used up; default ask"`
	Borrow     bool              `json:"borrow,omitempty" doc:"allow exceeding gpus while no other job is queued for them"`
	WarnAt     float64           `json:"warn_at,omitempty" minimum:"0" maximum:"1" doc:"share of the quota at which a warning is issued; default 0.8"`
}

// Quota is the quota and budget of a user or project.
type Quota struct {
	Subject string `json:"subject" doc:"user/NAME, project/NAME, each/user or each/project"`
	QuotaRequest
}

// QuotaUsage is what a user or project uses of its quota.
type QuotaUsage struct {
	Subject  string      `json:"subject"`
	Quota    *Quota      `json:"quota,omitempty" doc:"quota that applies; absent if there is none"`
	GPUs     float64     `json:"gpus" doc:"GPUs in use"`
	Local    float64     `json:"gpus_local"`
	Reserved float64     `json:"gpus_reserved"`
	OnDemand float64     `json:"gpus_ondemand"`
	Nodes    int         `json:"nodes" doc:"on-demand nodes in use"`
	Hourly   float64     `json:"hourly_usd" doc:"current cost per hour"`
	Begin    time.Time   `json:"begin" doc:"start of the period"`
	Ends     time.Time   `json:"ends" doc:"end of the period, when usage is reset"`
	Cost     PeriodUsage `json:"cost_usd"`
	GPUHours PeriodUsage `json:"gpu_hours"`
}

// PeriodUsage is the usage in a period so far and as expected at its end.
type PeriodUsage struct {
	Limit    float64    `json:"limit,omitempty"`
	Used     float64    `json:"used"`
	Expected float64    `json:"expected" doc:"projected usage at the end of the period if no further job starts"`
	UsedUp   *time.Time `json:"used_up,omitempty" doc:"when the limit is or was reached; absent if it is not reached in this period"`
}

// QuotaPage is one page of usage, by name; the quotas are on the first page.
type QuotaPage struct {
	Quotas []Quota      `json:"quotas"`
	Usage  []QuotaUsage `json:"usage"`
	Next   string       `json:"next,omitempty"`

	NoTariff bool `json:"no_tariff,omitempty" doc:"the server has no tariff: what local and reserved nodes cost is unknown, not 0"`
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
