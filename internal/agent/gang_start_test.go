package agent_test

import (
	"slices"
	"testing"

	"trainyard/internal/job"
)

func TestProgramOfAGangStartsWhenTheServerSaysSo(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	rt.gang = true
	cfg := config(t, y, rt)
	stop := launch(t, cfg)
	a := assignment("j1.1")
	a.Launch.Barrier, a.Launch.Nodes = true, []string{"127.0.0.1", "127.0.0.1"}
	a.Launch.Addresses = [][]string{{"127.0.0.1"}, {"127.0.0.1"}}
	y.assign(a)

	var port int
	y.await("a probe of a rank that is ready", func() bool {
		r, ok := y.last("j1.1")
		if ok && r.Ready && r.Probe != nil {
			port = r.Probe.Port
		}

		return port > 0
	})

	// A restarted agent answers at another port.
	stop()
	launch(t, cfg)
	y.await("the probe of the next agent", func() bool {
		r, ok := y.last("j1.1")
		return ok && r.Ready && r.Probe != nil && r.Probe.Port != port
	})

	a.Start = &job.GangStart{Nodes: []string{"127.0.0.1", "127.0.0.1"}}
	y.assign(a)
	y.awaitState("j1.1", job.RunRunning)

	rt.mu.Lock()
	defer rt.mu.Unlock()

	if want := []string{"j1.1.0 [127.0.0.1 127.0.0.1]"}; !slices.Equal(rt.gangs, want) {
		t.Errorf("started %v, want %v", rt.gangs, want)
	}
}
