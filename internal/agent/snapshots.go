package agent

import (
	"context"
	"fmt"
	"sync"

	"trainyard/internal/agent/snapshot"
	"trainyard/internal/fleet"
)

// abilities is which snapshots the machine can take. It is found out once, and again when its GPUs or their driver
// change.
type abilities struct {
	mu    sync.Mutex
	found *fleet.Snapshots
	with  string // GPUs and driver of the last probe
}

// of returns which snapshots a machine with these GPUs can take.
func (b *abilities) of(ctx context.Context, cfg *Config, gpus []fleet.GPU) *fleet.Snapshots {
	b.mu.Lock()
	defer b.mu.Unlock()

	with := fmt.Sprint(len(gpus))
	if len(gpus) > 0 {
		with += " " + gpus[0].Driver
	}

	if b.found == nil || b.with != with {
		found := snapshot.Probe{
			CRIU: cfg.CRIU, CUDA: snapshot.CUDA{Python: cfg.ProbePython}, GPUs: gpus, Isolated: cfg.Isolated,
		}.Run(ctx)
		if ctx.Err() != nil {
			return b.found // the agent is stopping, which says nothing about the machine
		}

		b.found, b.with = &found, with
	}

	return b.found
}
