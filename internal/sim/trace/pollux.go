package trace

import (
	"path/filepath"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/pollux"
	"trainyard/internal/sim/trace/rows"
)

// Mode says how much of a Pollux or Sia job may change.
type Mode string

// The modes.
const (
	// any number of GPUs, with the batch size that is best there: what Pollux schedules. The default
	ModeAdaptive Mode = "adaptive"
	ModeRigid    Mode = "rigid"   // the owner's number of GPUs and batch size: what Tiresias schedules
	ModeElastic  Mode = "elastic" // any number of GPUs with the owner's batch size: what Optimus schedules
	// adaptive, but nobody is told any speed: a program chooses its batch size by what it has
	// measured, and reports its progress
	ModeLearned Mode = "learned"
)

// polluxReader reads a workload of the Pollux and Sia simulators. Its rows only name
// applications; how fast these are comes from profiles that were measured.
type polluxReader struct {
	*rows.Table
	opts Options
	apps *applications
}

func openPollux(f *rows.File, opts Options) (*polluxReader, error) {
	switch opts.Mode {
	case "", ModeAdaptive, ModeRigid, ModeElastic, ModeLearned:
	default:
		return nil, fault.New(fault.Invalid, "bad_mode", "unknown mode %q", opts.Mode).
			WithRemedy("use %s, %s, %s or %s", ModeAdaptive, ModeRigid, ModeElastic, ModeLearned)
	}

	if opts.Tables == "" {
		return nil, fault.New(fault.Invalid, "missing_tables", "a Pollux or Sia workload needs the profiles of its "+
			"applications").
			WithRemedy("name their folder, e.g. pollux/traces")
	}

	t, err := rows.WithHeader(f, ',', "name", "time", "application", "num_replicas", "batch_size")
	if err != nil {
		return nil, err
	}

	return &polluxReader{Table: t, opts: opts, apps: newApplications(filepath.SplitList(opts.Tables), opts)}, nil
}

func (p *polluxReader) job() (*sim.Job, error) {
	if err := p.Read(); err != nil {
		return nil, err
	}

	name := p.Text("name")
	app := p.Text("application")
	at := p.Seconds("time")

	replicas, batch := p.Count("num_replicas"), p.Count("batch_size")
	if p.Err == nil && (replicas < 1 || replicas > job.MaxCount) {
		p.Fail("num_replicas", "number of GPUs is out of range: %d", replicas)
	}

	if p.Err == nil && batch < 1 {
		p.Fail("batch_size", "must be at least 1, got %d", batch)
	}

	if p.Err != nil {
		return nil, p.Err
	}

	plan, err := p.apps.plan(app, replicas, batch)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return nil, p.Bad(4, "num_replicas", "%s was not measured with batch size %d on %d GPUs", app, batch, replicas)
	}

	return &sim.Job{
		Name:            strings.Clone(name),
		At:              at,
		Owner:           "pollux",
		Spec:            plan.spec,
		Speed:           plan.speed,
		Program:         plan.program,
		Phases:          plan.phases,
		ReportsProgress: len(plan.phases) > 0,
	}, nil
}

// plan is what all jobs of an application with the same freedom have in common.
type plan struct {
	spec   *job.Spec
	phases []sim.Phase

	// Of a job that learns: its work, and its program.
	speed   *job.Speed
	program func() sim.Program
}

type planKey struct {
	app             string
	replicas, batch int
}

// applications makes the plans of jobs from profiles, which it reads when the
// first job needs them.
type applications struct {
	folders  []string
	opts     Options
	profiles map[string]*pollux.Profile
	plans    map[planKey]*plan
}

func newApplications(folders []string, opts Options) *applications {
	return &applications{folders: folders, opts: opts, profiles: map[string]*pollux.Profile{}, plans: map[planKey]*plan{}}
}

// plan returns the plan of a job, nil if nothing was measured that it could do.
func (a *applications) plan(app string, replicas, batch int) (*plan, error) {
	key := planKey{strings.Clone(app), replicas, batch}
	if a.opts.Mode == ModeAdaptive || a.opts.Mode == ModeLearned || a.opts.Mode == "" {
		key.replicas, key.batch = 0, 0
		if app == "ncf" {
			// Its gradients are too sparse to measure their noise, so that Pollux lets
			// it train with one large batch.
			key.batch = 32768
		}
	}

	if a.opts.Mode == ModeElastic {
		key.replicas = 0
	}

	if p, ok := a.plans[key]; ok {
		return p, nil
	}

	prof, err := a.profile(key.app)
	if err != nil {
		return nil, err
	}

	a.plans[key] = a.make(prof, key)

	return a.plans[key], nil
}

func (a *applications) profile(app string) (*pollux.Profile, error) {
	if p, ok := a.profiles[app]; ok {
		return p, nil
	}

	p, err := pollux.Read(app, a.folders)
	if err == nil {
		a.profiles[app] = p
	}

	return p, err
}

// make draws up the speeds of each epoch: its gradient noise makes large batches
// worth more or less, and so the same GPUs faster or slower.
func (a *applications) make(p *pollux.Profile, key planKey) *plan {
	if a.opts.Mode == ModeLearned {
		return a.learned(p, key)
	}

	start := a.opts.start(p.Restart)
	made := &plan{}
	var first *job.Speed

	for epoch := range p.Epochs {
		rates := p.Rates(epoch, key.batch)
		if key.replicas > 0 {
			rates = pollux.Exactly(rates, key.replicas)
		}

		if len(rates) == 0 {
			return nil
		}

		s := job.NewSpeed(p.Work(), start, a.opts.Save, rates...)
		if epoch == 0 {
			first = s
			continue
		}

		made.phases = append(made.phases, sim.Phase{From: p.Until(epoch), Speed: s})
	}

	made.spec = a.spec(p, key)
	made.spec.Speed = first
	made.spec.Resources.GPU = kinds(first)

	if key.replicas > 0 {
		nodes, each := split(key.replicas, a.perNode(p))
		made.spec.Resources.Nodes, made.spec.Resources.GPUs = exactly(nodes), exactly(each)
	}

	return made
}

// learned draws up a job of which nobody is told a speed.
func (a *applications) learned(p *pollux.Profile, key planKey) *plan {
	made := &plan{
		spec:    a.spec(p, key),
		speed:   job.NewSpeed(p.Work(), a.opts.start(p.Restart), a.opts.Save),
		program: func() sim.Program { return pollux.NewAgent(p, key.batch) },
	}

	made.spec.Resources.GPU = kinds(job.NewSpeed(1, 0, 0, p.Rates(0, key.batch)...))

	return made
}

// spec is what the owner of a job submits, without speeds.
func (a *applications) spec(p *pollux.Profile, key planKey) *job.Spec {
	return &job.Spec{
		Name:      key.app,
		Run:       command,
		Place:     job.PlaceAny,
		Objective: job.ObjectiveTime,
		Resources: job.Resources{
			Nodes: job.Range{Min: 1, Max: pollux.MaxNodes},
			GPUs:  job.Range{Min: 1, Max: a.perNode(p)},
		},
		Checkpoint: &job.Checkpoint{Dir: "checkpoint"},
	}
}

// perNode is how many GPUs a job may have on one node: as the options say, or else
// what was measured, the least of the kinds for a job that cannot change.
func (a *applications) perNode(p *pollux.Profile) int {
	if a.opts.PerNode > 0 {
		return a.opts.PerNode
	}

	return p.PerNode(a.opts.Mode == ModeRigid)
}
