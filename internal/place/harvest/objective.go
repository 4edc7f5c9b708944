package harvest

import (
	"slices"

	"trainyard/internal/formula"
)

// Objective is the value of a job at a size, per second.
type Objective struct {
	Name    string
	Formula string
	Means   string
}

// Objectives lists the named objectives.
func Objectives() []Objective {
	return []Objective{
		{"throughput", "throughput", "units of work per second; comparable only between jobs of one kind"},
		{"speedup", "speedup", "speed relative to one GPU; comparable between jobs of any kind"},
		{"credit", "weight * speedup", "speedup times the weight of the job's priority"},
		{"fair", "weight * speedup / (1 + served_gpu_h)",
			"credit divided by the GPU time a job has had: shares converge in proportion to the weights"},
	}
}

// Name is a variable of an objective formula.
type Name struct{ Name, Means string }

// Indices of the variables' values.
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

// Names lists the variables that an objective may use.
func Names() []Name {
	return []Name{
		{"n", "GPUs at this size"},
		{"nodes", "nodes at this size"},
		{"now_n", "GPUs it has now, 0 if it is queued"},
		{"throughput", "units of work per second at this size"},
		{"speedup", "speed at this size relative to one GPU"},
		{"priority", "0 to 100, as submitted"},
		{"weight", "1 + priority / 10"},
		{"remaining", "remaining units of work, 0 if unknown"},
		{"remaining_h", "remaining hours at this size, 0 if unknown"},
		{
			"slack_h",
			"hours from its end at this size to its deadline; negative if late, 1e6 without a deadline",
		},
		{"price", "price of one GPU-hour in dollars"},
		{"waited_h", "hours since it was submitted"},
		{"served_gpu_h", "GPU-hours it has had"},
		{"job", "its number, e.g. 1041 for j1041"},
	}
}

// sizeless lists the variables that a condition across jobs may use: those that do not depend on
// the size.
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

// compile compiles an objective, given by its name or as a formula.
func compile(text string) (*formula.Program, error) {
	all := Objectives()
	if at := slices.IndexFunc(all, func(o Objective) bool { return o.Name == text }); at >= 0 {
		text = all[at].Formula
	}

	return formula.Compile(text, namesOf())
}
