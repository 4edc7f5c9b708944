package trace

import (
	"errors"
	"io"
	"math"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/nodes"
	"trainyard/internal/sim/trace/rows"
)

// paiColumns are the fields of the task table of Alibaba's PAI trace of 2020,
// which is published without a header.
var paiColumns = []string{
	"job_name",
	"task_name",
	"inst_num",
	"status",
	"start_time",
	"end_time",
	"plan_cpu",
	"plan_mem",
	"plan_gpu",
	"gpu_type",
}

// pai reads the task table of Alibaba's PAI trace. A task is a job of as many
// nodes as it has instances.
//
// The table does not know when a task was submitted: its start stands for that.
// plan_gpu is in hundredths of a GPU. Less than one whole GPU becomes one, with
// its share noted in the job file, because an allocation is whole GPUs; more is rounded
// up. Tasks that never ended are left out. The table is in no order: it is read
// with the option to sort.
type pai struct {
	*rows.Table
	opts  Options
	specs *specs
}

func openPAI(f *rows.File, opts Options) (*pai, error) {
	p := &pai{Table: rows.NewTable(f, ',', paiColumns...), opts: opts, specs: newSpecs()}
	line, err := f.Next()
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, err
	case !strings.HasPrefix(line, "job_name,"):
		f.Unread(line)
	}

	return p, nil
}

func (p *pai) job() (*sim.Job, error) {
	if err := p.Read(); err != nil {
		return nil, err
	}

	name := p.Text("job_name")
	task := p.Text("task_name")
	kind := p.Text("gpu_type")

	if p.Err == nil && (p.Text("start_time") == "" || p.Text("end_time") == "" || p.Text("inst_num") == "") {
		return nil, errNothing
	}

	start := p.Seconds("start_time")
	end := p.Seconds("end_time")
	instances := p.Count("inst_num")
	cpus := p.OrZero("plan_cpu")
	memory := p.OrZero("plan_mem")

	gpus := p.OrZero("plan_gpu")
	switch {
	case p.Err != nil:
		return nil, p.Err
	case end <= start || instances == 0 || p.opts.Cluster != "" && p.opts.Cluster != kind:
		return nil, errNothing
	case gpus == 0 && !p.opts.CPUs:
		return nil, errNothing
	}

	a := ask{nodes: instances, gpus: int(math.Ceil(gpus / 100))}
	if gpus > 0 && gpus < 100 {
		a.share = gpus / 100
	}

	if kind != "" && kind != "MISC" && kind != "CPU" {
		a.kinds = kind
	}

	if p.opts.CPUs {
		a.cpus, a.memory = job.CPUs(cpus*10), job.Bytes(memory*(1<<30))
	}

	return &sim.Job{
		Name: name + "/" + task, At: start, Owner: "pai", Duration: end - start, Spec: p.specs.of(a),
	}, nil
}

// openb reads the pods of Alibaba's GPU-sharing cluster of 2023.
//
// gpu_milli is the share of one GPU. A pod with less than a whole GPU asks for that
// share; policies that do not share GPUs give it a whole one, so a simulated
// cluster then holds fewer of these pods than the real one did. A pod lasts
// from its scheduling to its deletion; those that were never scheduled are left
// out. The class of service owns the pod: the table knows no users.
type openb struct {
	*rows.Table
	opts  Options
	specs *specs
}

func openOpenb(f *rows.File, opts Options) (*openb, error) {
	t, err := rows.WithHeader(f, ',', "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos",
		"creation_time", "deletion_time", "scheduled_time")
	if err != nil {
		return nil, err
	}

	return &openb{Table: t, opts: opts, specs: newSpecs()}, nil
}

func (o *openb) job() (*sim.Job, error) {
	if err := o.Read(); err != nil {
		return nil, err
	}

	name := o.Text("name")
	kind := o.Text("gpu_spec")
	qos := o.Text("qos")
	gpus, milli := o.Count("num_gpu"), o.OrZero("gpu_milli")
	cpus := o.OrZero("cpu_milli")
	memory := o.OrZero("memory_mib")
	at := o.Seconds("creation_time")

	switch {
	case o.Err != nil:
		return nil, o.Err
	case o.Text("scheduled_time") == "" || o.Text("deletion_time") == "":
		return nil, errNothing
	case gpus == 0 && !o.opts.CPUs || o.opts.Cluster != "" && !strings.EqualFold(o.opts.Cluster, qos):
		return nil, errNothing
	}

	from, to := o.Seconds("scheduled_time"), o.Seconds("deletion_time")
	if o.Err == nil && to <= from {
		return nil, errNothing
	}
	if o.Err != nil {
		return nil, o.Err
	}

	a := ask{nodes: 1, gpus: gpus, kinds: kind}
	if gpus == 1 && milli > 0 && milli < 1000 {
		a.share = milli / 1000
	}

	if o.opts.CPUs {
		a.cpus, a.memory = job.CPUs(cpus), job.Bytes(memory)<<20
	}

	return &sim.Job{Name: strings.Clone(name), At: at, Owner: user(qos), Duration: to - from, Spec: o.specs.of(a)}, nil
}

// OpenbNodes reads the node list of Alibaba's GPU-sharing cluster of 2023.
func OpenbNodes(name string) ([]fleet.Node, error) { return rows.All(name, openbNodes) }

func openbNodes(f *rows.File) ([]fleet.Node, error) {
	t, err := rows.WithHeader(f, ',', "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return nil, err
	}

	var list []fleet.Node
	err = t.Each(func() {
		sn := strings.Clone(t.Text("sn"))
		gpus := t.Count("gpu")
		model := strings.Clone(t.Text("model"))
		cpus, memory := t.OrZero("cpu_milli"), t.OrZero("memory_mib")

		if gpus > fleet.MaxGPUs {
			t.Fail("gpu", "a node has at most %d GPUs", fleet.MaxGPUs)
			return
		}

		n := nodes.New(id.Node(sn), model, gpus, openbMemory[model])
		n.Inventory.CPUs, n.Inventory.Memory = job.CPUs(cpus), job.Bytes(memory)<<20
		list = append(list, n)
	})

	return list, err
}

// openbMemory is the memory of a GPU by the name that the trace gives its model.
// What G2 and G3 are is not published.
var openbMemory = map[string]job.Bytes{
	"P100": 16 << 30, "T4": 16 << 30, "V100M16": 16 << 30, "V100M32": 32 << 30, "A10": 24 << 30,
}
