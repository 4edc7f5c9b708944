//go:build !nvml

package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"trainyard/internal/agent"
	"trainyard/internal/agent/share"
	"trainyard/internal/agent/share/sharetest"
	"trainyard/internal/job"
)

// TestAnAgentFindsWhoDropsTheLibraryOnAFakeGPU is about an agent that finds the GPU and its processes by itself.
func TestAnAgentFindsWhoDropsTheLibraryOnAFakeGPU(t *testing.T) {
	n := newSharedNode(t)
	t.Setenv("PATH", n.built+":"+os.Getenv("PATH"))
	t.Setenv("FAKE_GPU", n.gpu.Env()["FAKE_GPU"])

	n.cfg.Inventory, n.cfg.Probe = nil, agent.ProbeOff
	launch(t, n.cfg)

	trainer := filepath.Join(n.built, sharetest.Trainer)
	loose := n.shared("j1.1", 0.5, "")
	loose.Launch.Command = "env -u LD_PRELOAD " + trainer + " pause=1000"
	n.assign(loose, n.shared("j2.1", 0.25, "pause=1000"))

	n.awaitShare("j1.1", "has a process that is not held back", func(u *job.ShareUse) bool { return u.Bypassed == 1 })
	n.awaitShare("j2.1", "has none", func(u *job.ShareUse) bool {
		return u.Bypassed == 0 && u.Cap == sharedMemory/4 && u.Memory == sharetest.ContextBytes
	})

	if got, want := n.shares(), share.Version(n.cfg.ShareLibrary); got != want {
		t.Errorf("the inventory says %q, want %q", got, want)
	}
}
