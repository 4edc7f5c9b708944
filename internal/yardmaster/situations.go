package yardmaster

import (
	"fmt"
	"math"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/queue"
)

// What there is to decide about a job, by the kind of question. Each situation is worked out from the yard as it is.

// The options.
const (
	optionLarger = "larger"       // a node with more memory that the job may use
	optionGPU    = "other-gpu"    // GPUs that the job file excludes
	optionPlace  = "any-place"    // nodes that the job file excludes
	optionWait   = "wait"         // until there is a node with more memory
	optionRetry  = "retry"        // as it was
	optionRaise  = "raise-budget" // by what it is expected to cost
	optionRepeat = "same-again"   // raise the budget by as much as it was
	optionLeave  = "leave"        // where it is
	optionNode   = "faster-node"  // idle nodes of the yard that the job may use
	optionOffer  = "faster-offer" // nodes that are provisioned for it
	optionPause  = "pause"
	optionCancel = "cancel"
)

// failedJob is what happens to a failed job if nobody decides otherwise.
const failedJob = "the job fails"

// holdFailed holds a job whose run has failed until its owner has decided what follows, and reports whether there is
// something to decide.
func (y *Yard) holdFailed(r *jobRecord, h job.Handling, reason string) bool {
	kind := inbox.RetriesOver
	if h.Next == job.NextEscalate {
		kind = inbox.OutOfMemory
	}

	if y.cfg.Unattended || y.cfg.AskFor == 0 || !h.Asks() || kind == inbox.OutOfMemory && r.Lacked == (job.Floor{}) {
		return false
	}

	y.unpromise(r) // a plan may have moved it elsewhere when it failed
	y.must(y.moveJob(r, job.EventHold, theYard, reason))
	y.suspendDecision(r)

	return y.ask(r, kind)
}

// outOfMemory is the situation of a job that is held because nothing that it may use has more memory.
func (y *Yard) outOfMemory(r *jobRecord) (situation, bool) {
	if r.State != job.Paused || r.Lacked == (job.Floor{}) {
		return situation{}, false
	}

	s := situation{sentence: r.Reason, unless: failedJob, lasts: y.cfg.AskFor}
	floor := y.nextFloor(r)
	need := y.needOf(r.Spec, floor, nil)
	need.Place = y.data.Place(&r.Job)

	if p, ok := y.prospect(r, need); ok { // a node has joined meanwhile, or an offer has come back
		s.options = append(s.options, p.option(optionLarger, "run it on "+p.where, inbox.Action{
			Verb: inbox.Requeue, Floor: floor,
		}))
	}

	s.options = append(s.options, y.relaxed(r, need, floor)...)

	if len(s.options) == 0 || s.options[0].ID != optionLarger {
		s.options = append(s.options, inbox.Option{
			ID: optionWait, Sentence: "queue it until there is a node with " + floorWords(floor, need.Share > 0),
			Action: inbox.Action{Verb: inbox.Requeue, Floor: floor},
		})
	}

	s.options = append(s.options, inbox.Option{
		ID: optionRetry, Sentence: "run it again with as much memory as before", Action: inbox.Action{Verb: inbox.Requeue},
	}, cancelOption(r))

	return s, true
}

// relaxed returns the options to run a job where its job file does not let it run: on other GPUs, or in other places.
func (y *Yard) relaxed(r *jobRecord, need fleet.Need, floor job.Floor) []inbox.Option {
	var list []inbox.Option

	gpus := need
	gpus.Kinds, gpus.GPUMax = "", 0

	if p, ok := y.prospect(r, gpus); ok && gpus != need && p.gpu.Model != "" {
		list = append(list, p.option(optionGPU, "let it use "+p.where, inbox.Action{
			Verb: inbox.Requeue, Floor: floor, Amend: otherGPU(r, need, p.gpu.Model),
		}))
	}

	wider := need
	wider.Place = y.placeIfAny(r)

	if p, ok := y.prospect(r, wider); ok && wider.Place != need.Place {
		list = append(list, p.option(optionPlace, "set place: any, and run it on "+p.where, inbox.Action{
			Verb: inbox.Requeue, Floor: floor, Amend: &job.Amendment{Place: job.PlaceAny},
		}))
	}

	return list
}

// floorWords names what a floor asks for.
func floorWords(f job.Floor, part bool) string {
	var words []string
	switch {
	case f.GPUMemory > 0 && part:
		words = append(words, "more than "+humanize.Size(f.GPUMemory)+" of the memory of a GPU")
	case f.GPUMemory > 0:
		words = append(words, "GPUs with more than "+humanize.Size(f.GPUMemory))
	}

	if f.Memory > 0 {
		words = append(words, humanize.Size(f.Memory)+" of memory")
	}

	return strings.Join(words, " and ")
}

// retriesOver is the situation of a job that failed too often for a cause that lies outside its program.
func (y *Yard) retriesOver(r *jobRecord) (situation, bool) {
	if r.State != job.Paused {
		return situation{}, false
	}

	s := situation{sentence: r.Reason, unless: failedJob, lasts: y.cfg.AskFor}
	again := inbox.Action{Verb: inbox.Requeue}
	retry := inbox.Option{ID: optionRetry, Sentence: "try again; the failures so far do not count any more", Action: again}

	if p, ok := y.prospect(r, y.need(r)); ok {
		retry = p.option(optionRetry, retry.Sentence, again)
	}

	s.options = []inbox.Option{retry, cancelOption(r)}

	return s, true
}

// overBudget is the situation of a job that was stopped because its budget is used up.
func (y *Yard) overBudget(r *jobRecord) (situation, bool) {
	if r.Spec.Budget == 0 || r.State != job.Paused && r.State != job.Pausing {
		return situation{}, false
	}

	budget := r.Spec.Budget
	s := situation{
		sentence: fmt.Sprintf("the budget of %s is used up and the job has not finished", humanize.Dollars(budget.Amount())),
		unless:   "the job stays paused",
	}

	if p, missing, ok := y.forecastCost(r); ok {
		total := job.Money((budget.Amount() + missing).Micros())
		s.options = append(s.options, p.option(optionRaise,
			fmt.Sprintf("raise the budget by %s to %s, which is enough with a probability of 90%%", humanize.Dollars(missing),
				humanize.Dollars(total.Amount())),
			inbox.Action{Verb: inbox.Requeue, Amend: &job.Amendment{Budget: total}}))
	}

	s.options = append(s.options, inbox.Option{
		ID: optionRepeat, Sentence: "let it spend " + humanize.Dollars(budget.Amount()) + " more",
		Action: inbox.Action{Verb: inbox.Requeue, Amend: &job.Amendment{Budget: 2 * budget}},
	}, cancelOption(r))

	return s, true
}

// forecastCost returns what the rest of a job is expected to cost, and by how much its budget must be raised for that.
// The upper end of an 80 % interval is exceeded in one case of ten.
func (y *Yard) forecastCost(r *jobRecord) (prospect, money.Amount, bool) {
	f := r.outlook.Forecast
	if f == nil || !f.Informed() || f.Cost.Mid <= 0 {
		return prospect{}, 0, false
	}

	soFar := y.costOf(r)
	rest := max(money.Amount(f.Cost.Mid)-soFar, 0)

	// Of the raised budget as much must be left as the whole job may cost more than it has cost.
	missing := max(money.Amount(f.Cost.High)-soFar, rest) + max(soFar-r.Paid-r.Spec.Budget.Amount(), 0)
	missing = money.Amount(math.Ceil(float64(missing)*100) / 100) // whole cents

	if missing <= 0 {
		return prospect{}, 0, false
	}

	p := prospect{cost: &rest}
	p.setEnd(y.now, f, job.Seconds(f.Remaining.Mid))

	return p, missing, true
}

// notice is the situation after the yard has done something with a job by itself.
func (y *Yard) notice(r *jobRecord) (situation, bool) {
	if r.State.Final() || r.State == job.Cancelling {
		return situation{}, false
	}

	options := []inbox.Option{cancelOption(r)}
	if r.State != job.Paused && r.State != job.Pausing {
		options = append([]inbox.Option{pauseOption(r)}, options...)
	}

	return situation{sentence: r.Reason, options: options, lasts: y.cfg.AskFor}, true
}

func pauseOption(r *jobRecord) inbox.Option {
	return inbox.Option{
		ID: optionPause, Sentence: "pause it; trainyard resume " + string(r.ID) + " lets it go on",
		Action: inbox.Action{Verb: inbox.Pause},
	}
}

func cancelOption(r *jobRecord) inbox.Option {
	var nothing money.Amount

	return inbox.Option{
		ID: optionCancel, Sentence: "cancel job " + string(r.ID), Cost: &nothing, Action: inbox.Action{Verb: inbox.Cancel},
	}
}

// prospect is what is expected of the rest of a job if it runs in some way.
type prospect struct {
	where          string        // nodes or offer
	gpu            job.GPUKind   // that it has there
	cost           *money.Amount // nil if unknown
	end, low, high time.Time     // zero if unknown
}

// option returns an option with what is expected of it.
func (p *prospect) option(name, sentence string, do inbox.Action) inbox.Option {
	return inbox.Option{
		ID: name, Sentence: sentence, Cost: p.cost, End: p.end, EndLow: p.low, EndHigh: p.high, Action: do,
	}
}

// setEnd records when a job ends that starts at a time and runs so long, with the relative interval of its forecast.
func (p *prospect) setEnd(start time.Time, f *job.Forecast, runs time.Duration) {
	p.end = start.Add(runs)
	if f == nil || !f.Informed() || f.Remaining.Mid <= 0 {
		return
	}

	p.low = start.Add(job.Seconds(runs.Seconds() * f.Remaining.Low / f.Remaining.Mid))
	p.high = start.Add(job.Seconds(runs.Seconds() * f.Remaining.High / f.Remaining.Mid))
}

// prospect returns what is expected of the rest of a job on the cheapest nodes that meet a need, those with room now
// before the others, and otherwise on nodes that could be provisioned within what it may spend.
func (y *Yard) prospect(r *jobRecord, need fleet.Need) (prospect, bool) {
	item := &queue.Item{Job: r.ID, Spec: r.Spec, Outlook: r.outlook, Shape: &queue.Shape{Need: need}}
	item.Lasts = r.outlook.Duration(r.Spec, need.GPUs*need.Nodes, need.Nodes)
	match := fleet.NewMatcher(need)
	rooms := y.nodes.Rooms.SharedRooms()

	var best prospect
	bestFree, found := false, []*fleet.Room(nil)

	for i := range rooms {
		room := &rooms[i]
		if !match.Eligible(room) {
			continue
		}

		found = append(found, room)
		_, free := match.Fits(room)
		if cut := place.CutOf(item, need.Share); need.Share > 0 && !free {
			_, _, free = match.FitsPart(room, &cut)
		}

		p := y.prospectOn(r, item, room, match.MatchingGPUs(room), free)
		cheaper := p.cost != nil && (best.cost == nil || *p.cost < *best.cost)

		if best.where == "" || free && !bestFree || free == bestFree && cheaper {
			best, bestFree = p, free
		}
	}

	if need.MostAlike(found) >= max(need.Nodes, 1) {
		return best, true
	}

	return y.prospectOffer(r, need, item.Lasts)
}

// prospectOn returns what is expected on a node.
func (y *Yard) prospectOn(r *jobRecord, it *queue.Item, room *fleet.Room, set uint64, free bool) prospect {
	need := &it.Shape.Need
	gpus := fleet.LowestGPUs(set, need.GPUs)
	gpu := place.FirstGPU(room.Node, gpus)
	p := prospect{where: "node " + string(room.Node.ID)}

	if gpu != nil {
		p.where += " with "
		if need.Share > 0 {
			p.where += humanize.Percent(need.Share) + " of "
		}

		p.where += humanize.GPUs(need.GPUs, gpu.Model, gpu.Memory)
		p.gpu = job.GPUKind{Model: gpu.Model}
	}

	runs := place.RunTimeOf(it, it.Lasts, gpu, need.GPUs*need.Nodes, need.Nodes)
	if need.Share > 0 {
		runs = place.RunTimeOnPart(it, it.Lasts, gpu, need.Share)
	}

	if runs <= 0 {
		return p
	}

	if lease := y.Lease(room.Node.Lease); lease != nil || y.cfg.Tariff.Of(room.Node) != nil {
		hold := fleet.Hold{GPUs: gpus, Share: need.Share, CPUs: need.CPUs}
		hourly := ledger.Hourly(room.Node, y.cfg.Tariff, lease, ledger.HolderOf(&hold, r.Project))
		cost := hourly.Times(float64(need.Nodes)).For(runs)
		p.cost = &cost
	}

	if free {
		p.setEnd(y.now, r.outlook.Forecast, runs)
	}

	return p
}

// prospectOffer returns what is expected on nodes that would be provisioned.
func (y *Yard) prospectOffer(r *jobRecord, need fleet.Need, lasts time.Duration) (prospect, bool) {
	if !fleet.OnDemand.Allows(need.Place) || len(y.cfg.Offers) == 0 {
		return prospect{}, false
	}

	open, _ := y.leases.Offers(y.now)
	options := provision.Options(open, need, provision.Query{
		Now: y.now, Objective: r.Spec.Objective, Run: lasts, Reference: r.Reference, Spec: r.Spec,
		CheckpointEvery: r.outlook.Every,
	})

	allowance := y.allowance(r)
	if len(options) == 0 || allowance.NoProvisioning || allowance.HoldReason != "" {
		return prospect{}, false
	}

	best := &options[0]
	p := prospect{
		where: humanize.Times(best.Nodes, "on-demand node "+best.Offer.Name),
		gpu:   job.GPUKind{Model: best.Offer.GPU},
	}

	if best.Guessed {
		return p, true
	}

	if best.Money > allowance.Money {
		return prospect{}, false
	}

	p.cost = &best.Money
	p.setEnd(best.Start, r.outlook.Forecast, best.Finish.Sub(best.Start))

	return p, true
}
