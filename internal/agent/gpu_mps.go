package agent

import (
	"context"
	"errors"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// noMPS says why ranks cannot share GPUs through NVIDIA MPS here, nil if they can. Programs that are walled off from
// each other have no memory in common with the daemon.
func (g *gpuShares) noMPS() error {
	if g.agent.cfg.Isolated {
		return errors.New("programs run as users of their own, which cannot reach NVIDIA MPS")
	}

	return g.mps.Find()
}

// mpsFor returns where a rank finds the daemon through which it shares its GPU, "" if it does not share it so.
func (g *gpuShares) mpsFor(s *rundir.Spec) (string, error) {
	if !s.Launch.ShareMPS || s.ShareLibrary == "" {
		return "", nil
	}

	err := g.noMPS()
	if err == nil && s.Launch.Image != "" {
		err = errors.New("a container cannot reach NVIDIA MPS")
	}

	if err != nil {
		return "", fault.New(fault.Invalid, "no_mps", "this node cannot share a GPU through MPS: %v", err).
			WithRemedy("remove share_mps from the job")
	}

	return g.mps.Pipes(s.Devices[0]), nil
}

// adopted is called when the ranks of an earlier agent process are known. Before that nobody knows who uses a daemon.
func (g *gpuShares) adopted() {
	g.mu.Lock()
	g.complete = true
	g.mu.Unlock()

	g.tidyMPS()
}

// tidyMPS stops the daemons of GPUs whose ranks have ended.
func (g *gpuShares) tidyMPS() {
	g.mu.Lock()
	complete := g.complete
	g.mu.Unlock()

	if !complete {
		return
	}

	err := g.mps.Tidy(context.Background(), func() map[string]bool {
		running := map[string]bool{}

		for _, st := range g.agent.rt.List() {
			if st.State != job.RunEnded {
				running[rundir.RankName(st.Run, st.Rank)] = true
			}
		}

		return running
	})
	if err != nil { // the next look tries again
		g.agent.log.Warn("cannot stop NVIDIA MPS", "error", err)
	}
}
