package supervisor

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/job"
)

// takeContainer takes over the container that the agent has made for the rank, if it has one. The container ends with
// this process, which has the last end of a pipe to it.
func (s *supervisor) takeContainer(ctx context.Context) error {
	if s.rec.Launch.Image == "" {
		return nil
	}

	unix.CloseOnExec(rundir.ContainerFD) // what this process starts must not hold the container

	c, err := rundir.ReadContainer(s.dir)
	if err != nil {
		return fmt.Errorf("read what is known of the container: %w", err)
	}

	s.container, s.state.Digest = c, c.Digest
	s.rec.Env, s.rec.Setup = c.Env, c.Setup

	go func() {
		if process.AwaitExit(ctx, c.PID) {
			s.send(ctx, order{mode: job.StopTerm, cause: job.CauseNodeLost, reason: "its container was stopped from outside"})
		}
	}()

	return nil
}
