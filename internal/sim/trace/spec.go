package trace

import (
	"strings"
	"time"

	"trainyard/internal/job"
)

// command is what every job of a workload runs.
const command = "simulated"

// ask is what a job of a trace asks for, as far as most traces say it. Amounts
// are those of each of its nodes.
type ask struct {
	nodes  int
	gpus   int
	share  float64 // of one GPU; 0 for whole ones
	cpus   job.CPUs
	memory job.Bytes
	expect job.Duration
	kinds  string // of GPU, any of, joined by '|'
}

// maxSpecs bounds the memory for specs that jobs share.
const maxSpecs = 1 << 14

// specs makes the specs of jobs that know only how long they run. Jobs that ask
// for the same share one: a trace of a million jobs has a few thousand.
type specs struct{ known map[ask]*job.Spec }

func newSpecs() *specs { return &specs{map[ask]*job.Spec{}} }

// of returns the spec for what is asked. Every job can be stopped and goes on
// from where it was: traces do not say otherwise.
func (s *specs) of(a ask) *job.Spec {
	if spec, ok := s.known[a]; ok {
		return spec
	}

	if len(s.known) >= maxSpecs {
		clear(s.known)
	}

	spec := &job.Spec{
		Run: command, Place: job.PlaceAny, Objective: job.ObjectiveTime, Expect: a.expect,
		Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
		Resources: job.Resources{
			Nodes: exactly(max(a.nodes, 1)), GPUs: exactly(a.gpus), GPUShare: a.share, CPUs: a.cpus, Memory: a.memory,
		},
	}

	for k := range strings.SplitSeq(a.kinds, "|") {
		if k != "" {
			spec.Resources.GPU = append(spec.Resources.GPU, job.GPUKind{Model: strings.Clone(k)})
		}
	}

	a.kinds = strings.Clone(a.kinds) // not the line that it was cut from
	s.known[a] = spec

	return spec
}

// split divides GPUs among nodes: the fewest that can hold them, each with the
// same number, because a job asks the same of each of its nodes. A number that
// cannot be divided so takes more nodes: 12 of 8 is 6 on each of two, and 11 is 1
// on each of eleven.
func split(gpus, perNode int) (nodes, each int) {
	if perNode <= 0 || gpus <= perNode {
		return 1, gpus
	}

	for nodes = (gpus + perNode - 1) / perNode; gpus%nodes != 0; nodes++ {
		continue
	}

	return nodes, gpus / nodes
}

// exactly is the range of one number.
func exactly(n int) job.Range { return job.Range{Min: n, Max: n} }

// atLeastSecond is how long a job lasts that ended in the second in which it began.
func atLeastSecond(d time.Duration) time.Duration { return max(d, time.Second) }
