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
	job      sim.Job
	spec     job.Spec
	work     float64
	rates    []job.Rate
	start    time.Duration
	save     time.Duration
	deadline time.Duration // after submission
	phases   []phase
	user     id.User
	none     bool // saves no checkpoint
	at       word
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
		return a.bad(name, "%q cannot name a job", name.text).WithRemedy("use lower-case letters, digits, '-', '_' and '.'")
	case s.names[name.text]:
		return a.bad(name, "there are two jobs called %s", name.text)
	case len(s.jobs) == maxJobs:
		return a.bad(name, "a scenario may have %d jobs in lines of their own", maxJobs).
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
		"at":           value(into(&d.job.At, parseDuration)),
		"user":         value(into(&d.user, parseUser)),
		"gpus":         value(into(&r.GPUs, job.ParseRange)),
		"nodes":        value(into(&r.Nodes, job.ParseRange)),
		"gpu":          value(into(&r.GPU, list(parseKind))),
		"gpu_share":    value(into(&r.GPUShare, parseShare)),
		"gpu_memory":   value(into(&r.GPUMemory, job.ParseByteRange)),
		"cpus":         value(into(&r.CPUs, job.ParseCPUs)),
		"memory":       value(into(&r.Memory, job.ParseBytes)),
		"place":        value(into(&d.spec.Place, oneOf(job.PlaceAny, job.PlaceLocal, job.PlaceCloud))),
		"objective":    value(into(&d.spec.Objective, oneOf(job.ObjectiveTime, job.ObjectiveCost, job.ObjectiveBalanced))),
		"priority":     value(into(&d.spec.Priority, parseCount)),
		"expect":       value(into(&d.spec.Expect, job.ParseDuration)),
		"max_duration": value(into(&d.spec.MaxDuration, job.ParseDuration)),
		"deadline":     value(into(&d.deadline, parseLasting)),
		"budget":       value(into(&d.spec.Budget, job.ParseMoney)),
		"project":      value(into(&d.spec.Project, func(s string) (string, error) { return s, nil })),
		"data":         value(into(&d.spec.Data, list(func(s string) (string, error) { return s, nil }))),
		"late_cost":    value(into(&d.spec.LateCost, job.ParseMoney)),
		"retry":        value(into(&d.spec.Retry, parseCount)),
		"checkpoint":   value(d.checkpoint),
		"lasts":        value(into(&d.job.Lasts, parseLasting)),
		"work":         value(into(&d.work, parsePositive)),
		"speed*":       value(d.speed(false)),
		"spread*":      value(d.speed(true)),
		"start":        value(into(&d.start, parseDuration)),
		"save":         value(into(&d.save, parseDuration)),
		"phase*":       value(d.phase),
		"tells":        flag(&d.job.Tells),
		"lost":         value(into(&d.job.Lost, parseLasting)),
		"fails*":       value(d.fails),
		"cancel":       value(into(&d.job.Cancel, parseLasting)),
	}
}

func parseUser(s string) (id.User, error) {
	if !id.Name(s) {
		return "", fmt.Errorf("%q cannot name a user: use lower-case letters, digits, '-', '_' and '.'", s)
	}

	return id.User(s), nil
}

func parseShare(s string) (float64, error) {
	f, err := parsePositive(s)
	if err == nil && f >= 1 {
		err = fmt.Errorf("%q is no share of a GPU: write a number between 0 and 1", s)
	}

	return f, err
}

func parseKind(s string) (k job.GPUKind, err error) {
	if err = k.UnmarshalText([]byte(s)); err != nil || k.Model == "" {
		err = fmt.Errorf("%q is no kind of GPU: write a model, as in A100 or A100:80GB", s)
	}

	return k, err
}

// checkpoint reads how often a job saves itself, or none.
func (d *draft) checkpoint(a *args, w word) *fault.Error {
	if w.text == "none" {
		d.none = true
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
		return a.bad(w, "%q is no later phase", w.text).
			WithRemedy("write the work from which on, and the speed, as in 500/1:2,2:3.5, the earliest first")
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
		return a.bad(w, "%q is no failure", w.text).
			WithRemedy("write how much of the work is done by then, from 0 to 1, and why, as in 0.5:user_code")
	}

	d.job.Fails = append(d.job.Fails, f)

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
		return a.bad(d.at, "%s asks for a share of a GPU and for several", spec.Name).WithRemedy("take gpus or gpu_share out")
	case d.job.Lasts > 0 && d.work > 0:
		return a.bad(d.at, "%s has both lasts and work", spec.Name).
			WithRemedy("give how long it lasts, or how much work it is and its speed")
	case d.job.Lasts == 0 && (d.work == 0 || len(d.rates) == 0):
		return a.bad(d.at, "%s does not say how long it takes", spec.Name).
			WithRemedy("write lasts 1h, or work 1000 and speed 1:2,2:3.8")
	case d.job.Lasts > 0 && (len(d.rates)+len(d.phases) > 0 || d.start+d.save > 0 || d.job.Tells):
		return a.bad(d.at, "%s lasts as long whatever it is given", spec.Name).
			WithRemedy("speed, spread, phase, start, save and tells go with work, not with lasts")
	case spec.LateCost > 0 && d.deadline == 0:
		return a.bad(d.at, "%s has a late_cost and no deadline", spec.Name).WithRemedy("add a deadline, as in deadline 4h")
	case spec.Resources.GPUs == (job.Range{}) && spec.Resources.CPUs == 0:
		return a.bad(d.at, "%s asks for nothing", spec.Name).WithRemedy("write gpus 1, or cpus 4")
	case spec.Resources.GPUs.Min > fleet.MaxGPUs:
		return a.bad(d.at, "%s asks for more GPUs than a node can have", spec.Name).
			WithRemedy("gpus are of each node; use nodes for more")
	case spec.Priority > 100:
		return a.bad(d.at, "the priority of %s is above 100", spec.Name)
	}

	if d.none {
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
