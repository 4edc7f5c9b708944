package agent

import (
	"context"
	"sync"
	"time"

	"trainyard/internal/fleet"
)

// ContainerEngine says whether jobs can run in containers here; see package container.
type ContainerEngine interface {
	Look(ctx context.Context) fleet.Containers
}

// NoContainers is the engine of an agent that runs no jobs in containers, for the reason that it is.
type NoContainers string

// Look says that there is no engine.
func (n NoContainers) Look(context.Context) fleet.Containers {
	return fleet.Containers{Reason: string(n)}
}

// lookEvery is how often an engine that works is asked whether it still does. Engines take their time for that.
const lookEvery = 5 * time.Minute

// containers is what the engine said last.
type containers struct {
	mu    sync.Mutex
	found fleet.Containers
	at    time.Time
}

// look returns whether jobs can run in containers; nil without an engine.
func (c *containers) look(ctx context.Context, engine ContainerEngine, now time.Time) *fleet.Containers {
	if engine == nil {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.found.OK || now.Sub(c.at) >= lookEvery {
		c.found, c.at = engine.Look(ctx), now
	}

	found := c.found

	return &found
}
