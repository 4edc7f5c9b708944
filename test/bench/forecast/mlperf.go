package main

import (
	"cmp"
	"path/filepath"
	"slices"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
)

// quality is the goal of a benchmark, as its rules have it.
type quality struct {
	goal   float64
	rising bool
	since  string // the goal is that of rounds from this one
	other  bool   // it was not in the first study
}

// qualities are the goals by benchmark.
var qualities = map[string]quality{
	"resnet": {
		goal:   0.759,
		rising: true,
	},
	"bert":            {goal: 0.72, rising: true},
	"rnnt":            {goal: 0.058},
	"unet3d":          {goal: 0.908, rising: true},
	"dlrm":            {goal: 0.8025, rising: true},
	"dlrm_dcnv2":      {goal: 0.80275, rising: true},
	"minigo":          {goal: 0.5, rising: true},
	"gnn":             {goal: 0.72, rising: true},
	"llama2_70b_lora": {goal: 0.925},
	"gpt3":            {goal: 2.69},
	"ssd":             {goal: 0.34, rising: true, since: "v2.0", other: true},
	"gnmt":            {goal: 0.24, rising: true, other: true},
	"transformer":     {goal: 0.25, rising: true, other: true},
}

// perBenchmark are the runs of a benchmark that are taken at most.
const perBenchmark = 40

// readMLPerf reads evaluation curves over seconds: one run a system, ten benchmarks as one source and the others
// as another. A run is not shown those of its organisation, nor those on a system of the same name.
func readMLPerf(dir string) ([]sample, error) {
	dir = filepath.Join(dir, "mlperf-training")
	runs := map[string]*sample{}

	columns := []string{
		"run_id",
		"round",
		"org",
		"system",
		"benchmark",
		"status",
		"accelerator",
		"framework",
		"global_batch_size",
		"nodes",
		"accel_per_node",
	}

	err := table(filepath.Join(dir, "runs.csv.gz"), columns, func(cells []string) error {
		benchmark := cells[4]
		q, ok := qualities[benchmark]
		if !ok || cells[5] != "success" || cells[1] < q.since {
			return nil
		}

		s := &sample{
			source:         "mlperf",
			name:           benchmark + " " + cells[2] + " " + cells[3] + " " + cells[1],
			excludedSystem: cells[3],
		}

		if q.other {
			s.source = "mlperf_other"
		}

		s.Group = cells[2]

		// What a submitter wrote as a number is not always one; then it is unknown.
		batch, _ := number(cells[8])
		nodes, _ := number(cells[9])
		each, _ := number(cells[10])
		s.Features = history.Features{
			Name:      benchmark,
			Owner:     cells[2],
			Task:      benchmark,
			Model:     benchmark,
			Metric:    "eval_accuracy",
			GPU:       cells[6],
			Framework: cells[7],
			Batch:     batch,
			Nodes:     nodes,
			GPUs:      nodes * each,
		}

		s.Curve.Goal = curve.Goal{Value: q.goal, Rising: q.rising, Set: true}
		runs[cells[0]] = s

		return nil
	})
	if err != nil {
		return nil, err
	}

	var order []string

	err = table(filepath.Join(dir, "evals.csv.gz"), []string{"run_id", "t_s", "value"}, func(cells []string) error {
		s := runs[cells[0]]
		if s == nil {
			return nil
		}

		if len(s.Curve.X) == 0 {
			order = append(order, cells[0])
		}

		x, err := number(cells[1])
		if err != nil {
			return err
		}

		y, err := number(cells[2])
		s.add(x, y)

		return err
	})
	if err != nil {
		return nil, err
	}

	byBenchmark := map[string][]sample{}

	seen := map[string]bool{}
	for _, id := range order {
		s := runs[id]
		if !seen[s.name] && len(s.Curve.X) >= 4 && s.finish() {
			seen[s.name] = true
			byBenchmark[s.Features.Task] = append(byBenchmark[s.Features.Task], *s)
		}
	}

	var list []sample
	for _, of := range byBenchmark {
		list = append(list, evenly(of, perBenchmark)...)
	}

	slices.SortFunc(list, func(a, b sample) int { return cmp.Compare(a.name, b.name) })

	return list, nil
}

// evenly returns so many of a list, evenly over it in the order of names.
func evenly(list []sample, most int) []sample {
	slices.SortFunc(list, func(a, b sample) int { return cmp.Compare(a.name, b.name) })
	if len(list) <= most {
		return list
	}

	out := make([]sample, most)
	for i := range out {
		out[i] = list[i*len(list)/most]
	}

	return out
}
