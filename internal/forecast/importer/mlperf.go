package importer

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/quantile"
)

// MLPerfRun is one run of the public MLPerf training results: a benchmark trained to its
// quality target on a system of an organisation.
type MLPerfRun struct {
	ID        int
	Round     string
	Org       string
	System    string
	Benchmark string
	Success   bool
	Goal      curve.Goal
	Features  history.Features
	Seconds   float64
}

// mlperf is what each benchmark trains, and when it is done. From the round named in
// since the later value holds.
var mlperf = []struct {
	benchmark, task, metric string
	params                  float64
	goal                    float64
	rising                  bool
	since                   string
	later                   float64
}{
	{"bert", "language", "mlm_accuracy", 340e6, 0.72, true, "", 0},
	{"dlrm", "recommendation", "auc", 0, 0.8025, true, "", 0},
	{"dlrm_dcnv2", "recommendation", "auc", 0, 0.80275, true, "", 0},
	{"gnmt", "translation", "bleu", 0, 24, true, "", 0},
	{"gnn", "graph", "accuracy", 0, 0.72, true, "", 0},
	{"gpt3", "language", "log_perplexity", 175e9, 2.69, false, "", 0},
	{"llama2_70b_lora", "language", "loss", 70e9, 0.925, false, "", 0},
	{"maskrcnn", "detection", "box_map", 0, 0.377, true, "", 0},
	{"minigo", "games", "win_rate", 0, 0.5, true, "", 0},
	{"resnet", "vision", "top1_accuracy", 25.6e6, 0.759, true, "", 0},
	{"rnnt", "speech", "wer", 0, 0.058, false, "", 0},
	{"ssd", "detection", "map", 0, 0.23, true, "v2.0", 0.34},
	{"transformer", "translation", "bleu", 0, 25, true, "", 0},
	{"unet3d", "segmentation", "dice", 0, 0.908, true, "", 0},
}

// ReadMLPerf reads the table of MLPerf training runs, plain or compressed, as jobs that have
// ended: one for each system, benchmark and round, as long as the median of its
// successful runs. Organisations are the groups.
func ReadMLPerf(r io.Reader) ([]history.Past, error) {
	runs, err := ReadMLPerfRuns(r)
	if err != nil {
		return nil, err
	}

	type key struct{ round, org, system, benchmark string }
	seconds := map[key][]float64{}
	first := map[key]*MLPerfRun{}
	var order []key

	for i := range runs {
		run := &runs[i]
		if !run.Success {
			continue
		}

		k := key{run.Round, run.Org, run.System, run.Benchmark}
		if first[k] == nil {
			first[k] = run
			order = append(order, k)
		}

		seconds[k] = append(seconds[k], run.Seconds)
	}

	past := make([]history.Past, len(order))
	for i, k := range order {
		run := first[k]
		past[i] = history.Past{
			Job: id.Job(fmt.Sprintf("mlperf-%d", run.ID)), Group: canonicalOrg(run.Org), Features: run.Features,
			Finished: rounds[run.Round], Seconds: quantile.Median(seconds[k]),
		}
	}

	return past, nil
}

// rounds is when the results of a round were published, to the month.
var rounds = map[string]time.Time{
	"v0.7": time.Date(2020, 7, 1, 0, 0, 0, 0, time.UTC),
	"v1.0": time.Date(2021, 6, 1, 0, 0, 0, 0, time.UTC),
	"v1.1": time.Date(2021, 12, 1, 0, 0, 0, 0, time.UTC),
	"v2.0": time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC),
	"v2.1": time.Date(2022, 11, 1, 0, 0, 0, 0, time.UTC),
	"v3.0": time.Date(2023, 6, 1, 0, 0, 0, 0, time.UTC),
	"v4.0": time.Date(2024, 6, 1, 0, 0, 0, 0, time.UTC),
}

// canonicalOrg gives an organisation that is written in several ways one name, so that it
// is not on both sides of a split.
func canonicalOrg(org string) string {
	org = strings.ToLower(org)
	for _, family := range []string{"dell", "nvidia", "intel", "habana"} {
		if strings.HasPrefix(org, family) {
			return strings.Replace(family, "habana", "intel", 1)
		}
	}

	if org == "gigacomputing" { // the new name of a part of the same house
		return "gigabyte"
	}

	return org
}

// ReadMLPerfRuns reads the same table run by run, the failed ones too.
func ReadMLPerfRuns(r io.Reader) ([]MLPerfRun, error) {
	t, err := openTable(r, "run_id", "round", "org", "system", "benchmark", "status", "minutes")
	if err != nil {
		return nil, err
	}

	var runs []MLPerfRun
	for {
		switch err := t.next(); {
		case errors.Is(err, io.EOF):
			return runs, nil
		case err != nil:
			return nil, err
		}

		number, err := strconv.Atoi(t.text("run_id"))
		if err != nil {
			return nil, t.bad("run_id", "is not a number")
		}

		minutes, ok := t.number("minutes")
		if !ok || minutes <= 0 {
			continue // a run that has no duration tells nothing
		}

		run := MLPerfRun{
			ID: number, Round: t.text("round"), Org: t.text("org"), System: t.text("system"), Benchmark: t.text("benchmark"),
			Success: t.text("status") == "success", Seconds: minutes * 60,
		}

		run.Features = mlperfFeatures(t, &run)
		runs = append(runs, run)
	}
}

// mlperfFeatures puts the columns of a run into the words of a job file.
func mlperfFeatures(t *table, run *MLPerfRun) history.Features {
	f := history.Features{
		Name:      run.Benchmark,
		Owner:     run.Org,
		Model:     run.Benchmark,
		Framework: oneFramework(t.text("framework")),
		GPU:       t.text("accelerator"),
	}

	for _, b := range mlperf {
		if b.benchmark != run.Benchmark {
			continue
		}

		run.Goal = curve.Goal{Value: b.goal, Rising: b.rising, Set: true}
		if b.since != "" && run.Round >= b.since {
			run.Goal.Value = b.later
		}

		f.Task = b.task
		f.Metric = b.metric
		f.Params = b.params
		f.Target = run.Goal.Value
	}

	f.Batch, _ = t.number("global_batch_size")
	f.Rate, _ = t.number("base_lr")
	f.Nodes, _ = t.number("nodes")
	if per, ok := t.number("accel_per_node"); ok && per > 0 {
		f.GPUs = per * max(f.Nodes, 1)
	}

	// Submitters add power limits to the name, and forget generations.
	f.GPU, _, _ = strings.Cut(strings.TrimPrefix(f.GPU, "N/A"), "(")
	f.GPU = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(f.GPU), "CTS"))
	if spec, ok := gpuspec.Find(f.GPU, 0); ok {
		f.GPU, f.TFLOPS = spec.Name, spec.Peak()
	}

	for _, name := range []string{"warmup", "weight_decay"} {
		if v, ok := t.number(name); ok {
			if f.Hyper == nil {
				f.Hyper = map[string]float64{}
			}

			f.Hyper[name] = v
		}
	}

	return f
}

// oneFramework returns the framework that a submission names if it names but one: of several, any may be
// the one that ran.
func oneFramework(text string) string {
	text = strings.ToLower(text)
	found := ""
	for _, name := range []string{"pytorch", "tensorflow", "mxnet", "jax", "mindspore", "paddlepaddle", "poplar",
		"hugectr", "nemo"} {
		if !strings.Contains(text, name) {
			continue
		}
		if found != "" {
			return ""
		}

		found = name
	}

	return found
}
