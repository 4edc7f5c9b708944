package api

import (
	"context"
	"time"

	"trainyard/internal/fleet"
)

// Summary is the yard in one line.
type Summary struct {
	At      time.Time      `json:"at" doc:"when it was made; it is made anew at most once a second"`
	Classes []ClassSummary `json:"classes" doc:"nodes and GPUs by class; classes without nodes are left out"`
	Queued  int            `json:"queued" doc:"jobs of everyone that are queued"`
	Running int            `json:"running" doc:"jobs of everyone that run, or are about to"`
}

// ClassSummary is what the nodes of a class are doing.
type ClassSummary struct {
	Class  fleet.Class `json:"class"`
	Nodes  int         `json:"nodes"`
	Away   int         `json:"away" doc:"nodes that do not report; their GPUs are counted as away"`
	GPUs   GPUSummary  `json:"gpus"`
	Hourly float64     `json:"hourly_usd,omitempty" doc:"what the providers charge for an hour of these nodes; on-demand nodes only"`
}

// GPUSummary counts GPUs by what they are doing.
type GPUSummary struct {
	Total   int `json:"total"`
	Running int `json:"running"`
	Idle    int `json:"idle"`
	Foreign int `json:"foreign" doc:"in use by processes outside the yard"`
	Error   int `json:"error"`
	Away    int `json:"away" doc:"on nodes that do not report"`
}

// UseHours is how much of the yard's GPUs was used, hour by hour.
type UseHours struct {
	At    time.Time `json:"at" doc:"when it was made; it is made anew at most every 10 seconds"`
	Hours []UseHour `json:"hours" doc:"oldest first; the last one is not over yet"`
}

// UseHour is how much of the yard's GPUs was used in an hour. Available is what runs had or could have had,
// without what was broken, cordoned, used by others or not there.
type UseHour struct {
	From      time.Time `json:"from"`
	Busy      float64   `json:"busy_gpu_seconds"`
	Available float64   `json:"available_gpu_seconds"`
}

// UseHours returns how much of the yard's GPUs was used in each of the last 24 hours.
func (c *Client) UseHours(ctx context.Context) (UseHours, error) {
	return get[UseHours](ctx, c, at("summary", "hours"), nil)
}

// Summary returns the yard in one line.
func (c *Client) Summary(ctx context.Context) (Summary, error) {
	return get[Summary](ctx, c, at("summary"), nil)
}
