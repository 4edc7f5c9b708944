package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// ClearGPUError lets a GPU back into use that its agent has quarantined.
func (c *Client) ClearGPUError(ctx context.Context, n id.Node, gpu int) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "gpus", strconv.Itoa(gpu), "clear-error"), nil)
}

// Node is a machine as people see it.
type Node struct {
	ID       id.Node        `json:"id"`
	Class    fleet.Class    `json:"class"`
	Pool     string         `json:"pool,omitempty"`
	State    string         `json:"state" enum:"running,idle,foreign,suspect,lost,removed,error" doc:"state of the node; foreign means in use by processes outside the yard"`
	Since    time.Time      `json:"since" doc:"when it entered this state, if known"`
	Reason   string         `json:"reason,omitempty"`
	Activity string         `json:"activity,omitempty" doc:"what its agent does at present beside running jobs, such as measuring its GPUs"`
	Cordoned bool           `json:"cordoned"`
	Reserved *Reservation   `json:"reserved,omitempty" doc:"reservation that keeps jobs of others than its user off the node now"`
	Problem  *fleet.Problem `json:"problem,omitempty" doc:"what keeps new jobs off the node although its agent reports; its jobs continue"`
	// Warnings do not keep jobs off the node.
	Warnings []fleet.Problem `json:"warnings,omitempty" doc:"what is wrong with the node although it takes jobs: clock_skew, same_machine"`
	LastSeen *time.Time      `json:"last_seen,omitempty"`
	CPUs     job.CPUs        `json:"cpus"`
	CPUsFree job.CPUs        `json:"cpus_free"`
	Memory   job.Bytes       `json:"memory"`
	MemFree  job.Bytes       `json:"memory_free"`
	Disk     job.Bytes       `json:"disk"`
	OS       string          `json:"os"`
	Arch     string          `json:"arch"`
	Address  string          `json:"address"`
	Topology string          `json:"topology,omitempty" doc:"where it is, as its operator declared: places from the outside in"`
	Labels   []string        `json:"labels,omitempty" doc:"what jobs can ask for, as its operator declared"`
	Version  string          `json:"version" doc:"version of the agent"`
	Limits   string          `json:"limits,omitempty" doc:"how resource limits of runs are enforced"`
	// Isolation is absent if the agent is too old to say it; it isolates nothing then.
	Isolation fleet.Isolation `json:"isolation,omitempty" doc:"what separates jobs of different users: users or none"`
	// SingleUser is set where jobs are not isolated and the operator has not allowed to mix users.
	SingleUser bool    `json:"single_user,omitempty" doc:"it runs jobs of one user at a time"`
	Tenant     id.User `json:"tenant,omitempty" doc:"user to whom such a node is dedicated until it is empty"`
	Metadata   string  `json:"metadata,omitempty" doc:"whether jobs can reach the cloud's metadata service: blocked, or why not"`
	// Snapshots is absent if the agent is too old to say it.
	Snapshots *fleet.Snapshots `json:"snapshots,omitempty" doc:"which snapshots of programs it can take"`
	// Containers is absent if the agent is too old to say it.
	Containers *fleet.Containers `json:"containers,omitempty" doc:"whether it runs jobs in containers"`
	// Environments is absent if the agent is too old to say it.
	Environments *fleet.Environments `json:"environments,omitempty" doc:"which Python environments it can build for jobs"`
	// Shared is absent if none is declared for the node.
	Shared   []fleet.Shared `json:"shared,omitempty" doc:"shared file systems that are declared for it"`
	Shares   string         `json:"shares,omitempty" doc:"version of the library with which it divides its GPUs among jobs; absent if it cannot"`
	MPS      bool           `json:"mps,omitempty" doc:"jobs of one owner can share its GPUs through NVIDIA MPS"`
	GPUs     []GPU          `json:"gpus"`
	FakeGPUs bool           `json:"fake_gpus,omitempty" doc:"its GPUs are fake (testing only)"`
	Jobs     []id.Job       `json:"jobs" doc:"jobs running on it"`
	Runs     []NodeRun      `json:"runs" doc:"runs of these jobs"`
	TFLOPS   float64        `json:"tflops,omitempty" doc:"total TFLOPS of its GPUs"`
	Origin   string         `json:"tflops_origin,omitempty" enum:"measured,table,unknown,mixed" doc:"where the TFLOPS figure comes from"`
	Watts    float64        `json:"power_limit_w,omitempty" doc:"total power limit of its GPUs, in watts"`
	Draw     float64        `json:"draw_w,omitempty" doc:"measured power draw at the current number of busy GPUs, in watts"`
	Price    *Price         `json:"price,omitempty" doc:"price of the node; absent if unknown"`
	Lease    *NodeLease     `json:"lease,omitempty" doc:"lease of a provisioned node"`
}

// NodeRun is a run on a node.
type NodeRun struct {
	Run   id.Run    `json:"run"`
	Job   id.Job    `json:"job"`
	GPUs  []int     `json:"gpus,omitempty"`
	Share float64   `json:"share,omitempty" doc:"of its one GPU, if it shares that with others"`
	Since time.Time `json:"since"`
}

// NodeRuns is what ran on a node in a period.
type NodeRuns struct {
	Runs []PastRun `json:"runs" doc:"runs that were on the node in the period, newest first"`
	// Partial is set where the node had so many jobs that not all were looked at.
	Partial bool `json:"partial,omitempty" doc:"only the newest jobs of the node were looked at"`
}

// PastRun is the part of a run on a node.
type PastRun struct {
	Run   id.Run     `json:"run"`
	Job   id.Job     `json:"job"`
	Name  string     `json:"name,omitempty" doc:"of the job; absent also if the caller may not read it"`
	Owner id.User    `json:"owner"`
	GPUs  []int      `json:"gpus,omitempty"`
	Share float64    `json:"share,omitempty" doc:"of its one GPU, if it shared that with others"`
	From  time.Time  `json:"from" doc:"when it was ordered"`
	To    *time.Time `json:"to,omitempty" doc:"when it ended; absent if it has not"`
	Cause job.Cause  `json:"cause,omitempty" doc:"why it ended"`
}

// NodeRuns returns the runs that were on a node since a time.
func (c *Client) NodeRuns(ctx context.Context, n id.Node, since time.Time) (NodeRuns, error) {
	query := url.Values{}
	if !since.IsZero() {
		query.Set("since", since.UTC().Format(time.RFC3339Nano))
	}

	return get[NodeRuns](ctx, c, at("nodes", string(n), "runs"), query)
}

// Price is what a node costs in an hour.
type Price struct {
	NodeCost   float64 `json:"node_cost_usd" doc:"cost per hour with all GPUs in use, without energy: the provider's price, or the purchase price spread over its life"`
	EnergyCost float64 `json:"energy_cost_usd" doc:"energy cost per hour with all GPUs in use; 0 for a provisioned node, whose price includes energy"`
	Hourly     float64 `json:"hourly_usd" doc:"node and energy cost per hour with all GPUs in use"`
	Idle       float64 `json:"idle_usd" doc:"node and energy cost per hour while idle"`
}

// NodeLease is by what a node was provisioned.
type NodeLease struct {
	ID    id.Lease         `json:"id"`
	Offer string           `json:"offer"`
	State fleet.LeaseState `json:"state"`
	Ends  *time.Time       `json:"ends,omitempty" doc:"expiry: the machine shuts itself down at this time unless the lease is renewed"`
}

// GPU is one device as people see it.
type GPU struct {
	Index  int            `json:"index"`
	UUID   string         `json:"uuid"`
	Model  string         `json:"model"`
	Memory job.Bytes      `json:"memory"`
	Driver string         `json:"driver,omitempty"`
	State  fleet.GPUState `json:"state"`
	Job    id.Job         `json:"job,omitempty"`
	Shares []GPUShare     `json:"shares,omitempty" doc:"jobs that share it"`
	Fake   bool           `json:"fake,omitempty"`
	Error  string         `json:"error,omitempty" doc:"why it is out of service"`
	Since  *time.Time     `json:"since,omitempty" doc:"when it entered this state, if known"`
	// What it can do and how that is known.
	TFLOPS    float64 `json:"tflops,omitempty" doc:"TFLOPS in bf16, or in the closest format it supports"`
	Origin    string  `json:"tflops_origin,omitempty" enum:"measured,table,unknown"`
	Peak      float64 `json:"peak_tflops,omitempty" doc:"peak TFLOPS according to the vendor"`
	Measured  float64 `json:"measured_tflops,omitempty" doc:"TFLOPS measured on this device"`
	Bandwidth float64 `json:"bandwidth_gbs,omitempty" doc:"memory bandwidth in GB/s"`
	Watts     float64 `json:"power_limit_w,omitempty"`
	Health    string  `json:"health,omitempty" doc:"health findings, past or present"`
	// Use is absent if the agent is too old to say it, and for fake GPUs.
	Use *fleet.GPUReading `json:"use,omitempty" doc:"newest reading: how busy it is, memory in use, power and temperature"`
	// Foreign are processes outside the yard that use it.
	Foreign []ForeignProcess `json:"foreign,omitempty" doc:"processes outside the yard that use this GPU, as far as visible"`
}

// GPUShare is the part of a GPU that one job has.
type GPUShare struct {
	Job    id.Job         `json:"job"`
	Name   string         `json:"name,omitempty" doc:"of the job; absent also if the caller may not read it"`
	Owner  id.User        `json:"owner"`
	Share  float64        `json:"share" doc:"share of the GPU that it is promised, 0 to 1"`
	Class  job.ShareClass `json:"class" enum:"guaranteed,normal,opportunistic"`
	Limit  float64        `json:"limit,omitempty" doc:"most of the GPU that it gets even if nobody else wants it; absent for all of it"`
	Memory job.Bytes      `json:"memory,omitempty" doc:"memory of the GPU that it may have; absent if unknown"`
	Use    *ShareUse      `json:"use,omitempty" doc:"what it really gets, as measured by the agent; absent if unknown"`
}

// ShareUse is what a job gets of a GPU that it shares.
type ShareUse struct {
	Got        float64    `json:"got" doc:"part of the time in which it had the GPU, between the two newest measurements, 0 to 1; 0 in mode mps, where it is not measured"`
	Wanted     float64    `json:"wanted" doc:"part of the time in which it had the GPU or waited for it; 0 in mode mps"`
	Served     *float64   `json:"served,omitempty" doc:"how much of what it wanted it has had so far, 0 to 1"`
	Mode       string     `json:"mode" enum:"whole,open,token,mig,mps" doc:"how the GPU is divided at the moment"`
	Memory     job.Bytes  `json:"memory,omitempty" doc:"memory of the GPU that it has"`
	Denials    int        `json:"denials,omitempty" doc:"allocations refused because it has as much memory as it may"`
	Bypassed   int        `json:"bypassed,omitempty" doc:"processes of it that are not held to its share"`
	ShortSince *time.Time `json:"short_since,omitempty" doc:"since when it gets less than its share; absent if it does not"`
}

// JobShare is the part of a GPU that a running job has, and who has the rest.
type JobShare struct {
	Node id.Node `json:"node"`
	GPU  int     `json:"gpu"`
	GPUShare
	Beside []GPUShare `json:"beside" doc:"jobs that share the GPU with it"`
}

// NodePage is one page of a list of nodes, by name.
type NodePage struct {
	Nodes []Node `json:"nodes"`
	Next  string `json:"next,omitempty"`
}

// Nodes returns one page of the nodes, by name.
func (c *Client) Nodes(ctx context.Context, p Page) (NodePage, error) {
	return get[NodePage](ctx, c, at("nodes"), p.query())
}

// Node returns one node.
func (c *Client) Node(ctx context.Context, n id.Node) (Node, error) {
	return get[Node](ctx, c, at("nodes", string(n)), nil)
}

// CordonNode stops scheduling on a node; its jobs run on.
func (c *Client) CordonNode(ctx context.Context, n id.Node) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "cordon"), nil)
}

// UncordonNode resumes scheduling on a node.
func (c *Client) UncordonNode(ctx context.Context, n id.Node) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "uncordon"), nil)
}

// DrainNode cordons a node and stops its jobs, so that they restart elsewhere.
func (c *Client) DrainNode(ctx context.Context, n id.Node) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "drain"), nil)
}

// AcceptNode accepts what a node declares, or that its identity is its own.
func (c *Client) AcceptNode(ctx context.Context, n id.Node) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "accept"), nil)
}

// RemoveNode takes a node out of the yard for good. With force it is ended at once, whatever runs on it.
func (c *Client) RemoveNode(ctx context.Context, n id.Node, force bool) error {
	query := url.Values{}
	if force {
		query.Set("force", "true")
	}

	return c.call(ctx, http.MethodDelete, at("nodes", string(n)), query, nil, nil)
}
