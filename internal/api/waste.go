package api

import (
	"context"
	"time"

	"trainyard/internal/id"
)

// Waste is what was paid for, or kept from others, without use in a period, with the figures behind each finding.
type Waste struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Findings    []Finding `json:"findings" doc:"highest cost first, at most 50"`
	JobsChecked int       `json:"jobs_checked" doc:"jobs that ended in the period and were looked at: the newest, at most 200"`

	NoTariff bool `json:"no_tariff,omitempty" doc:"the server has no tariff: what local and reserved nodes cost is unknown, not 0"`
}

// The kinds of findings.
const (
	WasteIdleNode     = "idle_node"
	WasteBrokenNode   = "out_of_service"
	WasteProvisioning = "provisioning"
	WasteRequests     = "requests"
	WasteFailures     = "failures"
)

// Finding is one thing that could be avoided.
type Finding struct {
	Kind       string   `json:"kind" enum:"idle_node,out_of_service,provisioning,requests,failures"`
	Subject    string   `json:"subject" doc:"name of a node, or of jobs; ondemand for all on-demand nodes"`
	Owner      id.User  `json:"owner,omitempty" doc:"of the jobs"`
	Evidence   string   `json:"evidence" doc:"what was measured"`
	Remedy     string   `json:"remedy" doc:"what would avoid it"`
	Jobs       []id.Job `json:"jobs,omitempty" doc:"jobs behind it, newest first, at most 5"`
	JobCount   int      `json:"job_count,omitempty" doc:"number of jobs behind it"`
	GPUSeconds float64  `json:"gpu_seconds" doc:"GPU-seconds without use; 0 if not counted in GPUs"`
	Cost       float64  `json:"cost_usd" doc:"what that cost; 0 if unknown"`
}

// Waste returns what was paid for without use, of one owner's jobs or of all that the caller may see.
func (c *Client) Waste(ctx context.Context, from, to time.Time, owner id.User) (Waste, error) {
	q := UsageQuery{From: from, To: to}.query()
	set(q, "owner", string(owner))

	return get[Waste](ctx, c, at("waste"), q)
}
