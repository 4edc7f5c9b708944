package burst

import (
	"math"
	"slices"
)

// outcome is what a way to run a window comes to. Times are hours.
type outcome struct {
	cloud       float64 // GPU-hours
	mean, p99   float64 // completion
	wait        float64 // mean
	longest     float64 // wait
}

// seat is where and when a task ran on the yard's own nodes.
type seat struct {
	task  int
	node  int
	gpus  int
	start float64
}

// summary adds up ends.
type summary struct {
	tasks      int
	wait, most float64
	completion []float64
}

func newSummary(w *window) *summary { return &summary{tasks: len(w.tasks)} }

func (s *summary) ended(_ *task, wait, completion float64) {
	s.wait += wait
	s.most = math.Max(s.most, wait)
	s.completion = append(s.completion, completion)
}

func (s *summary) outcome(cloud float64) outcome {
	o := outcome{cloud: cloud, longest: s.most}
	n := float64(len(s.completion))
	if n == 0 {
		return o
	}
	slices.Sort(s.completion)
	for _, c := range s.completion {
		o.mean += c / n
	}
	o.wait = s.wait / n
	o.p99 = s.completion[int(math.Round(0.99*(n-1)))]
	return o
}
