package api

import (
	"context"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Utilization is what a job uses of its nodes in its newest run, or used in the last one, all ranks together.
type Utilization struct {
	Job     id.Job      `json:"job"`
	Name    string      `json:"name,omitempty"`
	Owner   id.User     `json:"owner"`
	Run     id.Run      `json:"run"`
	Ended   bool        `json:"ended,omitempty" doc:"the run has ended: now is absent"`
	Elapsed float64     `json:"elapsed_seconds" doc:"time from the first measurement to the last"`
	Samples int         `json:"samples" doc:"number of measurements of the rank that was measured most often"`
	Asked   Asked       `json:"asked"`
	At      *time.Time  `json:"at,omitempty" doc:"when it was measured last"`
	Now     *UseAmounts `json:"now,omitempty" doc:"newest measurement"`
	Rates   *UseRates   `json:"rates,omitempty" doc:"between the two newest measurements"`
	Mean    UseAmounts  `json:"mean"`
	Peak    UseAmounts  `json:"peak" doc:"most that was seen, of memory on one node"`
	Total   Totals      `json:"total"`
	Ranks   []RankUse   `json:"ranks" doc:"by rank"`
	Missing []Missing   `json:"unmeasured,omitempty" doc:"resources that were not measured; their amounts are absent"`
	Points  []UsePoint  `json:"points,omitempty" doc:"downsampled course of the run"`
	Earlier []RunCourse `json:"earlier,omitempty" doc:"downsampled courses of the runs before it, oldest first; at most 10"`
	Advice  []string    `json:"advice,omitempty" doc:"what to ask for the next time; given when the run has ended"`
}

// Asked is what each node of the run was asked for.
type Asked struct {
	Nodes  int       `json:"nodes"`
	GPUs   int       `json:"gpus" doc:"on each node"`
	CPUs   job.CPUs  `json:"cpus" doc:"on each node"`
	Memory job.Bytes `json:"memory,omitempty" doc:"on each node; absent if there was no limit"`
}

// UseAmounts are figures of one moment, or of a period. What was not measured is absent.
type UseAmounts struct {
	CPUs      *float64 `json:"cpus,omitempty" doc:"CPUs in use"`
	Memory    *int64   `json:"memory,omitempty" doc:"bytes"`
	GPUBusy   *float64 `json:"gpu_busy,omitempty" doc:"share of the time in which its GPUs worked, 0 to 1"`
	GPUMemory *int64   `json:"gpu_memory,omitempty" doc:"bytes in use on one GPU"`
}

// UseRates are bytes a second. What was not measured is absent.
type UseRates struct {
	Read     *float64 `json:"read,omitempty" doc:"bytes a second read from disks"`
	Written  *float64 `json:"written,omitempty" doc:"bytes a second written to disks"`
	Received *float64 `json:"received,omitempty" doc:"bytes a second received from the network"`
	Sent     *float64 `json:"sent,omitempty" doc:"bytes a second sent to the network"`
}

// Totals are sums over the run. What was not measured is absent.
type Totals struct {
	CPUSeconds *float64 `json:"cpu_seconds,omitempty"`
	Read       *int64   `json:"read,omitempty" doc:"bytes read from disks"`
	Written    *int64   `json:"written,omitempty" doc:"bytes written to disks"`
	Received   *int64   `json:"received,omitempty" doc:"bytes received from the network"`
	Sent       *int64   `json:"sent,omitempty" doc:"bytes sent to the network"`
}

// RankUse is the use of one rank.
type RankUse struct {
	Rank int     `json:"rank"`
	Node id.Node `json:"node"`
	job.Use
}

// Missing says why a resource was not measured.
type Missing struct {
	Resource job.Resource `json:"resource"`
	Why      string       `json:"why"`
}

// UsePoint is one point of the course of a run, of all ranks together.
type UsePoint struct {
	At time.Time `json:"at"`
	UseAmounts
}

// RunCourse is the course of an earlier run of the job.
type RunCourse struct {
	Run    id.Run     `json:"run"`
	Points []UsePoint `json:"points"`
}

// UtilizationPage lists what running jobs use.
type UtilizationPage struct {
	Jobs []Utilization `json:"jobs"`
}

// Utilizations returns what the running jobs use that the caller may see.
func (c *Client) Utilizations(ctx context.Context) (UtilizationPage, error) {
	return get[UtilizationPage](ctx, c, at("utilization"), nil)
}

// Utilization returns what a job uses or has used.
func (c *Client) Utilization(ctx context.Context, j id.Job) (Utilization, error) {
	return get[Utilization](ctx, c, at("jobs", string(j), "utilization"), nil)
}
