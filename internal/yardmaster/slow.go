package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Running jobs that are too slow and that no plan moves: their owners decide.

// noteSlow tells the owners of jobs that are too slow, and asks them what is to be done, once for each run.
func (y *Yard) noteSlow(list []place.Slow) {
	for _, s := range list {
		r, ok := y.jobs[s.Running.Job]
		if !ok || r.running != s.Running || r.run == nil || r.run.slowNoted {
			continue
		}

		r.run.slowNoted = true
		y.event(Event{
			Kind: "job.slow", Actor: theYard, Owner: r.Owner, Job: r.ID, Run: r.run.ID, Reason: s.Reason,
		})
		y.ask(r, inbox.TooSlow)
	}
}

// withdrawSlow withdraws the question what is to be done about a job that is too slow if it is not any more.
func (y *Yard) withdrawSlow(r *jobRecord) {
	if q := r.question(inbox.TooSlow); q != nil && !y.undecidedSlow(r) {
		y.closeQuestion(r, q, inbox.Withdraw, theYard, y.notSlow(r))
	}
}

// undecidedSlow reports whether the owner of a job that is too slow may decide what is done. One good forecast does not
// mean that it is fast enough.
func (y *Yard) undecidedSlow(r *jobRecord) bool {
	if r.running == nil || r.running.Stopping || r.State != job.Running || len(y.awaited(r)) > 0 {
		return false
	}

	if r.question(inbox.TooSlow) != nil {
		return r.outlook.Slow > -place.SlowForecasts
	}

	return r.outlook.Slow >= place.SlowForecasts
}

// notSlow says why there is nothing to decide about a job that was too slow.
func (y *Yard) notSlow(r *jobRecord) string {
	switch {
	case r.running == nil || r.State != job.Running:
		return "job " + string(r.ID) + " is " + string(r.State)
	case r.running.Stopping:
		return "job " + string(r.ID) + " is being moved"
	case len(y.awaited(r)) > 0:
		return "a faster node is being provisioned for job " + string(r.ID)
	}

	return "job " + string(r.ID) + " is no longer too slow"
}

// tooSlow is the situation of a running job that is too slow.
func (y *Yard) tooSlow(r *jobRecord) (situation, bool) {
	if !y.undecidedSlow(r) {
		return situation{}, false
	}

	s := situation{sentence: y.slowWords(r), unless: "it continues where it is"}
	s.options = append(s.options, y.leaveOption(r))
	s.options = append(s.options, y.fasterOptions(r)...)
	s.options = append(s.options, pauseOption(r), cancelOption(r))

	return s, true
}

// slowWords says how slow a job is, in figures that do not change from one forecast to the next.
func (y *Yard) slowWords(r *jobRecord) string {
	where := nodesOf(r.run)
	if d := r.outlook.Deadline; !d.IsZero() {
		return fmt.Sprintf("too slow on %s: it will probably miss its deadline at %s", where, humanize.Time(d, y.now.UTC()))
	}

	return fmt.Sprintf("too slow on %s: it takes much longer than the %s that were expected there", where,
		humanize.Duration(r.running.Takes))
}

// leaveOption is to leave a running job where it is.
func (y *Yard) leaveOption(r *jobRecord) inbox.Option {
	var p prospect

	if end := expectedEnd(y.now, r.Spec, &r.run.Run, r.running); !end.IsZero() {
		left := max(end.Sub(y.now), 0)
		p.setEnd(y.now, r.outlook.Forecast, left)

		if hourly := r.run.hourly(); hourly > 0 {
			cost := hourly.For(left)
			p.cost = &cost
		}
	}

	return p.option(optionLeave, "leave it where it is", inbox.Action{Verb: inbox.Keep})
}

// fasterOptions lists where a running job would end earlier: where it may run, and where its job file does not let it
// if it would end earlier still there.
func (y *Yard) fasterOptions(r *jobRecord) []inbox.Option {
	p, ok := y.cfg.Policy.(place.Relocator)
	if !ok || !p.Relocates() {
		return nil
	}

	v := y.view(y.now)
	if v.Limits != nil {
		v.Limits.Jobs[r.ID] = y.allowance(r)
	}

	var list []inbox.Option
	need := r.running.Shape.Need
	soonest := time.Duration(1<<63 - 1)

	for _, f := range fasterWith(v, p, r, need) {
		name := optionNode
		if f.Offer != "" {
			name = optionOffer
		}

		soonest = min(soonest, f.EndsIn)
		list = append(list, y.fasterOption(r, name, "move it to "+f.What, &f, nil))
	}

	gpus := need
	gpus.Kinds, gpus.GPUMax = "", 0

	if f, ok := earliest(fasterWith(v, p, r, gpus), soonest); ok && gpus != need {
		list = append(list, y.fasterOption(r, optionGPU, "let it use "+f.What, &f, otherGPU(r, need, f.GPU)))
	}

	anywhere := need
	anywhere.Place = y.placeIfAny(r)

	if f, ok := earliest(fasterWith(v, p, r, anywhere), soonest); ok && anywhere != need {
		change := &job.Amendment{Place: job.PlaceAny}
		list = append(list, y.fasterOption(r, optionPlace, "set place: any, and move it to "+f.What, &f, change))
	}

	return list
}

// fasterWith lists where a running job would end earlier if it had a need.
func fasterWith(v *place.View, p place.Relocator, r *jobRecord, need fleet.Need) []place.Faster {
	item, run := *r.running.Item, *r.running
	item.Shape = &queue.Shape{Need: need}
	run.Item = &item

	return p.Faster(v, &run)
}

// earliest returns the way in which a job ends first, if that is before a time from now.
func earliest(list []place.Faster, before time.Duration) (place.Faster, bool) {
	var best place.Faster
	found := false

	for _, f := range list {
		if f.EndsIn < before {
			best, before, found = f, f.EndsIn, true
		}
	}

	return best, found
}

// otherGPU lets a job use GPUs of another model, or with more memory, than its job file does.
func otherGPU(r *jobRecord, need fleet.Need, model string) *job.Amendment {
	change := &job.Amendment{}
	if need.Kinds != "" {
		change.GPU = append(append([]job.GPUKind{}, r.Spec.Resources.GPU...), job.GPUKind{Model: model})
	}

	if need.GPUMax > 0 {
		change.GPUMemory = job.ByteRange{Min: max(need.GPUMin, 1)}
	}

	return change
}

// placeIfAny returns where a job could run if its job file did not say where.
func (y *Yard) placeIfAny(r *jobRecord) job.Place {
	anywhere := *r.Spec
	anywhere.Place = job.PlaceAny
	elsewhere := r.Job
	elsewhere.Spec = &anywhere

	return y.data.Place(&elsewhere)
}

// fasterOption is to move a running job.
func (y *Yard) fasterOption(
	r *jobRecord, name, sentence string, f *place.Faster, change *job.Amendment,
) inbox.Option {
	to := &inbox.Target{Offer: f.Offer, Count: f.Count}
	cost := f.Cost

	for i := range f.Allocations {
		a := &f.Allocations[i]
		to.Nodes = append(to.Nodes, a.Node)
		to.GPUs = len(fleet.Indices(a.GPUs))
		cost += y.hourlyOn(r, a).For(f.Left)
	}

	if f.Count > 0 {
		to.GPUs = f.GPUs / f.Count
	}

	p := prospect{cost: &cost}
	p.setEnd(y.now, r.outlook.Forecast, f.EndsIn)

	return p.option(name, sentence, inbox.Action{Verb: inbox.Move, Amend: change, Where: to})
}

// hourlyOn returns what an allocation of a node costs a job in an hour.
func (y *Yard) hourlyOn(r *jobRecord, a *place.Allocation) money.PerHour {
	n := y.nodes.Of(a.Node)
	if n == nil {
		return 0
	}

	hold := fleet.Hold{GPUs: a.GPUs, CPUs: r.running.Shape.Need.CPUs}

	return ledger.Hourly(n, y.cfg.Tariff, y.Lease(n.Lease), ledger.HolderOf(&hold, r.Project))
}

// provisionAccepted provisions the nodes of an option, if it has some. The job continues until they are ready.
func (y *Yard) provisionAccepted(r *jobRecord, o *inbox.Option, by id.User) error {
	to := o.Action.Where
	if to.Offer == "" {
		return nil
	}

	h := place.Provision{
		Item: r.entry, Running: r.running, Offer: to.Offer, Count: to.Count, GPUs: to.Count * to.GPUs, Cost: *o.Cost,
		By: by, Reason: fmt.Sprintf("accepted by %s: %s", by, o.Sentence),
	}

	if why := y.provision(&h); why != "" {
		return fault.New(fault.Conflict, "not_provisioned", "%s cannot be provisioned: %s", to.Offer, why).
			WithRemedy("trainyard inbox lists the options as they are now")
	}

	y.settleLeases()

	return nil
}

// moveAccepted moves a job to nodes of the yard, as was accepted.
func (y *Yard) moveAccepted(r *jobRecord, to *inbox.Target, by id.User) {
	if len(to.Nodes) == 0 {
		return // it moves when its nodes are ready
	}

	match := fleet.NewMatcher(r.running.Shape.Need)
	start := place.Start{Item: r.running.Item, Reason: fmt.Sprintf("moves to %s as %s accepted", to.Nodes[0], by)}

	for _, n := range to.Nodes {
		room, ok := y.nodes.Rooms.Get(n)
		if !ok {
			continue // the check of the plan says so
		}

		free, _ := match.Fits(room)
		start.Allocations = append(start.Allocations, place.Allocation{Node: n, GPUs: fleet.LowestGPUs(free, to.GPUs)})
	}

	y.carryOutPlan(y.now, place.Plan{
		Stops:  []place.Stop{{Running: r.running, Reason: start.Reason, Kind: place.Move}},
		Starts: []place.Start{start},
	})
}

// redescribe brings up to date what plans know of a running job that was amended.
func (y *Yard) redescribe(r *jobRecord) {
	since := r.entry.Since
	need := y.describeItem(r)
	r.entry.Since = since
	r.entry.Shape = y.queue.ShapeOf(need)
	r.running.Item = r.entry
}
