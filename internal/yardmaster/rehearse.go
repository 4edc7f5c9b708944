package yardmaster

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// Candidate is a job that has not been submitted, with its forecast; nil if there is none.
type Candidate struct {
	Spec     *job.Spec
	Forecast *job.Forecast
	Needed   map[string]Needed // as of NewJob
}

// Rehearsal is the yard as it would be if the jobs of a file were submitted now. It shares
// nothing with the yard that changes, so that the policy is asked outside the loop.
type Rehearsal struct {
	copied *place.Copy // of the view
	view   *place.View // made of it by Previews
	policy place.Policy
	offers []fleet.Offer // all, open or not
	jobs   []rehearsedJob
}

// rehearsedJob is one job of the file.
type rehearsedJob struct {
	item *queue.Item // to be queued; nil if it would not be
	why  place.Why   // why it would not be queued
	need fleet.Need
	last time.Duration // as declared
	rule string        // of its datasets
	note string        // how much memory it needs because of a job like it, or that it would get a whole GPU
}

// Preview is what would happen to a job if its file were submitted now.
type Preview struct {
	Why     place.Why
	Starts  bool           // it would start with the next plan, now or as soon as runs have stopped for it
	Fits    []id.Node      // that could ever run it
	Options []place.Option // best first; none if the policy is no Adviser
}

// Rehearse prepares the question what would happen to the jobs of a file of this owner if they
// were submitted now, or says why they would be refused.
func (y *Yard) Rehearse(now time.Time, owner id.User, file []Candidate) (*Rehearsal, error) {
	y.setNow(now)
	records := make([]*jobRecord, len(file))

	byName := make(map[string][]id.Job, len(file))
	for i, c := range file {
		for _, name := range c.Spec.Needs {
			if _, outside := c.Needed[name]; !outside {
				byName[name] = []id.Job{""} // of its file, which may be asked about in part
			}
		}

		byName[c.Spec.Name] = []id.Job{id.NewJob(y.lastJob + 1 + uint64(i))}
	}

	for i, c := range file {
		r := &jobRecord{
			Job: job.Job{
				ID:        id.NewJob(y.lastJob + 1 + uint64(i)),
				Owner:     owner,
				Project:   id.Project(c.Spec.Project),
				Spec:      c.Spec,
				State:     job.Pending,
				Submitted: y.now,
				Since:     y.now,
			},
		}

		r.outlook = job.NewOutlook(&r.Job)
		r.outlook.Forecast = c.Forecast
		y.recordReference(r)

		if err := y.checkNew(r); err != nil {
			return nil, err
		}
		if err := y.resolveNeeds(r, &NewJob{Spec: c.Spec, Needed: c.Needed}, byName); err != nil {
			return nil, err
		}

		records[i] = r
	}

	policy := y.cfg.Policy
	if y.planning {
		policy = y.atBegin
	}

	h := &Rehearsal{policy: place.Rehearsal(policy), offers: y.leases.Market.All(), jobs: make([]rehearsedJob, len(file))}
	v := y.view(now)

	for i, r := range records {
		h.jobs[i] = y.rehearse(v, r)
	}

	h.copied = y.copyView(v)

	return h, nil
}

// rehearse describes a job as one to be queued, unless it would not be, and adds its limits to the view.
func (y *Yard) rehearse(v *place.View, r *jobRecord) rehearsedJob {
	y.expectMemory(r)
	need := y.describeItem(r)
	out := rehearsedJob{
		need: need, last: r.Spec.DeclaredDuration(), rule: y.data.RuleText(r.Spec.Place, r.Spec.Data),
		note: y.notesOn(r, &need),
	}

	if len(r.Needs) > 0 {
		out.why = place.Why{Blocker: place.BlockNeeds, Sentence: "starts after " + humanize.List(r.Spec.Needs...)}
		// Those of its file have no ids yet.
		isNew := func(n id.Job) bool { return y.jobs[n] == nil }
		if known := slices.DeleteFunc(slices.Clone(r.Needs), isNew); len(known) > 0 {
			out.why.Sentence = needsReason(known)
		}

		return out
	}

	if held := y.heldBack(r, need.GPUs*need.Nodes); held.reason != "" {
		out.why = held.why()
		return out
	}

	if y.limited() || r.Spec.Budget > 0 {
		if v.Limits == nil {
			v.Limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{}}
		}

		v.Limits.Jobs[r.ID] = y.allowance(r)
	}

	out.item = r.entry

	return out
}

// Previews asks the policy and says what would become of each job; it may be called once. The search of the policy is
// cut short when stop reports true; nil sets no limit.
func (h *Rehearsal) Previews(stop func() bool) []Preview {
	h.view = h.copied.View()
	h.enqueue()
	list, _ := h.judge(stop)

	return list
}

// enqueue adds the jobs to the queue of the view.
func (h *Rehearsal) enqueue() {
	for i := range h.jobs {
		if o := &h.jobs[i]; o.item != nil {
			h.view.Queue.Add(o.item, o.need)
		}
	}
}

// judge asks the policy and says what would become of each job, and what it would start and stop.
func (h *Rehearsal) judge(stop func() bool) ([]Preview, place.Checked) {
	list := make([]Preview, len(h.jobs))
	for i := range h.jobs {
		m := fleet.NewMatcher(h.jobs[i].need)
		for k := range h.view.Rooms {
			if m.Eligible(&h.view.Rooms[k]) {
				list[i].Fits = append(list[i].Fits, h.view.Rooms[k].Node.ID)
			}
		}
	}

	plan := place.Within(h.policy, h.view, stop)
	good, _ := place.Check(h.view, plan)

	if adviser, ok := h.policy.(place.Adviser); ok {
		for i := range h.jobs {
			if it := h.jobs[i].item; it != nil {
				list[i].Options = adviser.Options(h.view, it)
			}
		}
	}

	free := make([]bool, len(good.Starts)) // what they take is free now
	for i := range good.Starts {
		free[i] = h.vacant(&good.Starts[i])
	}

	held := h.overQuota(&good)
	carried := place.Checked{Stops: good.Stops}

	for i := range good.Starts {
		if _, over := held[good.Starts[i].Item.Job]; !over {
			carried.Starts = append(carried.Starts, good.Starts[i])
		}
	}

	h.view.Carry(carried)

	for i := range h.jobs {
		o := &h.jobs[i]
		if o.item == nil {
			list[i].Why = o.why
			continue
		}

		list[i].Why = h.verdict(o, &plan, held)

		for k := range good.Starts {
			if s := &good.Starts[k]; s.Item == o.item && held[o.item.Job] == (hold{}) {
				list[i].Why, list[i].Starts = h.started(s, free[k]), true
			}
		}

		addReasons(&list[i].Why, o.note)
	}

	return list, good
}

// vacant reports whether what a start takes is free.
func (h *Rehearsal) vacant(s *place.Start) bool {
	need := &s.Item.Shape.Need
	for _, a := range s.Allocations {
		r := h.view.RoomOf(a.Node)
		if r == nil || a.Share == 0 && a.GPUs&^r.Free != 0 || r.CPUs < need.CPUs || r.Memory < need.Memory {
			return false
		}
	}

	return true
}

// started says that a job would start, now or when runs have stopped for it.
func (h *Rehearsal) started(s *place.Start, now bool) place.Why {
	if now {
		return place.Why{Blocker: place.BlockNone, Sentence: "starts on " + startNodes(s.Allocations) + " now",
			Start: h.view.Now}
	}

	return place.Why{
		Blocker:  place.BlockNone,
		Sentence: "starts on " + startNodes(s.Allocations) + " as soon as the jobs that are preempted for it have stopped",
	}
}

// overQuota returns which of the starts of a plan a quota does not allow once those before them have started, and
// which of the jobs asked about that do not start it holds then. Starts on more GPUs than it leaves are cut down to
// that, as they will be.
func (h *Rehearsal) overQuota(plan *place.Checked) map[id.Job]hold {
	held := map[id.Job]hold{}
	if h.view.Limits == nil {
		return held
	}

	users, projects := map[id.User]int{}, map[id.Project]int{}
	used := func(it *queue.Item) int { return max(users[it.User], projects[it.Project]) }
	holds := map[id.Job]int{} // what jobs give back that the plan stops
	starts := map[id.Job]bool{}

	for i := range plan.Stops {
		holds[plan.Stops[i].Running.Job] = plan.Stops[i].Running.GPUs
	}

	for i := range plan.Starts {
		it := plan.Starts[i].Item
		used := used(it) - holds[it.Job]
		starts[it.Job] = true

		allowance := h.view.Allow(it)
		if allowance.Ceiling != tenant.NoLimit {
			plan.Starts[i] = *plan.Starts[i].Capped(allowance.Ceiling - used)
		}

		gpus := plan.Starts[i].GPUs()
		if over := holdFor(allowance, gpus+used); over.reason != "" && holds[it.Job] == 0 {
			held[it.Job] = over
			continue
		}

		gpus -= holds[it.Job]

		users[it.User] += gpus
		if it.Project != "" {
			projects[it.Project] += gpus
		}
	}

	// What does not start is held once those that do leave too little of the quota for it.
	for i := range h.jobs {
		it, need := h.jobs[i].item, &h.jobs[i].need
		if it == nil || starts[it.Job] {
			continue
		}

		if over := holdFor(h.view.Allow(it), need.GPUs*need.Nodes+used(it)); over.reason != "" {
			held[it.Job] = over
		}
	}

	return held
}

// verdict says why a job would not start with the plan.
func (h *Rehearsal) verdict(o *rehearsedJob, plan *place.Plan, held map[id.Job]hold) place.Why {
	j := o.item.Job
	if over, ok := held[j]; ok {
		return over.why()
	}

	for i := range plan.Provisions {
		p := &plan.Provisions[i]
		if p.Item != o.item {
			continue
		}

		if why := provisionQuotaReached(h.view.Allow(o.item), p); why != "" {
			return place.Why{
				Blocker: place.BlockLimit, Sentence: fmt.Sprintf("%s cannot be provisioned: %s", p.Offer, why),
			}
		}

		return h.provisions(p)
	}

	reason := ""
	for i := range plan.Waits {
		if plan.Waits[i].Job == j {
			reason = plan.Waits[i].Reason
		}
	}

	queued := place.QueuedJob{
		Job: j, Need: o.need, Short: plan.Reservation.EndsBefore(h.view.Now, o.last), Rule: o.rule,
	}
	verdict := place.Verdict{Policy: h.policy.Name(), Reservation: plan.Reservation, Said: reason != ""}
	w := place.Explain(h.view, queued, verdict)
	considerOffers(&w, o.need, without(h.offers, h.view.Exhausted), h.view.Exhausted, &verdict, h.view.Now)
	addReasons(&w, reason)

	return w
}

// provisions says that nodes would be provisioned for a job.
func (h *Rehearsal) provisions(p *place.Provision) place.Why {
	sentence := "a node would be provisioned: " + p.Offer
	if p.Count > 1 {
		sentence = fmt.Sprintf("%s would be provisioned: %s", humanize.Count(p.Count, "node"), p.Offer)
	}

	var ready time.Time
	for i := range h.view.Offers {
		if o := &h.view.Offers[i]; o.Name == p.Offer && o.Boot > 0 {
			ready = h.view.Now.Add(time.Duration(o.Boot))
		}
	}

	return provisioning(sentence, ready, h.view.Now)
}
