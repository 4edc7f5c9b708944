package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/server/agentapi"
	"trainyard/internal/yardmaster"
)

// toNode writes a node as a line of the resource table.
func (s *Server) toNode(ctx context.Context, n *yardmaster.NodeInfo) api.Node {
	inv := &n.Inventory
	out := api.Node{
		ID: n.ID, Class: n.Class, Pool: n.Pool, Reason: n.Reason, Cordoned: n.Cordoned, Activity: inv.Activity,
		LastSeen: timeOrNil(n.Seen), CPUs: inv.CPUs, CPUsFree: n.Room.CPUs, Memory: inv.Memory, MemFree: n.Room.Memory,
		Disk: inv.Disk, OS: inv.OS, Arch: inv.Arch, Address: inv.Address, Version: inv.Version,
		Topology: inv.Topology, Labels: inv.Labels,
		Limits: inv.Limits, Jobs: n.Jobs, Runs: []api.NodeRun{}, GPUs: make([]api.GPU, len(inv.GPUs)),
		Problem: inv.Problem, Snapshots: inv.Snapshots, Containers: inv.Containers, Shared: inv.Shared,
		Shares:       inv.Shares,
		MPS:          inv.MPS,
		Environments: inv.Environments, Warnings: n.Warnings,
		Isolation: inv.Isolation, SingleUser: inv.SingleUser, Tenant: n.Room.Tenant(), Metadata: inv.Metadata,
	}

	if r := n.Reserved; r != nil {
		reserved := toReservation(r)
		out.Reserved = &reserved
		out.Reason = strings.TrimPrefix(out.Reason+"; "+r.Words(), "; ")
	}

	if out.Jobs == nil {
		out.Jobs = []id.Job{}
	}

	seen := s.agents.Sighting(n.ID)
	for i := range inv.GPUs {
		out.GPUs[i] = toGPU(n, &inv.GPUs[i], &seen)
		out.GPUs[i].Shares = s.sharesOf(ctx, n, inv.GPUs[i].Index)
		out.FakeGPUs = out.FakeGPUs || inv.GPUs[i].Fake
	}

	for i := range n.Runs {
		r := &n.Runs[i]
		for k := range r.Ranks {
			if rank := &r.Ranks[k]; rank.Node == n.ID {
				out.Runs = append(
					out.Runs,
					api.NodeRun{Run: r.ID, Job: r.Job, GPUs: rank.GPUs, Share: rank.Share, Since: shown(r.Ordered)},
				)
			}
		}
	}

	out.State = nodeState(n)
	out.Since = shown(nodeSince(n, out.State, &seen))
	addPower(&out, inv)
	addPrice(&out, n)

	return out
}

// toGPU writes one device: what it is, what it does and since when, and what is known of its health.
func toGPU(n *yardmaster.NodeInfo, g *fleet.GPU, seen *agentapi.Sighting) api.GPU {
	speed, origin := g.TFLOPS()
	out := api.GPU{
		Index:     g.Index,
		UUID:      g.UUID,
		Model:     g.Model,
		Memory:    g.Memory,
		Driver:    g.Driver,
		Fake:      g.Fake,
		Error:     g.Error,
		TFLOPS:    speed,
		Origin:    origin,
		Peak:      g.Peak,
		Measured:  g.Measured,
		Bandwidth: g.Bandwidth,
		Watts:     g.Watts,
		Health:    g.Health,
		Foreign:   seen.Processes[g.Index],
	}

	if reading, ok := seen.Readings[g.Index]; ok && n.State == fleet.Ready {
		out.Use = &reading
	}

	if len(n.Runs) == 0 {
		out.Since = timeOrNil(n.Idle)
	}

	out.State, out.Job = gpuState(n, g)

	switch out.State {
	case fleet.GPUIdle:
	case fleet.GPURunning:
		out.Since = runSince(n, out.Job)
	case fleet.GPUForeign:
		out.Since = timeOrNil(seen.Foreign[g.Index])
	case fleet.GPUError:
		out.Since = timeOrNil(seen.Failed[g.Index])
	}

	return out
}

// gpuState is what a GPU is doing, and the job that it is allocated to.
func gpuState(n *yardmaster.NodeInfo, g *fleet.GPU) (state fleet.GPUState, of id.Job) {
	state = fleet.GPUIdle

	for i := range n.Room.Holds {
		if h := &n.Room.Holds[i]; h.GPUs&fleet.Mask([]int{g.Index}) != 0 {
			state, of = fleet.GPURunning, h.Job
		}
	}

	if state == fleet.GPUIdle && slices.Contains(n.Foreign, g.Index) {
		state = fleet.GPUForeign
	}

	if g.Error != "" {
		state = fleet.GPUError
	}

	return state, of
}

// runSince is since when a job is on a node.
func runSince(n *yardmaster.NodeInfo, j id.Job) *time.Time {
	for i := range n.Runs {
		if n.Runs[i].Job == j {
			return timeOrNil(n.Runs[i].Ordered)
		}
	}

	return nil
}

// The words for a node that is in order, and for one with a problem or a broken GPU.
const (
	stateRunning = "running"
	stateIdle    = "idle"
	stateForeign = "foreign"
	stateError   = "error"
)

// nodeState is the word people see.
func nodeState(n *yardmaster.NodeInfo) string {
	switch {
	case n.State != fleet.Ready:
		return string(n.State)
	case n.Inventory.Problem != nil:
		return stateError
	case slices.ContainsFunc(n.Inventory.GPUs, func(g fleet.GPU) bool { return g.Error != "" }):
		return stateError
	case len(n.Jobs) > 0:
		return stateRunning
	case len(n.Foreign) > 0:
		return stateForeign
	}

	return stateIdle
}

// nodeSince is since when a node is in the state that people see, as far as is known.
func nodeSince(n *yardmaster.NodeInfo, state string, seen *agentapi.Sighting) time.Time {
	since := n.Since
	later := func(t time.Time) {
		if t.After(since) {
			since = t
		}
	}

	switch state {
	case stateRunning:
		var first time.Time
		for i := range n.Runs {
			if at := n.Runs[i].Ordered; first.IsZero() || at.Before(first) {
				first = at
			}
		}

		if !first.IsZero() {
			return first
		}
	case stateIdle:
		later(n.Idle)
	case stateForeign:
		later(earliest(seen.Foreign))
	case stateError:
		later(earliest(seen.Failed))
	}

	return since
}

func earliest(times map[int]time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}

	return first
}

// addPower adds up what the GPUs reach and draw.
func addPower(out *api.Node, inv *fleet.Inventory) {
	used := 0

	for i := range out.GPUs {
		g := &out.GPUs[i]
		out.TFLOPS += g.TFLOPS
		out.Watts += g.Watts
		if out.Origin == "" {
			out.Origin = g.Origin
		} else if out.Origin != g.Origin {
			out.Origin = "mixed"
		}

		if g.State == fleet.GPURunning || g.State == fleet.GPUForeign {
			used++
		}
	}

	if used < len(inv.Draw) {
		out.Draw = inv.Draw[used]
	}
}

// addPrice says what a node costs, and the lease by which it was provisioned.
func addPrice(out *api.Node, n *yardmaster.NodeInfo) {
	if p := n.Price; p != nil {
		out.Price = &api.Price{
			NodeCost:   float64(p.NodeCost),
			EnergyCost: float64(p.EnergyCost),
			Hourly:     float64(p.NodeCost + p.EnergyCost),
			Idle:       float64(p.IdleCost),
		}
	}

	if l := &n.Provisioned; l.ID != "" {
		out.Lease = &api.NodeLease{ID: l.ID, Offer: l.Offer.Name, State: l.State, Ends: timeOrNil(l.Ends)}
	}
}
