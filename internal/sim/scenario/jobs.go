package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// draft is a job while its line is read.
type draft struct {
	job          sim.Job
	spec         job.Spec
	work         float64
	rates        []job.Rate
	start        time.Duration
	save         time.Duration
	deadline     time.Duration // after submission
	phases       []phase
	user         id.User
	noCheckpoint bool // saves no checkpoint
	at           word
}

type phase struct {
	from  float64
	rates []job.Rate
}

// jobLine reads one job.
func (s *Scenario) jobLine(a *args) *fault.Error {
	name, err := a.must("the name of a job", "job first gpus 2 lasts 1h")
	if err != nil {
		return err
	}

	d := &draft{at: name, spec: job.Spec{
		Name: name.text, Run: "simulated", Place: job.PlaceAny, Objective: job.ObjectiveBalanced,
		Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}}, Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
	}}

	switch {
	case !id.Name(name.text):
		return a.bad(name, "invalid job name %q", name.text).WithRemedy("use lower-case letters, digits, '-', '_' and '.'")
	case s.names[name.text]:
		return a.bad(name, "job %s is defined twice", name.text)
	case len(s.jobs) == maxJobs:
		return a.bad(name, "a scenario may have at most %d job lines", maxJobs).
			WithRemedy("use a workload or a trace")
	}

	if err := a.keys(d.table()); err != nil {
		return err
	}
	if err := d.finish(a); err != nil {
		return err
	}

	s.names[name.text] = true
	s.shares = s.shares || d.user != ""
	s.jobs = append(s.jobs, &d.job)

	return nil
}

// table says what the keys of a job mean.
func (d *draft) table() map[string]reader {
	r := &d.spec.Resources
	return map[string]reader{
		"at":              value(into(&d.job.At, parseDuration)),
		"user":            value(into(&d.user, parseUser)),
		"gpus":            value(into(&r.GPUs, job.ParseRange)),
		"nodes":           value(into(&r.Nodes, job.ParseRange)),
		"gpu":             value(into(&r.GPU, list(parseKind))),
		"gpu_share":       value(into(&r.GPUShare, parseShare)),
		"gpu_memory":      value(into(&r.GPUMemory, job.ParseByteRange)),
		"cpus":            value(into(&r.CPUs, job.ParseCPUs)),
		"memory":          value(into(&r.Memory, job.ParseBytes)),
		"pool":            value(into(&d.spec.Pools, list(parseNode))),
		"on":              value(into(&d.spec.Nodes, list(parseNode))),
		"avoid":           value(into(&d.spec.Avoid, list(parseNode))),
		"place":           value(into(&d.spec.Place, oneOf(job.PlaceAny, job.PlaceLocal, job.PlaceCloud))),
		"objective":       value(into(&d.spec.Objective, oneOf(job.ObjectiveTime, job.ObjectiveCost, job.ObjectiveBalanced))),
		"priority":        value(into(&d.spec.Priority, parseCount)),
		"expect":          value(into(&d.spec.Expect, job.ParseDuration)),
		"max_duration":    value(into(&d.spec.MaxDuration, job.ParseDuration)),
		"deadline":        value(into(&d.deadline, parseLasting)),
		"budget":          value(into(&d.spec.Budget, job.ParseMoney)),
		"project":         value(into(&d.spec.Project, func(s string) (string, error) { return s, nil })),
		"data":            value(into(&d.spec.Data, list(func(s string) (string, error) { return s, nil }))),
		"late_cost":       value(into(&d.spec.LateCost, job.ParseMoney)),
		"retry":           value(into(&d.spec.Retry, parseCount)),
		"checkpoint":      value(d.checkpoint),
		"checkpoint_size": value(into(&d.job.CheckpointSize, job.ParseBytes)),
		"lasts":           value(into(&d.job.Duration, parseLasting)),
		"work":            value(into(&d.work, parsePositive)),
		"speed*":          value(d.speed(false)),
		"spread*":         value(d.speed(true)),
		"start":           value(into(&d.start, parseDuration)),
		"save":            value(into(&d.save, parseDuration)),
		"phase*":          value(d.phase),
		"reports":         flag(&d.job.ReportsProgress),
		"lost":            value(into(&d.job.MaxLoss, parseLasting)),
		"fails*":          value(d.fails),
		"cancel":          value(into(&d.job.CancelAfter, parseLasting)),
	}
}

func parseUser(s string) (id.User, error) {
	if !id.Name(s) {
		return "", fmt.Errorf("invalid user name %q: use lower-case letters, digits, '-', '_' and '.'", s)
	}

	return id.User(s), nil
}

func parseNode(s string) (string, error) {
	if !id.Name(s) {
		return "", fmt.Errorf("invalid name %q of a node or pool: use lower-case letters, digits, '-', '_' and '.'", s)
	}

	return s, nil
}

func parseShare(s string) (float64, error) {
	f, err := parsePositive(s)
	if err == nil && f >= 1 {
		err = fmt.Errorf("GPU share must be between 0 and 1, got %q", s)
	}

	return f, err
}

func parseKind(s string) (k job.GPUKind, err error) {
	if err = k.UnmarshalText([]byte(s)); err != nil || k.Model == "" {
		err = fmt.Errorf("invalid GPU type %q: give a model, e.g. A100 or A100:80GB", s)
	}

	return k, err
}

// checkpoint reads how often a job saves itself, or none.
func (d *draft) checkpoint(a *args, w word) *fault.Error {
	if w.text == "none" {
		d.noCheckpoint = true
		return nil
	}

	return into(&d.spec.Checkpoint.Every, job.ParseDuration)(a, w)
}

func (d *draft) speed(spread bool) func(*args, word) *fault.Error {
	return func(a *args, w word) *fault.Error {
		var rates []job.Rate
		err := into(&rates, parseRates(spread))(a, w)
		d.rates = append(d.rates, rates...)

		return err
	}
}

// phase reads FROM/SPEED: from some amount of work on the job has this speed.
func (d *draft) phase(a *args, w word) *fault.Error {
	from, rates, ok := strings.Cut(w.text, "/")
	p := phase{}
	var err error
	p.from, err = parsePositive(from)
	if err == nil && ok {
		p.rates, err = parseRates(false)(rates)
	}

	if err != nil || !ok || len(d.phases) > 0 && p.from <= d.phases[len(d.phases)-1].from {
		return a.bad(w, "invalid phase %q", w.text).
			WithRemedy("use WORK/SPEED in order of work, e.g. 500/1:2,2:3.5")
	}

	d.phases = append(d.phases, p)

	return nil
}

// fails reads SHARE or SHARE:CAUSE: a run fails when so much of the work is done.
func (d *draft) fails(a *args, w word) *fault.Error {
	share, cause, named := strings.Cut(w.text, ":")
	f := sim.Failure{Cause: job.CauseUserCode}
	if named {
		f.Cause = job.Cause(cause)
	}

	var err error
	f.Share, err = strconv.ParseFloat(share, 64)
	_, known := job.HandlingOf(f.Cause)
	if err != nil || !known || f.Share < 0 || f.Share >= 1 {
		return a.bad(w, "invalid failure %q", w.text).
			WithRemedy("use SHARE:CAUSE with the share of work done, from 0 to 1, e.g. 0.5:user_code")
	}

	d.job.Failures = append(d.job.Failures, f)

	return nil
}

// finish puts the parts of a job together and finds what does not go together.
func (d *draft) finish(a *args) *fault.Error {
	spec := &d.spec
	if share := spec.Resources.GPUShare; share > 0 && spec.Resources.GPUs == (job.Range{}) {
		spec.Resources.GPUs = job.Range{Min: 1, Max: 1}
	}

	switch {
	case spec.Resources.GPUShare > 0 && spec.Resources.GPUs != (job.Range{Min: 1, Max: 1}):
		return a.bad(d.at, "job %s has both gpu_share and more than one GPU", spec.Name).
			WithRemedy("remove gpus or gpu_share")
	case d.job.Duration > 0 && d.work > 0:
		return a.bad(d.at, "job %s has both lasts and work", spec.Name).
			WithRemedy("give either lasts, or work and speed")
	case d.job.Duration == 0 && (d.work == 0 || len(d.rates) == 0):
		return a.bad(d.at, "job %s has neither lasts nor work and speed", spec.Name).
			WithRemedy("add lasts 1h, or work 1000 and speed 1:2,2:3.8")
	case d.job.Duration > 0 && (len(d.rates)+len(d.phases) > 0 || d.start+d.save > 0 || d.job.ReportsProgress):
		return a.bad(d.at, "job %s has lasts together with keys that need work", spec.Name).
			WithRemedy("speed, spread, phase, start, save and reports go with work, not with lasts")
	case spec.LateCost > 0 && d.deadline == 0:
		return a.bad(d.at, "job %s has a late_cost but no deadline", spec.Name).WithRemedy("add a deadline, e.g. deadline 4h")
	case spec.Resources.GPUs == (job.Range{}) && spec.Resources.CPUs == 0:
		return a.bad(d.at, "job %s requests no resources", spec.Name).WithRemedy("add gpus 1 or cpus 4")
	case spec.Resources.GPUs.Min > fleet.MaxGPUs:
		return a.bad(d.at, "job %s requests more GPUs than a node can have", spec.Name).
			WithRemedy("gpus counts the GPUs per node; use nodes for more")
	case spec.Priority > 100:
		return a.bad(d.at, "the priority of job %s must be between 0 and 100", spec.Name)
	}

	if d.noCheckpoint {
		spec.Checkpoint = nil
	}

	if d.deadline > 0 {
		due := sim.Epoch().Add(d.job.At + d.deadline)
		spec.Deadline = &due
	}

	if d.work > 0 {
		spec.Speed = job.NewSpeed(d.work, d.start, d.save, d.rates...)
		for _, p := range d.phases {
			d.job.Phases = append(
				d.job.Phases,
				sim.Phase{From: p.from, Speed: job.NewSpeed(d.work, d.start, d.save, p.rates...)},
			)
		}
	}

	d.job.Name = spec.Name
	d.job.Owner = d.user
	d.job.Spec = spec

	return nil
}
