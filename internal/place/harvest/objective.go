package harvest

import (
	"slices"

	"trainyard/internal/formula"
)

// Objective is what a job on so many nodes is worth, for each second.
type Objective struct {
	Name    string
	Formula string
	Means   string
}

// Objectives lists those that have a name.
func Objectives() []Objective {
	return []Objective{
		{"throughput", "throughput", "units of work per second; fast models win, so it is for jobs of one kind"},
		{"speedup", "speedup", "how many times faster than on one GPU; jobs of any kind compare"},
		{"credit", "weight * speedup", "the same, by the weight that the job's priority gives it"},
		{"fair", "weight * speedup / (1 + served_gpu_h)",
			"the same, less the more GPU time a job has had: shares even out in proportion to the weights"},
	}
}

// Name is something that a formula can look at.
type Name struct{ Name, Means string }

// The places of the names' values.
const (
	atN = iota
	atNodes
	atNowN
	atThroughput
	atSpeedup
	atPriority
	atWeight
	atRemaining
	atRemainingH
	atSlackH
	atPrice
	atWaitedH
	atServedGPUH
	atJob
	names
)

// Names lists what an objective can look at.
func Names() []Name {
	return []Name{
		{"n", "GPUs at this size"},
		{"nodes", "nodes at this size"},
		{"now_n", "GPUs it has now, 0 if it waits"},
		{"throughput", "units of work per second at this size"},
		{"speedup", "times faster than on one GPU"},
		{"priority", "0 to 100, as submitted"},
		{"weight", "1 + priority / 10"},
		{"remaining", "units of work left, 0 if that is not known"},
		{"remaining_h", "hours left at this size, 0 if that is not known"},
		{
			"slack_h",
			"hours between its end at this size and its deadline; less than 0 if it will be late, 1e6 without a deadline",
		},
		{"price", "money for an hour of one GPU"},
		{"waited_h", "hours since it was submitted"},
		{"served_gpu_h", "GPU-hours it has had"},
		{"job", "its number, as in j1041"},
	}
}

// sizeless are the names that a condition across jobs can look at: those that do
// not depend on the size.
func sizeless() []string {
	return []string{"now_n", "priority", "weight", "remaining", "price", "waited_h", "served_gpu_h", "job"}
}

func namesOf() []string {
	list := make([]string, 0, names)
	for _, n := range Names() {
		list = append(list, n.Name)
	}

	return list
}

// compile reads an objective: one that has a name, or a formula.
func compile(text string) (*formula.Program, error) {
	all := Objectives()
	if at := slices.IndexFunc(all, func(o Objective) bool { return o.Name == text }); at >= 0 {
		text = all[at].Formula
	}

	return formula.Compile(text, namesOf())
}
