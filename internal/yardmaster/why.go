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
	"trainyard/internal/provision"
	"trainyard/internal/tenant"
)

// WhyReport is why a job is queued, with its position in the queue.
type WhyReport struct {
	place.Why
	Position int // from 1; 0 if it is not in the queue or further back than maxPosition
}

// maxPosition is the greatest position that is told: what is further back changes too often to be of use.
const maxPosition = 10_000

// Question is all that it depends on why a queued job waits, beside what a snapshot says of the nodes and of offers.
// Jobs with the same question have the same answer, so nothing is in it that most jobs have of their own: not how long
// they last, only whether that is short enough, and not what the last plan says of one, only that it says something.
type Question struct {
	Job         id.Job // "" unless nodes are reserved for it
	Need        fleet.Need
	Rule        string             // of its datasets
	Due         bool               // another plan is due, so what the last one decided does not count
	Reservation *place.Reservation // of the last plan
	Short       bool               // it would have ended before that begins
	Said        bool               // the last plan says why it waits
}

// Explainer says why queued jobs wait. One that is used for many jobs answers each question once.
type Explainer interface {
	View() *place.View // its rooms alone
	Explain(q Question) place.Why
}

// Explainer returns an explainer that remembers nothing. It is not safe for concurrent use.
func (s *Snapshot) Explainer(now time.Time) Explainer { return &plainExplainer{s: s, now: now} }

type plainExplainer struct {
	s    *Snapshot
	now  time.Time
	view *place.View // nil until it is needed
}

// View is part of Explainer.
func (e *plainExplainer) View() *place.View {
	if e.view == nil {
		e.view = e.s.View(e.now)
	}

	return e.view
}

// Explain is part of Explainer.
func (e *plainExplainer) Explain(q Question) place.Why { return e.s.Answer(e.View(), q) }

// View returns the rooms of the nodes, which is all of a view that an explanation needs.
func (s *Snapshot) View(now time.Time) *place.View {
	return &place.View{Now: s.clamp(now), Rooms: s.rooms.Rooms()}
}

// Answer says why the queued jobs with a question wait. The view is that of the snapshot.
func (s *Snapshot) Answer(v *place.View, q Question) place.Why {
	verdict := place.Verdict{Policy: s.policy, Reservation: q.Reservation, Said: q.Said, Due: q.Due}
	w := place.Explain(v, place.QueuedJob{Job: q.Job, Need: q.Need, Short: q.Short, Rule: q.Rule}, verdict)
	if len(s.offers) > 0 {
		considerOffers(&w, q.Need, without(s.offers, s.exhausted), s.exhausted, &verdict, v.Now)
	}

	if w.Blocker == place.BlockPolicy && q.Due {
		w.Blocker, w.Sentence = place.BlockNone, w.Sentence+"; considered in the next scheduling round"
	}

	return w
}

// Why says why a job does not run that was read from the store. It returns false for a job that is neither queued nor
// paused.
func (s *Snapshot) Why(now time.Time, j *job.Job, explainer Explainer) (place.Why, bool) {
	f := s.factsFor(j.ID)
	if f == nil || j.State != job.Paused && !j.State.Waiting() {
		return place.Why{}, false
	}

	return s.explain(s.clamp(now), j, f, explainer)
}

// Held reports whether a quota or a secret keeps a job out of the queue. Why that is so now, and not when it was held,
// only the yard knows: WhyHeld.
func (s *Snapshot) Held(j id.Job) bool {
	f := s.factsFor(j)

	return f != nil && f.held()
}

// held reports whether what holds a job is why it waits.
func (f *facts) held() bool {
	return f.state.Waiting() && len(f.needs) == 0 && f.promise == nil && f.hold.reason != ""
}

// Why says why a job does not run. It returns false for a job that is neither queued nor
// paused.
func (y *Yard) Why(now time.Time, j id.Job) (WhyReport, bool) {
	r, ok := y.jobs[j]
	if !ok {
		return WhyReport{}, false
	}

	s := y.Snapshot(now)
	why, waits := s.Why(y.now, &r.Job, s.Explainer(y.now))
	if !waits {
		return WhyReport{}, false
	}

	if s.Held(j) && why.Blocker != place.BlockBackoff {
		why = y.explainHold(r)
	}

	return NewWhyReport(why, s.Position(y.now, &r.Job)), true
}

// NewWhyReport returns why a job waits with its position in the queue.
func NewWhyReport(why place.Why, position int) WhyReport {
	w := WhyReport{Why: why, Position: position}
	if w.Position > 1 {
		w.Sentence += fmt.Sprintf("; %s ahead of it in the queue", humanize.Count(w.Position-1, "job"))
	}

	return w
}

// WhyHeld says what keeps jobs out of the queue now. It has no answer for a job that nothing does.
func (y *Yard) WhyHeld(now time.Time, jobs []id.Job) map[id.Job]place.Why {
	y.setNow(now)
	list := map[id.Job]place.Why{}

	for _, j := range jobs {
		if r, ok := y.jobs[j]; ok && r.hold.reason != "" {
			list[j] = y.explainHold(r)
		}
	}

	return list
}

// explain says why a job does not run; false if it runs or has ended. Everything that tells
// people why a job waits, or when it starts, has it from here: the job itself, lists, forecasts
// and simulations. What would become of a job that has not been submitted is said by the same
// parts, in Rehearsal.
func (s *Snapshot) explain(now time.Time, j *job.Job, f *facts, explainer Explainer) (place.Why, bool) {
	switch {
	case f.state == job.Paused:
		return place.Why{Blocker: place.BlockPaused, Sentence: j.Reason, Remedies: f.remedies}, true
	case !f.state.Waiting():
		return place.Why{}, false
	case len(f.needs) > 0:
		return s.explainNeeds(f.needs), true
	case f.promise != nil:
		return f.promise.explain(explainer.View()), true
	case !f.queued && j.NotBefore.After(now):
		return place.Why{Blocker: place.BlockBackoff, Sentence: j.Reason, NotBefore: j.NotBefore}, true
	case f.hold.reason != "":
		return f.hold.why(), true
	}

	if a, ok := s.arrivals[j.ID]; ok {
		return provisioning(a.Sentence, a.Ready, now), true
	}

	w := explainer.Explain(s.question(now, j, f))
	if !s.due {
		addReasons(&w, s.waits[j.ID], s.unprovided[j.ID])
	}

	addReasons(&w, memoryNote(now, j, s.shortages), wholeNote(j.Spec, &f.need, s.policy))

	return w, true
}

// question returns what it depends on why a queued job waits.
func (s *Snapshot) question(now time.Time, j *job.Job, f *facts) Question {
	q := Question{Need: f.need, Rule: f.rule, Due: s.due}
	if s.due {
		return q
	}

	q.Reservation, q.Said = s.reservation, s.waits[j.ID] != ""
	q.Short = s.reservation.EndsBefore(now, j.Spec.DeclaredDuration())

	if s.reservation != nil && s.reservation.Job == j.ID {
		q.Job = j.ID
	}

	return q
}

// notesOn says what else there is to know about the need of a job.
func (y *Yard) notesOn(r *jobRecord, need *fleet.Need) string {
	var w place.Why

	addReasons(&w, y.memoryNote(r), wholeNote(r.Spec, need, y.cfg.Policy.Name()))

	return w.Sentence
}

// wholeNote says that a job that asks for a part of a GPU waits for a whole one, "" if it does not.
func wholeNote(s *job.Spec, need *fleet.Need, policy string) string {
	if part := s.Resources.GPUShare; part == 0 || part == 1 || need.Share > 0 {
		return ""
	}

	return "policy " + policy + " does not share GPUs, so the job gets a whole one"
}

// pausedRemedies says how a paused job goes on.
func pausedRemedies(r *jobRecord) []place.Remedy {
	var list []place.Remedy
	for _, q := range r.questions {
		if q.Kind.Holds() {
			list = append(list, place.Remedy{Text: "trainyard accept " + string(q.ID) + " " + q.Options[0].ID})
		}
	}

	return append(list, place.Remedy{Text: "trainyard resume " + string(r.ID)})
}

// addReasons adds what the last plan says of a job. Where that is why it waits, it is the whole answer.
func addReasons(w *place.Why, reasons ...string) {
	for _, reason := range reasons {
		switch {
		case reason == "" || w.Sentence == reason:
		case w.Sentence == "":
			w.Sentence = reason
		default:
			w.Sentence += "; " + reason
		}
	}
}

// explainNeeds says for which jobs a job waits.
func (s *Snapshot) explainNeeds(needs []id.Job) place.Why {
	w := place.Why{Blocker: place.BlockNeeds, Sentence: needsReason(needs)}
	for _, n := range needs[:min(len(needs), 5)] {
		if f := s.factsFor(n); f != nil && f.state == job.Paused {
			w.Remedies = append(w.Remedies, place.Remedy{Text: "trainyard resume " + string(n)})
		}
	}

	return w
}

// explain says for which runs a job waits whose GPUs are booked for it already.
func (p *promised) explain(v *place.View) place.Why {
	w := place.Why{
		Blocker:  place.BlockResources,
		Sentence: "starts on " + startNodes(p.allocations) + " as soon as the runs that are being stopped there have ended",
	}

	for _, a := range p.allocations {
		room := v.RoomOf(a.Node)
		if room == nil {
			continue
		}

		for _, h := range room.Holds {
			if h.Run != p.run && h.GPUs&a.GPUs != 0 {
				w.Holders = append(w.Holders, h)
				w.Nodes = append(w.Nodes, a.Node)
			}
		}
	}

	return w
}

// startNodes names the nodes of a start.
func startNodes(allocations []place.Allocation) string {
	first := string(allocations[0].Node)
	if more := len(allocations) - 1; more > 0 {
		return fmt.Sprintf("%s and %s", first, humanize.Count(more, "other node"))
	}

	return first
}

// why says what holds a job.
func (h *hold) why() place.Why {
	blocker := place.BlockLimit
	if h.kind == tenant.HoldSecret {
		blocker = place.BlockSecret
	}

	return place.Why{Blocker: blocker, Sentence: h.reason, NotBefore: h.until}
}

// provisioning says that a job waits for nodes that are being provisioned, and when they are
// expected.
func provisioning(sentence string, ready, now time.Time) place.Why {
	w := place.Why{Blocker: place.BlockProvisioning, Sentence: sentence}
	if ready.After(now) {
		w.Start = ready
		w.Sentence += ", expected at " + humanize.Time(ready, now.UTC())
	}

	return w
}

// without returns the offers that are not among others. Those that a provider refused lately
// are still offers: they come back.
func without(offers, others []fleet.Offer) []fleet.Offer {
	return slices.DeleteFunc(slices.Clone(offers), func(o fleet.Offer) bool {
		return slices.ContainsFunc(others, func(other fleet.Offer) bool { return other.Name == o.Name })
	})
}

// considerOffers corrects an answer that looked only at nodes: what no node of the yard could
// run may be run by one that can be provisioned.
func considerOffers(
	w *place.Why, need fleet.Need, open, exhausted []fleet.Offer, verdict *place.Verdict, now time.Time,
) {
	if !fleet.OnDemand.Allows(need.Place) {
		return
	}

	unfit := w.Blocker == place.BlockNoFit || w.Blocker == place.BlockNoNode
	options := provision.Options(open, need, provision.Query{Now: now})
	if len(options) == 0 {
		options = provision.Options(exhausted, need, provision.Query{Now: now})
		if len(options) == 0 || !unfit && w.Blocker != place.BlockResources && w.Blocker != place.BlockReserved {
			return
		}

		o := options[0].Offer
		w.Sentence += fmt.Sprintf("; offer %s is not provisioned: its limit of %s (max_nodes) is reached", o.Name,
			humanize.Count(o.MaxNodes, "node"))
		if unfit {
			w.Blocker = place.BlockResources // it may start when one of them is released
		}

		return
	}

	if !unfit {
		return
	}

	w.Blocker = place.BlockPolicy
	if verdict.Said && !verdict.Due { // why it is not provisioned is left to the policy
		return
	}

	w.Sentence += fmt.Sprintf("; offer %s could run it, but policy %s has not provisioned it",
		options[0].Offer.Name, verdict.Policy)
}
