package trace

import (
	"strings"

	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// helios reads the job table of the Helios clusters. Jobs that never started
// have no duration and are left out.
type helios struct {
	*rows.Table
	opts  Options
	specs *specs
}

func openHelios(f *rows.File, opts Options) (*helios, error) {
	t, err := rows.WithHeader(f, ',', "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "submit_time", "duration")
	if err != nil {
		return nil, err
	}

	return &helios{Table: t, opts: opts, specs: newSpecs()}, nil
}

func (h *helios) job() (*sim.Job, error) {
	if err := h.Read(); err != nil {
		return nil, err
	}

	name := h.Text("job_id")
	owner := h.Text("user")
	cluster := h.Text("vc")
	gpus := h.Count("gpu_num")
	cpus := h.Count("cpu_num")
	nodes := max(h.Count("node_num"), 1)
	at := h.Wall("submit_time", calendar)

	switch {
	case h.Err != nil:
		return nil, h.Err
	case h.opts.Cluster != "" && h.opts.Cluster != cluster:
		return nil, errNothing
	case gpus == 0 && (cpus == 0 || !h.opts.CPUs):
		return nil, errNothing
	case unknown(h.Text("duration")), h.Number("duration") <= 0 && h.Err == nil:
		return nil, errNothing
	}

	lasts := h.Seconds("duration")

	if h.Err != nil {
		return nil, h.Err
	}

	a := ask{nodes: nodes, gpus: gpus / nodes}
	if gpus%nodes != 0 || h.opts.PerNode > 0 && a.gpus > h.opts.PerNode {
		a.nodes, a.gpus = split(gpus, h.opts.PerNode)
	}

	if h.opts.CPUs {
		a.cpus = job.CPUs(cpus) * 1000 / job.CPUs(a.nodes)
	}

	return &sim.Job{
		Name:     "helios-" + strings.Clone(name),
		At:       at,
		Owner:    user(owner),
		Duration: atLeastSecond(lasts),
		Spec:     h.specs.of(a),
	}, nil
}
