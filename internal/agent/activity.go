package agent

import (
	"io"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// From how much on a rank counts as active. An idle shell or notebook server uses a hundredth of a CPU, and a driver
// may show a GPU as busy for a moment that somebody looks at.
const (
	activeCPUs = 0.1  // on average since the measurement before
	activeGPU  = 0.05 // share of the time in which one of its GPUs worked
)

// activities is when the ranks of this node were last active: something went through a tunnel to them, or they used
// CPUs or GPUs. An agent that was restarted knows nothing of what was before, and counts that as activity.
type activities struct {
	mu    sync.Mutex
	ranks map[string]*activity // by name of the rank; of those that run
}

// activity is what is known of a rank.
type activity struct {
	last     time.Time // when it was last active
	use      job.Use   // as last measured
	measured bool      // it is known how much CPU time it uses
}

// look takes in what the ranks use. Those that are not in it do not run any more.
func (a *activities) look(now time.Time, uses map[string]job.Use) {
	a.mu.Lock()
	defer a.mu.Unlock()

	ranks := make(map[string]*activity, len(uses))

	for name := range uses {
		u := uses[name]
		known, ok := a.ranks[name]
		if !ok {
			known = &activity{last: now, use: u}
		}

		if active(&known.use, &u) {
			known.last = now
		}

		known.use, known.measured = u, u.Measures(job.ResourceCPU)
		ranks[name] = known
	}

	a.ranks = ranks
}

// active reports whether a rank did something between two measurements.
func active(before, now *job.Use) bool {
	if seconds := now.At.Sub(before.At).Seconds(); seconds > 0 && now.Measures(job.ResourceCPU) &&
		now.CPUSeconds-before.CPUSeconds >= activeCPUs*seconds {
		return true
	}

	for _, g := range now.GPUs {
		if g.Busy >= activeGPU {
			return true
		}
	}

	return false
}

// touch says that something went through a tunnel to a rank.
func (a *activities) touch(now time.Time, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if known := a.ranks[name]; known != nil {
		known.last = now
	}
}

// add adds to a report for how long the running ranks were idle. Of a rank whose CPU time cannot be measured nothing is
// said: it may be at work.
func (a *activities) add(now time.Time, ranks []api.RankReport) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for i := range ranks {
		known := a.ranks[key{ranks[i].Run, ranks[i].Rank}.name()]
		if known == nil || !known.measured || ranks[i].State != job.RunRunning {
			continue
		}

		seconds := int64(max(now.Sub(known.last), 0) / time.Second)
		ranks[i].Idle = &seconds
	}
}

// noticed is a reader that says when something was read.
type noticed struct {
	io.Reader
	touch func()
}

func (n noticed) Read(buf []byte) (int, error) {
	count, err := n.Reader.Read(buf)
	if count > 0 {
		n.touch()
	}

	return count, err
}
