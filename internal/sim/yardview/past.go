package yardview

import (
	"context"
	"slices"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Past is a yard as it was just before a run was ordered.
type Past struct {
	*View
	Job id.Job
	Run api.Run  // that was ordered then
	And []id.Job // started at the same time, without the job itself
	// Reason is what was given for the order; "" if the events do not have it.
	Reason string
}

// maxPast is how many jobs are looked through for those that were there then.
const maxPast = 100_000

// Before rebuilds the yard as it was when a run of a job was ordered; an epoch of 0
// means the newest run.
func Before(ctx context.Context, s Source, j id.Job, epoch int, opts Options) (*Past, error) {
	r, err := open(ctx, s, opts)
	if err != nil {
		return nil, err
	}

	d, err := r.Job(ctx, j)
	if err != nil {
		return nil, err
	}

	p := &past{reader: r, out: &Past{View: r.view, Job: j}}
	p.out.Run, err = pick(&d, epoch)
	if err != nil {
		return nil, err
	}

	p.at = p.out.Run.Ordered
	r.view.Now = p.at

	if err := p.everyone(ctx); err != nil {
		return nil, err
	}
	if err := p.everything(ctx); err != nil {
		return nil, err
	}
	if err := r.needs(ctx); err != nil {
		return nil, err
	}
	if err := r.users(ctx); err != nil {
		return nil, err
	}
	if err := r.datasets(ctx); err != nil {
		return nil, err
	}

	p.noteGaps()
	r.finish()

	return p.out, nil
}

// pick returns the run of a job with an epoch.
func pick(d *api.JobDetail, epoch int) (api.Run, error) {
	if len(d.Runs) == 0 {
		return api.Run{}, fault.New(fault.Conflict, "never_ran", "job %s has never been placed: there is no decision to "+
			"replay", d.ID).
			WithRemedy("see why it is queued: trainyard job %s", d.ID)
	}

	if epoch == 0 {
		return d.Runs[len(d.Runs)-1], nil
	}

	for _, run := range d.Runs {
		if run.Epoch == epoch {
			return run, nil
		}
	}

	return api.Run{}, fault.New(
		fault.NotFound,
		"run_not_found",
		"job %s has no run %d; its runs are 1 to %d",
		d.ID,
		epoch,
		len(d.Runs),
	)
}

// past rebuilds a yard as it was at a time.
type past struct {
	*reader
	out     *Past
	at      time.Time
	worked  bool // a job with a speed had run before
	escaped bool // a job had failed in a way that keeps it off nodes or raises what it asks for
	shared  bool // several users had queued jobs
}

// everyone finds the jobs that had been submitted and had not ended then.
func (p *past) everyone(ctx context.Context) error {
	f := api.JobFilter{}
	f.Limit = pageSize
	seen := 0
	var there []api.Job

	for {
		page, err := p.Source.Jobs(ctx, f)
		if err != nil {
			return err
		}

		seen += len(page.Jobs)

		for i := range page.Jobs {
			if o := &page.Jobs[i]; !o.Submitted.After(p.at) && (o.Ended == nil || o.Ended.After(p.at)) {
				there = append(there, *o)
			}
		}

		f.Cursor = page.Next

		if page.Next == "" {
			break
		}

		if seen >= maxPast {
			p.gap("only the newest %d jobs were examined", seen)
			break
		}
	}

	slices.Reverse(there)
	details, err := p.details(ctx, there)
	if err != nil {
		return err
	}

	var owner id.User
	for i := range details {
		waits, err := p.person(ctx, &details[i])
		if err != nil {
			return err
		}

		if waits {
			p.shared = p.shared || owner != "" && owner != details[i].Owner
			owner = details[i].Owner
		}
	}

	return nil
}

// person puts a job into the state as it was then, and reports whether it waited.
func (p *past) person(ctx context.Context, d *api.JobDetail) (waits bool, err error) {
	j, err := jobOf(d)
	if err != nil {
		return false, err
	}

	history, err := p.history(ctx, d.ID)
	if err != nil {
		return false, err
	}

	if d.ID == p.out.Job {
		p.out.Reason = history.ordered(p.out.Run.ID)
	}

	j.State = job.Pending
	j.Epoch = 0
	j.Done = 0
	j.Served = 0
	j.Last = ""
	j.Started = time.Time{}
	j.Cause = job.CauseNone
	if len(history) > 0 {
		j.State, j.Reason, j.NotBefore = history.stateAt(p.at)
	}

	var live *api.Run

	for i := range d.Runs {
		run := &d.Runs[i]
		if !run.Ordered.Before(p.at) {
			if run.Ordered.Equal(p.at) && d.ID != p.out.Job {
				p.out.And = append(p.out.And, d.ID)
			}

			continue
		}

		j.Epoch = run.Epoch
		if len(run.Ranks) > 0 {
			j.Last = run.Ranks[0].Node
		}

		if run.Ended == nil || run.Ended.After(p.at) {
			live = run
			continue
		}

		p.ended(&j, run)
	}

	switch {
	case j.State == job.Paused || j.State.Final():
		return false, nil
	case live != nil:
		p.live(&j, live, history)
	case !j.State.Waiting():
		// The events do not say; it had no run, so it was queued.
		j.State = job.Pending
	}

	p.view.Jobs[d.ID] = *d
	p.view.State.Jobs = append(p.view.State.Jobs, j)

	return live == nil, nil
}

// ended counts a run that had ended then.
func (p *past) ended(j *job.Job, run *api.Run) {
	p.worked = p.worked || j.Spec.Speed != nil
	j.Cause = run.Cause
	if h, known := job.HandlingOf(run.Cause); known && (h.Next == job.NextElsewhere || h.Next == job.NextEscalate) {
		p.escaped = true
	}

	if run.Started == nil {
		return
	}

	if j.Started.IsZero() {
		j.Started = *run.Started
	}

	j.Served += run.Ended.Sub(*run.Started).Seconds() * float64(gpusOf(run))
}

// live puts a run into the state that held nodes then.
func (p *past) live(j *job.Job, a *api.Run, h history) {
	then := *a
	then.Ended = nil
	then.State = job.RunOrdered
	then.Cause = job.CauseNone

	j.State = job.Starting
	if a.Started != nil && !a.Started.After(p.at) {
		then.State, j.State = job.RunRunning, job.Running
		if j.Started.IsZero() {
			j.Started = *a.Started
		}
	} else {
		then.Started = nil
	}

	if h.stopping(a.ID, p.at) {
		then.State = job.RunStopping
	}

	run := runOf(j, &then)
	for i := range run.Ranks {
		run.Ranks[i].State = then.State
	}

	p.view.State.Runs = append(p.view.State.Runs, run)
}

// history is the events of one job, oldest first.
type history []api.Event

// history reads the events of a job up to then.
func (p *past) history(ctx context.Context, j id.Job) (history, error) {
	f := api.EventFilter{Job: j}
	f.Limit = pageSize
	var all history

	for {
		page, err := p.Events(ctx, f)
		if err != nil {
			return nil, err
		}

		for _, e := range page.Events {
			if e.At.After(p.at) {
				return all, nil
			}

			all = append(all, e)
		}

		if len(page.Events) < pageSize {
			return all, nil
		}

		f.Cursor = page.Next
	}
}

// stateAt returns the state of a job just before what was decided at a time.
func (h history) stateAt(at time.Time) (s job.State, reason string, notBefore time.Time) {
	s = job.Pending
	for i := range h {
		e := &h[i]
		if !strings.HasPrefix(e.Kind, "job.") || e.To == "" ||
			e.At.Equal(at) && (e.To == string(job.Starting) || e.To == string(job.Running)) {
			continue
		}

		s, reason, notBefore = job.State(e.To), e.Reason, time.Time{}
		if e.NotBefore != nil && e.Hold == "" {
			notBefore = *e.NotBefore
		}
	}

	return s, reason, notBefore
}

// ordered returns the reason that was given when a run was ordered.
func (h history) ordered(run id.Run) string {
	for i := range h {
		if h[i].Run == run && h[i].To == string(job.Starting) {
			return h[i].Reason
		}
	}

	return ""
}

// stopping reports whether a run had been ordered to stop by then.
func (h history) stopping(run id.Run, at time.Time) bool {
	return slices.ContainsFunc(h, func(e api.Event) bool {
		stops := e.Kind == "run.stopping" || e.Kind == "run.timed_out" || e.To == string(job.Cancelling) ||
			e.To == string(job.Pausing)
		return stops && e.Run == run && e.At.Before(at)
	})
}

// everything finds the nodes that were there then, as they were.
func (p *past) everything(ctx context.Context) error {
	nodes, err := p.nodes(ctx)
	if err != nil {
		return err
	}

	fates := map[id.Node]*fate{}
	if p.admin {
		fates, err = p.fates(ctx)
		if err != nil {
			return err
		}
	} else {
		p.gap("past node states are visible to admins only: nodes are shown in their present state")
	}

	there := map[id.Node]bool{}

	for i := range nodes {
		n := nodeOf(&nodes[i])
		there[n.ID] = true

		if f := fates[n.ID]; f != nil {
			if f.joined.After(p.at) {
				continue
			}

			n.State, n.Cordoned = f.state, f.drained
			if f.rebuilt {
				p.gap("the hardware or agent of node %s has changed since then: its present inventory is used", n.ID)
			}
		}

		if slices.ContainsFunc(p.out.Run.Ranks, func(k api.Rank) bool { return k.Node == n.ID }) {
			n.State, n.Cordoned = fleet.Ready, false // else nothing could have been ordered there
		}

		p.view.State.Nodes = append(p.view.State.Nodes, n)
	}

	for _, name := range sortedNodes(fates) {
		if f := fates[name]; !there[name] && !f.joined.After(p.at) && f.state != fleet.Removed {
			p.gap("node %s existed then and has been removed since: its inventory is no longer available", name)
		}
	}

	return nil
}

func sortedNodes(m map[id.Node]*fate) []id.Node {
	var names []id.Node
	for n := range m {
		names = append(names, n)
	}

	slices.Sort(names)

	return names
}

// fate is what the events say about one node.
type fate struct {
	joined  time.Time
	state   fleet.State // then
	drained bool        // then
	rebuilt bool        // its inventory has changed since then
}

// fates reads the events of all nodes.
func (p *past) fates(ctx context.Context) (map[id.Node]*fate, error) {
	all := map[id.Node]*fate{}
	f := api.EventFilter{Kind: "node"}
	f.Limit = pageSize
	for {
		page, err := p.Events(ctx, f)
		if err != nil {
			return nil, err
		}

		for i := range page.Events {
			p.note(all, &page.Events[i])
		}

		if len(page.Events) < pageSize {
			return all, nil
		}

		f.Cursor = page.Next
	}
}

// note takes one event of a node.
func (p *past) note(all map[id.Node]*fate, e *api.Event) {
	n := all[e.Node]
	if n == nil {
		n = &fate{joined: e.At, state: fleet.Ready}
		all[e.Node] = n

		if e.Kind != "node.joined" {
			n.joined = time.Time{}
		}
	}

	later := e.At.After(p.at)
	switch {
	case e.Kind == "node.inventory":
		n.rebuilt = n.rebuilt || later
	case later:
	case e.Kind == "node.cordoned" || e.Kind == "node.uncordoned":
		n.drained = e.Kind == "node.cordoned"
	case e.To != "":
		n.state = fleet.State(e.To)
	}
}

// noteGaps lists what is never recorded, where it may have mattered.
func (p *past) noteGaps() {
	if !p.admin {
		p.gap("jobs of other users are not visible to you: nodes that they used appear to be free")
	}

	if p.worked {
		p.gap("job progress at that time is not recorded: jobs that had already run appear to start from the beginning")
	}

	if p.escaped {
		p.gap("nodes excluded and memory added after failures are not recorded")
	}

	if p.shared {
		p.gap("usage at that time is not recorded: fair share is based on usage until now")
	}

	p.gap("node prices, datasets and GPU use by programs outside the yard are those of today")
}
