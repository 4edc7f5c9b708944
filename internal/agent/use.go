package agent

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"trainyard/internal/agent/sampler"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// useEvery is how often the use of resources is measured. It costs a few file reads for each rank.
const useEvery = 5 * time.Second

// uses is what the ranks use, as last measured.
type uses struct {
	mu     sync.Mutex
	latest map[string]job.Use // by name of the rank
}

// useLoop measures what the ranks use until ctx ends.
func (a *Agent) useLoop(ctx context.Context) {
	s := sampler.New()
	clock.Every(ctx, a.clk, useEvery, func(now time.Time) { a.measureUse(s, now) })
}

// gpuUseLoop asks the driver how busy the GPUs are as long as ranks have some. It is a loop of its own because a
// driver may hang.
func (a *Agent) gpuUseLoop(ctx context.Context) {
	if a.machine == nil || len(a.fakeGPUs) > 0 {
		return
	}

	clock.Every(ctx, a.clk, useEvery, func(time.Time) {
		if len(a.allocatedGPUsNow()) == 0 {
			return
		}

		err := a.machine.LookAtUse(ctx)
		if ctx.Err() == nil {
			a.noteProblem("GPU use", err)
		}
	})
}

func (a *Agent) measureUse(s *sampler.Sampler, now time.Time) {
	targets := map[string]sampler.Target{}
	gpus := map[string][]int{}

	for _, st := range a.rt.List() {
		if st.State != job.RunRunning && st.State != job.RunStopping {
			continue
		}

		t, err := a.rt.Target(st.Run, st.Rank)
		if err != nil {
			continue // forgotten since it was listed
		}

		k := key{st.Run, st.Rank}
		targets[k.name()] = t

		a.mu.Lock()
		gpus[k.name()] = a.assignments.ranks[k].Launch.GPUs
		a.mu.Unlock()
	}

	measured := s.Sample(now, targets)
	shares := a.gpuShares.measure()
	for name, u := range measured {
		a.addGPUUse(&u, gpus[name])
		u.Share = shares[name]
		measured[name] = u
	}

	a.activities.look(now, measured)

	a.uses.mu.Lock()
	defer a.uses.mu.Unlock()

	a.uses.latest = measured
}

// name identifies the rank on this node.
func (k key) name() string { return string(k.run) + "/" + strconv.Itoa(k.rank) }

// addGPUUse adds what the driver said of the GPUs of a rank at the newest look.
func (a *Agent) addGPUUse(u *job.Use, gpus []int) {
	if len(gpus) == 0 {
		return
	}

	lacks := func(why string) {
		u.GPUs = nil
		u.Unmeasured = append(u.Unmeasured, job.Unmeasured{Resource: job.ResourceGPU, Why: why})
	}

	switch {
	case len(a.fakeGPUs) > 0:
		lacks("its GPUs are fake")
		return
	case a.machine == nil:
		lacks("the agent does not look at GPUs")
		return
	}

	known := a.machine.GPUUse()
	for _, index := range gpus {
		i := slices.IndexFunc(known, func(g job.GPUUse) bool { return g.Index == index })
		if i < 0 {
			lacks("the GPU driver does not say how busy its GPUs are")
			return
		}

		u.GPUs = append(u.GPUs, known[i])
	}
}

// addUse adds to a report what the running ranks use.
func (a *Agent) addUse(ranks []api.RankReport) {
	a.uses.mu.Lock()
	defer a.uses.mu.Unlock()

	for i := range ranks {
		if ranks[i].State == job.RunEnded {
			a.gpuShares.addEnded(&ranks[i])
		}

		if u, ok := a.uses.latest[key{ranks[i].Run, ranks[i].Rank}.name()]; ok && ranks[i].State != job.RunEnded {
			ranks[i].Use = &u
		}
	}
}
