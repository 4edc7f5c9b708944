// Package share decides how one GPU is cut among several jobs: which of them may stand together, what a cut
// leaves of the GPU for others, and how fast a job is beside another.
//
// It does no I/O and knows neither nodes nor policies. Package fleet keeps what is cut of each GPU, the policies
// choose where a job goes by Workload, and the agent's broker enforces what was promised.
package share

import (
	"fmt"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Cut is what one job has of a GPU, or asks for.
type Cut struct {
	Job   id.Job
	Owner id.User
	Class job.ShareClass
	Share float64   // of the time of the GPU, between 0 and 1
	Limit float64   // most of its time, also while nobody else wants it; 0 for no limit
	Cap   job.Bytes // of its memory; 0 for as much as the share
	MPS   bool      // through NVIDIA MPS, where jobs share faults
	Kind  string    // what the job runs; "" if unknown
}

// GPU is a GPU with what is cut of it.
type GPU struct {
	Memory job.Bytes // 0 if unknown
	Cuts   []Cut
}

const (
	// Reserve is the memory of a GPU that no job gets: for the driver, and for what contexts need beyond the caps.
	Reserve job.Bytes = 1 << 30
	// leastCap is the least memory of a job that does not say how much it needs: a context with its libraries takes 0.5
	// to 0.75 GiB of it.
	leastCap job.Bytes = 1 << 30
	// MaxCuts is how many jobs may share a GPU.
	MaxCuts = 32
	// tiny is less than any share that a job can ask for.
	tiny = 1e-6
)

// CapOn returns how much memory of a GPU the job gets, 0 if the memory of the GPU is unknown and the job does not say.
func (c *Cut) CapOn(memory job.Bytes) job.Bytes {
	if c.Cap > 0 || memory <= Reserve {
		return c.Cap
	}

	return max(job.Bytes(c.Share*float64(memory-Reserve)), leastCap)
}

// bound returns the most of the GPU's time that the job can use while others want it, too.
func (c *Cut) bound() float64 {
	if c.Limit > 0 {
		return c.Limit
	}

	return 1
}

// Held returns the sum of the shares.
func (g *GPU) Held() float64 {
	sum := 0.0
	for i := range g.Cuts {
		sum += g.Cuts[i].Share
	}

	return sum
}

// Obstacle is why a job cannot get a cut of a GPU.
type Obstacle int

// The obstacles.
const (
	NoObstacle Obstacle = iota
	BadShare            // what is asked for is not a share of one GPU
	NoTime              // less of its time is left
	NoMemory            // less of its memory is left
	Crowded             // as many jobs as can share a GPU do
	Faults              // with MPS the fault of one job ends the others, and they belong to other owners
	Starves             // a guaranteed job without a limit would leave a normal one less than its share
)

// Fits reports whether a job can get a cut beside those that there are. All rules of standing together are here:
//
//   - the shares add up to at most the whole GPU;
//   - the memory caps and the reserve add up to at most its memory, so that nobody runs out of it for others;
//   - guaranteed jobs are served before normal ones. So that these get their shares, a guaranteed job beside a normal
//     one needs a limit, and the limits and the shares of the normal ones fit together;
//   - with MPS all jobs use it and belong to one owner;
//   - at most MaxCuts jobs.
//
// A job with several GPUs never shares one: its processes wait for each other, and two such jobs could wait
// forever. It has no cut, and so this is not asked about it.
func (g *GPU) Fits(c *Cut) Obstacle {
	if !(c.Share > 0 && c.Share < 1) || c.Limit != 0 && (c.Limit < c.Share || c.Limit > 1) || c.Cap < 0 {
		return BadShare
	}

	if len(g.Cuts) >= MaxCuts {
		return Crowded
	}

	// The sums are taken in one order, whoever comes last: else rounding would let two jobs in by one order alone.
	held, caps, bounds, normal, guaranteed := 0.0, job.Bytes(0), 0.0, 0.0, 0

	add := func(o *Cut) {
		held += o.Share
		caps += o.CapOn(g.Memory)

		switch o.Class {
		case job.ShareGuaranteed:
			guaranteed++
			bounds += o.bound()
		case job.ShareOpportunistic:
		case job.ShareNormal, "":
			normal += o.Share
		}
	}

	for i := range g.Cuts {
		if o := &g.Cuts[i]; (o.MPS || c.MPS) && (o.MPS != c.MPS || o.Owner != c.Owner) {
			return Faults
		}

		add(&g.Cuts[i])
	}

	add(c)

	switch {
	case held > 1+tiny:
		return NoTime
	case g.Memory > 0 && caps+Reserve > g.Memory:
		return NoMemory
	case guaranteed > 0 && normal > 0 && bounds+normal > 1+tiny:
		return Starves
	}

	return NoObstacle
}

// Explain says in words why a job cannot get a cut, "" if it can.
func (g *GPU) Explain(c *Cut) string {
	switch g.Fits(c) {
	case BadShare:
		return fmt.Sprintf("%s of a GPU cannot be cut", humanize.Percent(c.Share))
	case NoTime:
		return fmt.Sprintf("%s needed, %s left beside %s", humanize.Percent(c.Share), humanize.Percent(max(1-g.Held(), 0)),
			Names(g.Cuts))
	case NoMemory:
		used := job.Bytes(0)
		for i := range g.Cuts {
			used += g.Cuts[i].CapOn(g.Memory)
		}

		return fmt.Sprintf("%s of memory needed, %s left beside %s", c.CapOn(g.Memory),
			max(g.Memory-Reserve-used, 0), Names(g.Cuts))
	case Crowded:
		return fmt.Sprintf("%d jobs share it already", len(g.Cuts))
	case Faults:
		return "with MPS the fault of one job ends the others, and " + Names(g.Cuts) + " could be among them"
	case Starves:
		return "a guaranteed job without a limit would leave normal ones beside it less than their share"
	case NoObstacle:
	}

	return ""
}

// Names names the jobs that share a GPU: j1 (ada, 50 %) and j2 (bob, 25 %).
func Names(cuts []Cut) string {
	list := make([]string, len(cuts))
	for i := range cuts {
		list[i] = string(cuts[i].Job)
		if cuts[i].Owner != "" {
			list[i] += " (" + string(cuts[i].Owner) + ", " + humanize.Percent(cuts[i].Share) + ")"
		}
	}

	const shown = 3

	return humanize.ListUpTo(shown, list...)
}
