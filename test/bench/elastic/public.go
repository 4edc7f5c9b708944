package elastic

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/information"
)

// public returns the tables on public workloads, and which are missing.
func public(o Options) (sections []*section, missing []string) {
	for _, p := range []struct {
		files []string // that it needs
		make  func(Options) *section
	}{
		{[]string{phillyFile}, philly},
		{[]string{gavelTables, gavelJCT}, gavelMean},
		{[]string{gavelTables, gavelEnd}, gavelMakespan},
		{[]string{polluxTables, "pollux/workloads/workload-6.csv"}, pollux},
		{[]string{polluxTables, "pollux/workloads/workload-1.csv", polluxResults}, polluxAll},
		{[]string{polluxTables, siaTables, "sia/workloads/philly/workload-1.csv"}, sia},
	} {
		at := slices.IndexFunc(p.files, func(f string) bool {
			_, err := os.Stat(filepath.Join(o.Data, f))
			return err != nil
		})

		if at >= 0 {
			missing = append(missing, filepath.Join(o.Data, p.files[at])+" is not here")
			continue
		}

		sections = append(sections, p.make(o))
	}

	return sections, missing
}

// nodes are so many machines with so many GPUs of a kind.
func nodes(kind string, count, gpus int) []fleet.Node {
	list := make([]fleet.Node, count)
	for i := range list {
		list[i] = fleet.Node{
			ID:        id.Node(fmt.Sprintf("%s-%03d", kind, i)),
			Class:     fleet.Local,
			Inventory: fleet.Inventory{CPUs: 1 << 30, Memory: 1 << 50},
		}

		for g := range gpus {
			list[i].Inventory.GPUs = append(
				list[i].Inventory.GPUs,
				gpuspec.Describe(fleet.GPU{Index: g, Model: kind, Memory: memory(kind)}),
			)
		}
	}

	return list
}

// memory is that of a GPU, by which its specification is found.
func memory(kind string) job.Bytes {
	switch kind {
	case "A100":
		return 40 << 30
	case "RTX2080Ti":
		return 11 << 30
	case "K80":
		return 12 << 30
	}

	return 16 << 30
}

// input opens a workload; a quick run takes only so many of its jobs.
func input(o Options, file, format string, opts trace.Options, quick int) (sim.Jobs, error) {
	r, err := trace.Open(filepath.Join(o.Data, file), format, opts)
	if err != nil {
		return nil, err
	}
	if !o.Quick {
		return r, nil
	}

	jobs, err := trace.Collect(trace.First(r, quick))
	if err != nil {
		return nil, err
	}

	return trace.List(jobs), r.Close()
}

const phillyFile = "philly/philly_jobs.csv.gz"

// philly is one virtual cluster of Philly on 64 GPUs that are counted only.
func philly(o Options) *section {
	s := &section{
		title: "Philly, virtual cluster 6c71a0: 9,953 jobs that cannot change, 64 GPUs",
		notes: []string{
			"Placement by counting: one node of 64 GPUs. Stops and starts cost nothing, as in the Tiresias simulator.",
			"Jobs of the same second are in the order of the reference run; in the order of the file strict FIFO has a mean " +
				"of 162,324 s.",
			"Known: the owner's estimate is the true run time. Otherwise run times are unknown.",
		},
	}

	const told = "run times known"
	for _, r := range []struct{ policy, note string }{
		{"fifo-strict", ""}, {"fifo-fit", ""}, {"las", ""}, {"goodput", ""}, {"srtf", told}, {"srsf", told},
		{"goodput", told},
	} {
		s.rows = append(s.rows, &row{input: "6c71a0", policy: r.policy, note: r.note, config: func() (sim.Config, error) {
			jobs, err := input(o, phillyFile, "philly", trace.Options{Cluster: "6c71a0", Exact: r.note == told}, 400)
			if err != nil {
				return sim.Config{}, err
			}

			all, err := trace.Collect(jobs)

			return sim.Config{Nodes: nodes("P100", 1, 64), Jobs: trace.List(asReference(all))}, err
		}})
	}

	s.rows = append(
		s.rows,
		theirs("6c71a0", "fifo", 162504, 0, 7749024),
		theirs("6c71a0", "dlas-gpu", 22631, 497127, 0),
		theirs("6c71a0", "shortest-gpu", 19614, 324308, 0),
	)

	s.figures = func(rows []*row, out map[string]float64) {
		out["fifo_vc6c71a0_s"] = find(rows, "fifo-strict", "").mean
		out["las_vc6c71a0_s"] = find(rows, "las", "").mean
		out["goodput_untold_vc6c71a0_s"] = find(rows, "goodput", "").mean

		best := find(rows, "goodput", told).mean
		for _, r := range rows {
			if r.result != nil {
				best = min(best, r.mean)
			}
		}

		out["best_vc6c71a0_s"] = best
	}

	return s
}

const (
	gavelTables = "gavel/physical_cluster_throughputs.json.gz"
	gavelJCT    = "gavel/traces/physical_cluster/max_min_fairness.trace"
	gavelEnd    = "gavel/traces/physical_cluster/minimize_makespan.trace"
)

// gavelNodes are 8 V100, 16 P100 and 24 K80, on one node for each kind or on
// nodes of four.
func gavelNodes(each int) []fleet.Node {
	var list []fleet.Node
	for _, k := range []struct {
		kind string
		gpus int
	}{{"V100", 8}, {"P100", 16}, {"K80", 24}} {
		if each == 0 {
			list = append(list, nodes(k.kind, 1, k.gpus)...)
		} else {
			list = append(list, nodes(k.kind, k.gpus/each, each)...)
		}
	}

	return list
}

// gavelStart is what a start costs in the rows in which it costs something.
const gavelStart = 30 * time.Second

// gavelCase is how a Gavel trace is run.
type gavelCase struct {
	knows gavelKnowledge
	start time.Duration // that each start costs
	apart bool          // nodes of 4, slower when spread
}

// gavelKnowledge is what a policy knows, from everything down to nothing.
type gavelKnowledge int

const (
	stepsKnown    gavelKnowledge = iota // and speeds
	stepsUnknown                        // but speeds: as Gavel's max_min_fairness_perf
	speedsUnknown                       // and steps; it goes by the TFLOPS of the GPU models
	modelsAlike                         // not even those: as Gavel's max_min_fairness
)

// note says how the run differs from the others.
func (c gavelCase) note() string {
	note := []string{
		"steps known", "steps unknown", "steps and speeds unknown", "steps, speeds and GPU models unknown",
	}[c.knows]
	if c.start > 0 {
		note += fmt.Sprintf(", each start %.0f s", c.start.Seconds())
	}

	if c.apart {
		note += ", nodes of 4, slower when spread"
	}

	return note
}

func gavelRow(o Options, file, policy string, c gavelCase) *row {
	return &row{input: filepath.Base(file), policy: policy, note: c.note(), config: func() (sim.Config, error) {
		opts, each := trace.Options{Tables: filepath.Join(o.Data, gavelTables), Start: -1}, 0
		if c.start > 0 {
			opts.Start = c.start
		}

		if c.apart {
			opts.PerNode, each = 4, 4
		}

		jobs, err := input(o, file, "gavel", opts, 40)
		if err == nil && c.knows >= stepsUnknown {
			jobs, err = silent(jobs, c.knows >= speedsUnknown)
		}

		cluster := gavelNodes(each)
		if c.knows == modelsAlike {
			forgetSpecifications(cluster)
		}

		return sim.Config{Nodes: cluster, Jobs: jobs}, err
	}}
}

// forgetSpecifications leaves of each GPU only its model and memory.
func forgetSpecifications(cluster []fleet.Node) {
	for i := range cluster {
		for k, g := range cluster[i].Inventory.GPUs {
			cluster[i].Inventory.GPUs[k] = fleet.GPU{Index: g.Index, Model: g.Model, Memory: g.Memory}
		}
	}
}

var gavelNotes = []string{
	"Each job has a fixed number of GPUs and a measured speed on each kind; it may change its kind at any time.",
	"As in Gavel's simulator GPUs are only counted (one node for each kind) and stops and starts cost nothing, unless " +
		"said otherwise.",
}

// gavelMean is the trace with which Gavel measured mean completion under its rules for fairness.
func gavelMean(o Options) *section {
	told, untold, ignorant := gavelCase{}, gavelCase{knows: stepsUnknown}, gavelCase{knows: speedsUnknown}
	alike := gavelCase{knows: modelsAlike}

	s := &section{
		title:     "Gavel, continuous trace: 96 jobs on 8 V100, 16 P100 and 24 K80",
		notes:     gavelNotes,
		knowledge: []information.Comparison{gavelFairness(), gavelBlind()},
	}

	for _, r := range []struct {
		policy string
		gavelCase
	}{
		{"goodput-fair", untold},
		{"goodput-fair", gavelCase{knows: stepsUnknown, start: gavelStart}},
		{"goodput-fair", gavelCase{knows: stepsUnknown, apart: true}},
		{"goodput-fair", alike}, {"goodput-fair", ignorant}, {"las", alike}, {"fifo", alike},
		{"goodput", untold}, {"goodput", told}, {"goodput", gavelCase{start: gavelStart}},
		{"goodput", gavelCase{apart: true}}, {"srtf", told}, {"afs-l", told},
	} {
		s.rows = append(s.rows, gavelRow(o, gavelJCT, r.policy, r.gavelCase))
	}

	s.rows = append(s.rows,
		theirs(filepath.Base(gavelJCT), "max_min_fairness", 5.20*3600, 0, 19.70*3600),
		theirs(filepath.Base(gavelJCT), "max_min_fairness_perf", 3.82*3600, 0, 17.11*3600))

	s.figures = func(rows []*row, out map[string]float64) {
		mean := func(policy string, c gavelCase) float64 { return find(rows, policy, c.note()).mean / 3600 }

		out["gavel_fair_jct_h"] = mean("goodput-fair", untold)
		out["gavel_fair_jct_restart_h"] = mean("goodput-fair", gavelCase{knows: stepsUnknown, start: gavelStart})
		out["gavel_fair_jct_nodes_h"] = mean("goodput-fair", gavelCase{knows: stepsUnknown, apart: true})
		out["gavel_fair_jct_alike_h"] = mean("goodput-fair", alike)
		out["gavel_fair_jct_tflops_h"] = mean("goodput-fair", ignorant)
		out["gavel_jct_untold_h"] = mean("goodput", untold)
		out["gavel_jct_las_h"] = mean("las", alike)
		out["gavel_jct_h"] = mean("goodput", told)
		out["gavel_jct_restart_h"] = mean("goodput", gavelCase{start: gavelStart})
		out["gavel_jct_nodes_h"] = mean("goodput", gavelCase{apart: true})
	}

	return s
}

// gavelMakespan is the trace with which Gavel measured the last end.
func gavelMakespan(o Options) *section {
	told, restart, apart := gavelCase{}, gavelCase{start: gavelStart}, gavelCase{apart: true}

	s := &section{
		title:     "Gavel, static trace: 100 jobs at once on 8 V100, 16 P100 and 24 K80",
		notes:     slices.Clone(gavelNotes),
		knowledge: []information.Comparison{gavelLastEnd()},
	}

	for _, policy := range []string{"fifo", "srtf", "goodput", "goodput-makespan"} {
		s.rows = append(s.rows, gavelRow(o, gavelEnd, policy, told))
	}

	s.rows = append(
		s.rows,
		gavelRow(o, gavelEnd, "goodput-makespan", apart),
		gavelRow(o, gavelEnd, "goodput-makespan", restart),
		theirs(filepath.Base(gavelEnd), "min_total_duration", 0, 0, 20.71*3600),
		theirs(filepath.Base(gavelEnd), "min_total_duration_perf", 0, 0, 17.40*3600),
		theirs(filepath.Base(gavelEnd), "gandiva", 0, 0, 20.93*3600),
	)

	least := 0.0
	if cfg, err := gavelRow(o, gavelEnd, "", told).config(); err == nil { // an error shows in the rows
		least, err = bound(cfg.Nodes, cfg.Jobs)
		if err == nil {
			s.notes = append(
				s.notes,
				fmt.Sprintf(
					"No plan can end before %.2f h: then every kind is busy all the time with what it is best at.",
					least/3600,
				),
			)
		}
	}

	s.figures = func(rows []*row, out map[string]float64) {
		out["gavel_makespan_bound_h"] = least / 3600
		out["gavel_makespan_h"] = find(rows, "goodput-makespan", told.note()).makespan / 3600
		out["gavel_makespan_restart_h"] = find(rows, "goodput-makespan", restart.note()).makespan / 3600
		out["gavel_makespan_nodes_h"] = find(rows, "goodput-makespan", apart.note()).makespan / 3600
	}

	return s
}

const (
	polluxTables  = "pollux/traces"
	siaTables     = "sia/traces"
	polluxResults = "pollux/results-jobload/pollux-1.0/summary.json"
)

// How the jobs of Pollux and Sia workloads are taken.
const (
	adaptive = "true speeds and work known"
	rigid    = "true speeds and work known, owner's GPUs and batch"
	untold   = "true speeds known, work unknown"
	learned  = "speeds learned, work unknown"
)

// polluxRow is a run of a Pollux or Sia workload.
func polluxRow(o Options, file, policy, note string, cluster []fleet.Node, tables ...string) *row {
	for i := range tables {
		tables[i] = filepath.Join(o.Data, tables[i])
	}

	folders := tables[0]
	for _, t := range tables[1:] {
		folders += string(filepath.ListSeparator) + t
	}

	return &row{
		input:  filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file),
		policy: policy,
		note:   note,
		config: func() (sim.Config, error) {
			opts := trace.Options{Tables: folders}
			switch note {
			case rigid:
				opts.Mode = trace.ModeRigid
			case learned:
				opts.Mode = trace.ModeLearned
			}

			jobs, err := input(o, file, "pollux", opts, 25)
			if err == nil && note == untold {
				jobs, err = silent(jobs, false)
			}

			return sim.Config{Nodes: cluster, Jobs: jobs}, err
		},
	}
}

// silent are the same jobs, whose owners do not say how much work they are, nor, if they say nothing, how fast.
func silent(jobs sim.Jobs, nothing bool) (sim.Jobs, error) {
	all, err := trace.Collect(jobs)
	if err != nil {
		return nil, err
	}

	for i, j := range all {
		quiet, spec := *j, *j.Spec
		quiet.Speed = spec.Speed
		spec.Speed = job.NewSpeed(0, time.Duration(quiet.Speed.Start), time.Duration(quiet.Speed.Save), quiet.Speed.Rates...)
		if nothing {
			spec.Speed = nil
		}

		quiet.Spec = &spec
		all[i] = &quiet
	}

	return trace.List(all), nil
}

// elasticPolicies are those that choose counts; a quick run tries two of them.
func elasticPolicies(o Options) []string {
	if o.Quick {
		return []string{"afs-l", "goodput"}
	}

	return append(otherRules(), "goodput")
}

// otherRules are the elastic policies that are beside goodput in the tables.
func otherRules() []string {
	return []string{"elastic-fifo", "elastic-srjf", "elastic-tiresias", "ffdl", "afs-l", "equal-share"}
}

// pollux is the workload on which the three policies of Pollux's simulator were run.
func pollux(o Options) *section {
	const file = "pollux/workloads/workload-6.csv"
	s := &section{
		title: "Pollux, workload 6: 160 jobs in 8 hours on 16 nodes of 4 T4",
		notes: []string{
			"Measured step times and gradient noise; jobs choose their batch size. Each start costs 30 s, as in Pollux's " +
				"simulator.",
			"First row: as in Pollux, nobody knows a speed or the work of a job; a job reports its progress, its batch, the " +
				"time of a step and the noise of its gradients on the GPUs that it has, and chooses its batch by that.",
			"Where true speeds are known, the policy is told the speed on every number of GPUs in each epoch.",
		},
		knowledge: []information.Comparison{polluxKnowledge()},
	}

	s.rows = append(s.rows, polluxRow(o, file, "goodput", learned, nodes("T4", 16, 4), polluxTables))
	for _, policy := range elasticPolicies(o) {
		s.rows = append(s.rows, polluxRow(o, file, policy, adaptive, nodes("T4", 16, 4), polluxTables))
	}

	s.rows = append(
		s.rows,
		polluxRow(o, file, "goodput", untold, nodes("T4", 16, 4), polluxTables),
		polluxRow(o, file, "las", rigid, nodes("T4", 16, 4), polluxTables),
		polluxRow(o, file, "goodput", rigid, nodes("T4", 16, 4), polluxTables),
	)

	name := s.rows[0].input
	s.rows = append(
		s.rows,
		theirs(name, "pollux", 2446.13, 0, 0),
		theirs(name, "tiresias", 3469.69, 52573, 0),
		theirs(name, "optimus", 5301.88, 48185, 0),
	)

	s.figures = func(rows []*row, out map[string]float64) {
		out["pollux_w6_learned_s"] = find(rows, "goodput", learned).mean
		out["pollux_w6_s"] = find(rows, "goodput", adaptive).mean
		out["pollux_w6_untold_s"] = find(rows, "goodput", untold).mean
		out["pollux_w6_rigid_s"] = find(rows, "goodput", rigid).mean
	}

	return s
}

// polluxAll is every workload of which the authors of Pollux published a result.
func polluxAll(o Options) *section {
	s := &section{
		title:     "Pollux, the shared workloads 1 to 6 on 16 nodes of 4 T4",
		knowledge: []information.Comparison{polluxKnowledge()},
	}
	published, err := readResults(filepath.Join(o.Data, polluxResults))

	last := 6
	if o.Quick {
		last = 2
	}

	for n := 1; n <= last; n++ {
		name := fmt.Sprintf("workload-%d", n)
		for _, note := range []string{learned, adaptive} {
			s.rows = append(
				s.rows,
				polluxRow(o, "pollux/workloads/"+name+".csv", "goodput", note, nodes("T4", 16, 4), polluxTables),
			)
		}

		if err == nil {
			s.rows = append(s.rows, theirs("workloads/"+name+".csv", "pollux", published[name], 0, 0))
		}
	}

	s.figures = func(rows []*row, out map[string]float64) {
		var ratios, fair, means []float64 // fair: with what Pollux knows
		for i, r := range rows {
			if r.result == nil {
				if r.mean > 0 {
					fair = append(fair, rows[i-2].mean/r.mean)
					ratios = append(ratios, rows[i-1].mean/r.mean)
				}
			} else if r.note == adaptive {
				means = append(means, r.mean)
			}
		}

		if len(fair) > 0 {
			out["pollux_ratio_learned"], out["pollux_ratio_learned_ci"] = estimate(fair)
		}

		out["pollux_mean_s"], out["pollux_mean_ci_s"] = estimate(means)
		if len(ratios) > 0 {
			out["pollux_ratio_worst"] = slices.Max(ratios)
			out["pollux_ratio"], out["pollux_ratio_ci"] = estimate(ratios)
		}
	}

	return s
}

// readResults reads the mean completion times that the authors of Pollux published.
func readResults(file string) (map[string]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	var results struct {
		Means map[string]float64 `json:"avgs"`
	}

	return results.Means, json.Unmarshal(text, &results)
}

// sia is the workload on which Sia's simulator was run, and the others that are shared.
func sia(o Options) *section {
	const first = "sia/workloads/philly/workload-1.csv"
	cluster := slices.Concat(nodes("T4", 6, 4), nodes("A100", 2, 8), nodes("RTX2080Ti", 3, 8))

	s := &section{
		title: "Sia, Philly workloads: 160 jobs in 8 hours on 6 nodes of 4 T4, 2 of 8 A100 and 3 of 8 RTX 2080 Ti",
		notes: []string{
			"As above, with the start costs by application that Sia's simulator has (15 s to 250 s), and as much slower than " +
				"measured as it makes jobs (1.2 to 1.8 times).",
			"Sia is told how fast an application is on one GPU of each model; " +
				"our first row assumes speeds in proportion to TFLOPS until the job has run on the model.",
			"The authors publish a mean of 0.6 h with a deviation of 0.1 h over eight workloads, of which six are shared.",
		},
		knowledge: []information.Comparison{siaKnowledge()},
	}

	s.rows = append(s.rows, polluxRow(o, first, "goodput", learned, cluster, siaTables, polluxTables))
	for _, policy := range elasticPolicies(o) {
		s.rows = append(s.rows, polluxRow(o, first, policy, adaptive, cluster, siaTables, polluxTables))
	}

	s.rows = append(s.rows, polluxRow(o, first, "goodput", untold, cluster, siaTables, polluxTables))
	name := s.rows[0].input
	s.rows = append(s.rows, theirs(name, "sia", 1966.5, 30753, 53640), theirs(name, "gavel", 6016.5, 101587, 0))

	last := 6
	if o.Quick {
		last = 1
	}

	for n := 2; n <= last; n++ {
		s.rows = append(
			s.rows,
			polluxRow(
				o,
				fmt.Sprintf("sia/workloads/philly/workload-%d.csv", n),
				"goodput",
				adaptive,
				cluster,
				siaTables,
				polluxTables,
			),
		)
	}

	s.figures = func(rows []*row, out map[string]float64) {
		out["sia_w1_learned_s"] = find(rows, "goodput", learned).mean
		out["sia_w1_s"] = find(rows, "goodput", adaptive).mean
		out["sia_w1_untold_s"] = find(rows, "goodput", untold).mean

		var hours []float64
		for _, r := range rows {
			if r.result != nil && r.policy == "goodput" && r.note == adaptive {
				hours = append(hours, r.mean/3600)
			}
		}

		out["sia_mean_h"], out["sia_mean_ci_h"] = estimate(hours)
	}

	return s
}
