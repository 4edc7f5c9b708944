package scenario

import (
	"errors"
	"io"
	"path/filepath"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// workload makes jobs: from a generator, or from a trace.
type workload struct {
	total int // jobs, 0 if unknown
	open  func(seed uint64) (sim.Jobs, error)
}

// rigid are the numbers of workloads of jobs that cannot change.
type rigid struct {
	jobs  int
	every time.Duration
	burst trace.Burst
	kind  trace.Rigid
}

// workloadLine reads a generator and its numbers.
func (s *Scenario) workloadLine(a *args) *fault.Error {
	kinds := map[string]func(*args, word) (workload, *fault.Error){
		"poisson":    s.poisson,
		"bursty":     s.bursty,
		"andreas":    s.tasks,
		"datacenter": s.tasks,
		"hpo":        s.freetrain,
		"mix":        s.freetrain,
		"lublin":     s.lublin,
	}

	w, err := a.must("the name of a generator", "workload poisson jobs 100 every 5m gpus 1,2,4 median 1h")
	if err != nil {
		return err
	}

	read, ok := kinds[w.text]
	if !ok {
		return a.unknown(w, "workload", keysOf(kinds))
	}

	load, err := read(a, w)
	if err != nil {
		return err
	}

	s.loads = append(s.loads, load)

	return nil
}

// keys are those of all workloads of rigid jobs.
func (r *rigid) keys() map[string]reader {
	return map[string]reader{
		"jobs":     value(into(&r.jobs, parseCount)),
		"gpus":     value(into(&r.kind.GPUs, list(parseCount))),
		"shares":   value(into(&r.kind.Shares, list(parseAmount))),
		"median":   value(into(&r.kind.Median, parseLasting)),
		"sigma":    value(into(&r.kind.Sigma, parseAmount)),
		"users":    value(into(&r.kind.Users, parseCount)),
		"per_node": value(into(&r.kind.PerNode, parseCount)),
	}
}

func newRigid() *rigid {
	return &rigid{jobs: 100, kind: trace.Rigid{GPUs: []int{1}, Median: time.Hour, Sigma: 1}}
}

// load checks the numbers and makes the workload.
func (r *rigid) load(
	s *Scenario,
	a *args,
	w word,
	arrivals func(seed, stream uint64) trace.Arrivals,
) (workload, *fault.Error) {
	if len(r.kind.Shares) > 0 && len(r.kind.Shares) != len(r.kind.GPUs) {
		return workload{}, a.bad(
			w,
			"got %d shares for %d sizes; give one share per size",
			len(r.kind.Shares),
			len(r.kind.GPUs),
		)
	}

	s.shares = s.shares || r.kind.Users > 1
	stream := uint64(len(s.loads)+1) * 2

	return workload{total: r.jobs, open: func(seed uint64) (sim.Jobs, error) {
		return trace.Generate(r.jobs, arrivals(seed, stream), r.kind.Maker(trace.NewRand(seed, stream+1))), nil
	}}, nil
}

// poisson makes jobs that come independently of each other.
func (s *Scenario) poisson(a *args, w word) (workload, *fault.Error) {
	r := newRigid()
	table := r.keys()
	table["every"] = value(into(&r.every, parseLasting))
	if err := a.keys(table); err != nil {
		return workload{}, err
	}

	if r.every == 0 {
		return workload{}, a.bad(w, "every is required").
			WithRemedy("add every 5m, the mean time between two jobs")
	}

	return r.load(
		s,
		a,
		w,
		func(seed, stream uint64) trace.Arrivals { return trace.Poisson(trace.NewRand(seed, stream), r.every) },
	)
}

// bursty makes jobs that come in bursts.
func (s *Scenario) bursty(a *args, w word) (workload, *fault.Error) {
	r := newRigid()
	table := r.keys()
	table["calm"] = value(into(&r.burst.Calm, parseLasting))
	table["busy"] = value(into(&r.burst.Busy, parseLasting))
	table["calm_for"] = value(into(&r.burst.CalmFor, parseLasting))
	table["busy_for"] = value(into(&r.burst.BusyFor, parseLasting))
	if err := a.keys(table); err != nil {
		return workload{}, err
	}

	if r.burst.Busy == 0 || r.burst.CalmFor == 0 || r.burst.BusyFor == 0 {
		return workload{}, a.bad(w, "busy, busy_for and calm_for are required").
			WithRemedy("for example: busy 30s busy_for 20m calm 10m calm_for 2h")
	}

	return r.load(
		s,
		a,
		w,
		func(seed, stream uint64) trace.Arrivals { return trace.Bursty(trace.NewRand(seed, stream), r.burst) },
	)
}

// tasks makes jobs of the published tables of ANDREAS, with deadlines.
func (s *Scenario) tasks(a *args, w word) (workload, *fault.Error) {
	o := trace.TaskOptions{Nodes: max(len(s.nodes), 1), Lambda: 30_000 * time.Second}
	weight := 10.0

	err := a.keys(map[string]reader{
		"jobs":   value(into(&o.Jobs, parseCount)),
		"nodes":  value(into(&o.Nodes, parseCount)),
		"lambda": value(into(&o.Lambda, parseLasting)),
		"law":    value(into(&o.Law, oneOf(trace.LawExponential, trace.LawHigh, trace.LawLow, trace.LawMixed))),
		"k":      value(into(&weight, parseAmount)),
		"slack":  value(into(&o.Slack, parsePositive)),
		"start":  value(into(&o.Start, parseDuration)),
		"save":   value(into(&o.Save, parseDuration)),
	})
	if err != nil {
		return workload{}, err
	}

	base := trace.Andreas(o.Nodes, o.Lambda, weight, 0)
	if w.text == "datacenter" {
		base = trace.Datacenter(o.Nodes, o.Lambda, 0)
	}

	o.Tasks = base.Tasks
	o.LateLeast = base.LateLeast
	o.LateMost = base.LateMost
	total := o.Jobs + 1
	if o.Jobs == 0 {
		total = 10*o.Nodes + 1
	}

	return workload{total: total, open: func(seed uint64) (sim.Jobs, error) {
		o := o
		o.Seed = seed
		return o.Generate()
	}}, nil
}

// freetrain makes the elastic jobs of FreeTrain: trials of one search, or a mix of models.
func (s *Scenario) freetrain(a *args, w word) (workload, *fault.Error) {
	o := trace.FreeTrainOptions{Jobs: 20}

	err := a.keys(map[string]reader{
		"jobs":      value(into(&o.Jobs, parseCount)),
		"every":     value(into(&o.Every, parseLasting)),
		"start":     value(into(&o.Start, parseLasting)),
		"save":      value(into(&o.Save, parseDuration)),
		"lost":      value(into(&o.MaxLoss, parseLasting)),
		"max_nodes": value(into(&o.MaxNodes, parseCount)),
		"free":      flag(&o.Free),
	})
	if err != nil {
		return workload{}, err
	}

	return workload{total: o.Jobs, open: func(seed uint64) (sim.Jobs, error) {
		o := o
		o.Seed = seed
		if w.text == "hpo" {
			return trace.HPO(o), nil
		}

		return trace.ImageNetMix(o), nil
	}}, nil
}

// lublin makes jobs of the model of Lublin and Feitelson, with the cycle of a day.
func (s *Scenario) lublin(a *args, _ word) (workload, *fault.Error) {
	o := trace.LublinOptions{Jobs: 100, GPUs: true}

	err := a.keys(map[string]reader{
		"jobs":     value(into(&o.Jobs, parseCount)),
		"gpus":     value(into(&o.Procs, parseCount)),
		"per_node": value(into(&o.PerNode, parseCount)),
		"hour":     value(into(&o.Hour, parseCount)),
		"types":    flag(&o.Types),
	})
	if err != nil {
		return workload{}, err
	}

	return workload{total: o.Jobs, open: func(seed uint64) (sim.Jobs, error) {
		o := o
		o.Seed = seed
		return trace.Lublin(o), nil
	}}, nil
}

// traceLine reads the name of a trace and how to read it.
func (s *Scenario) traceLine(a *args) *fault.Error {
	w, err := a.must("the file name of a trace", "trace jobs.csv format philly")
	if err != nil {
		return err
	}

	var o trace.Options
	var format string
	first := 0

	err = a.keys(map[string]reader{
		"format":   value(into(&format, plain)),
		"tables":   value(into(&o.Tables, plain)),
		"cluster":  value(into(&o.Cluster, plain)),
		"per_node": value(into(&o.PerNode, parseCount)),
		"default":  value(into(&o.Default, parseCount)),
		"first":    value(into(&first, parseCount)),
		"gpus":     flag(&o.GPUs),
		"cpus":     flag(&o.CPUs),
		"sort":     flag(&o.Sort),
		"skip_bad": flag(&o.SkipBad),
		"start":    value(into(&o.Start, parseLasting)),
		"save":     value(into(&o.Save, parseDuration)),
	})
	if err != nil {
		return err
	}

	path := s.beside(w.text)

	if o.Tables != "" {
		o.Tables = s.beside(o.Tables)
	}

	s.shares = true
	s.loads = append(s.loads, workload{total: first, open: func(uint64) (sim.Jobs, error) {
		r, err := trace.Open(path, format, o)
		if err != nil {
			return nil, err
		}
		if first > 0 {
			return trace.First(r, first), nil
		}

		return r, nil
	}})

	return nil
}

func plain(s string) (string, error) { return s, nil }

// beside finds a file from the scenario's folder.
func (s *Scenario) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}

	return filepath.Join(s.folder, path)
}

// Total returns how many jobs the scenario has, 0 if that is not known before.
func (s *Scenario) Total() int {
	total := len(s.jobs)
	for _, l := range s.loads {
		if l.total == 0 {
			return 0
		}

		total += l.total
	}

	return total
}

// workload returns all jobs by time of submission.
func (s *Scenario) workload(seed uint64) (sim.Jobs, error) {
	all := &merged{}
	if len(s.jobs) > 0 {
		all.sources = append(all.sources, trace.List(s.jobs))
	}

	for _, l := range s.loads {
		jobs, err := l.open(seed)
		if err != nil {
			return nil, err
		}

		all.sources = append(all.sources, jobs)
	}

	if len(all.sources) == 1 {
		return all.sources[0], nil
	}

	all.heads = make([]*sim.Job, len(all.sources))

	return all, nil
}

// merged yields the jobs of several sources by time of submission; the earlier
// source goes first.
type merged struct {
	sources   []sim.Jobs
	heads     []*sim.Job // the next of each, nil if it is to be read
	exhausted int        // sources at their end are moved to the back
}

// Next returns the next job.
func (m *merged) Next() (*sim.Job, error) {
	first := -1
	for i := 0; i < len(m.sources)-m.exhausted; i++ {
		if m.heads[i] == nil {
			j, err := m.sources[i].Next()
			if errors.Is(err, io.EOF) {
				last := m.sources[i]
				copy(m.sources[i:], m.sources[i+1:])
				copy(m.heads[i:], m.heads[i+1:])
				m.sources[len(m.sources)-1], m.heads[len(m.heads)-1] = last, nil
				m.exhausted++
				i--

				continue
			}

			if err != nil {
				return nil, err
			}

			m.heads[i] = j
		}

		if first < 0 || m.heads[i].At < m.heads[first].At {
			first = i
		}
	}

	if first < 0 {
		return nil, io.EOF
	}

	j := m.heads[first]
	m.heads[first] = nil

	return j, nil
}

// scaled yields jobs that come faster: with a load of 2 in half the time. Their
// deadlines stay as far from their submission as they were.
type scaled struct {
	jobs sim.Jobs
	load float64
}

// Scaled yields jobs as they are, but so many times more of them in the same time.
func Scaled(jobs sim.Jobs, load float64) sim.Jobs {
	if load == 1 {
		return jobs
	}

	return &scaled{jobs, load}
}

// Next returns the next job.
func (s *scaled) Next() (*sim.Job, error) {
	j, err := s.jobs.Next()
	if err != nil {
		return nil, err
	}

	faster := *j
	faster.At = job.Seconds(j.At.Seconds() / s.load)

	if d := j.Spec.Deadline; d != nil {
		spec := *j.Spec
		due := d.Add(faster.At - j.At)
		spec.Deadline = &due
		faster.Spec = &spec
	}

	return &faster, nil
}
