package leases_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/cloud"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/provision/lifecycle"
	"trainyard/internal/yardmaster"
)

// What a machine may outlive its lease by beyond lifecycle.Bound, while the server runs and
// the provider answers: the time that the provider takes to end it, and what calls lose
// that go wrong a few times in a row. Each start of the server costs the calls that were
// under way.
const (
	slack      = endMost + 3*time.Minute
	perRestart = 3 * time.Minute
)

// checkBatch looks at what a batch changes.
func (s *record) checkBatch(b *yardmaster.Batch) error {
	for i := range b.Leases {
		l := &b.Leases[i]
		old, known := s.leases[l.ID]

		number, _ := l.ID.Number()
		switch {
		case known && old.State.Final():
			return fmt.Errorf("lease %s had ended and changed to %+v", l.ID, l)
		case known && l.Seq <= old.Seq:
			return fmt.Errorf("lease %s has number %d after %d", l.ID, l.Seq, old.Seq)
		case known && old.Instance != "" && l.Instance != old.Instance:
			return fmt.Errorf("lease %s had machine %s and has %s", l.ID, old.Instance, l.Instance)
		case known && old.State == fleet.LeaseReleasing && l.Live():
			return fmt.Errorf("lease %s was given back and is %s", l.ID, l.State)
		case !known && number <= s.lastLease:
			return fmt.Errorf("lease %s comes after l%d", l.ID, s.lastLease)
		case l.State.Final() && l.Ended.IsZero() || l.Reason == "":
			return fmt.Errorf("lease %s does not say when or why: %+v", l.ID, l)
		}

		if !known && !l.Stray {
			if err := s.checkNeed(b, l); err != nil {
				return err
			}
		}
	}

	return nil
}

// checkNeed looks whether the job waits for which a lease is written, by what is stored
// with it.
func (s *record) checkNeed(b *yardmaster.Batch, l *fleet.Lease) error {
	j := s.jobs[l.Job]
	if at := slices.IndexFunc(b.Jobs, func(j job.Job) bool { return j.ID == l.Job }); at >= 0 {
		j = b.Jobs[at]
	}

	if !j.State.Waiting() {
		return fmt.Errorf("lease %s was written for job %q, which is %q and does not wait", l.ID, l.Job, j.State)
	}

	return nil
}

// check looks at the leases as a whole.
func (s *record) check() error {
	held := s.held()
	machines := map[string]id.Lease{}
	live := map[id.Job]int{}

	for i := range held {
		l := &held[i]
		if l.Instance != "" {
			key := l.Offer.Provider + "/" + l.Instance
			if other, taken := machines[key]; taken {
				return fmt.Errorf("leases %s and %s both have machine %s", other, l.ID, l.Instance)
			}

			machines[key] = l.ID
		}

		if !l.Live() {
			continue
		}

		if other := s.missing(l); other != nil {
			return fmt.Errorf(
				"lease %s is %s, and %s, without which it is of no use, is %s: %s",
				l.ID,
				l.State,
				other.ID,
				other.State,
				other.Reason,
			)
		}

		live[l.Job]++

		j := s.jobs[l.Job]
		if l.State != fleet.LeaseActive && !j.State.Waiting() {
			return fmt.Errorf("lease %s is %s for job %s, which is %s and does not wait for it", l.ID, l.State, l.Job, j.State)
		}
		if want := max(j.Spec.Resources.Nodes.Min, 1); live[l.Job] > want {
			return fmt.Errorf("%d nodes are held for job %s, which asked for %d", live[l.Job], l.Job, want)
		}
	}

	return s.checkRuns()
}

// missing returns a lease without which a live one of the same gang is of no use, nil if
// there is none: it came to nothing, or it was given back before it joined and the live
// one has not joined either. One that has joined may serve other jobs.
func (s *record) missing(live *fleet.Lease) *fleet.Lease {
	for _, l := range s.leases {
		if live.Gang == "" || l.Gang != live.Gang || !l.Joined.IsZero() {
			continue
		}

		nothing := l.State == fleet.LeaseRefused || l.State == fleet.LeaseEnded && l.Released.IsZero()
		if nothing || !l.Released.IsZero() && live.State != fleet.LeaseActive {
			return &l
		}
	}

	return nil
}

// checkRuns looks whether something was started on a node that is being given back.
func (s *record) checkRuns() error {
	for key, o := range s.orders {
		run := s.runs[o.Run]
		l, provisioned := s.leases[s.nodes[o.Node].Lease]
		if !provisioned || o.Stop != job.StopNone || run.State == job.RunEnded {
			continue
		}

		if l.State == fleet.LeaseReleasing && run.Ordered.After(l.Released) || l.State.Final() {
			return fmt.Errorf(
				"order %s of %s is on node %s, whose lease %s is %s since %s",
				key,
				run.Ordered,
				o.Node,
				l.ID,
				l.State,
				l.Since,
			)
		}
	}

	return nil
}

// checkChanges compares what a batch says of leases with the truth: only what is heard is
// renewed, and what has ended has no machine.
func (w *world) checkChanges(b *yardmaster.Batch) {
	quiet := w.config().SuspectAfter + time.Minute
	for i := range b.Leases {
		l := &b.Leases[i]
		old, known := w.store.leases[l.ID]
		for _, m := range w.provider(l.Offer.Provider).machines {
			switch {
			case known && l.Node != "" && m.node == l.Node && old.State == fleet.LeaseActive && l.Ends.After(old.Ends) && w.now.Sub(m.reported) > quiet:
				w.fail("lease %s was renewed and node %s was last heard %s ago", l.ID, l.Node, w.now.Sub(m.reported))
			case l.State == fleet.LeaseEnded && !l.Stray && l.Instance == m.id && m.ended.IsZero():
				w.fail("lease %s has ended and its machine %s has not: %s", l.ID, m.id, l.Reason)
			}
		}
	}
}

// checkOverdue looks whether the yard holds on to what was not renewed in time.
func (w *world) checkOverdue() {
	cfg := w.config().Provision
	for _, l := range w.store.held() {
		if since := later(l.Ends, w.started); l.Live() && w.now.Sub(since) > cfg.SweepInterval()+time.Minute {
			w.fail("lease %s is %s and was over %s ago", l.ID, l.State, w.now.Sub(l.Ends))
		}
	}
}

// checkWritten looks whether every machine that the yard has just heard of has a lease.
func (w *world) checkWritten(provider string, known []fleet.Instance) {
	for i := range known {
		if known[i].State == fleet.InstanceGone {
			continue
		}

		found := false
		for _, l := range w.store.leases {
			found = found || l.Offer.Provider == provider && l.Instance == known[i].ID
		}

		if !found {
			w.fail("machine %s of %s is known and no lease was written for it", known[i].ID, provider)
		}
	}
}

// checkAsked looks whether a lease was stored before its provider is asked, and whether
// the server knows nothing that makes it needless to ask.
func (w *world) checkAsked(l *fleet.Lease) {
	h := &w.heard
	listed, once := h.listed[l.Offer.Provider]

	stored, ok := w.store.leases[l.ID]
	switch {
	case !ok || stored.Offer.Name != l.Offer.Name:
		w.fail("a machine is asked for, for lease %s, which is not stored", l.ID)
	case !once:
		w.fail("a machine is asked for, for lease %s, before %s was listed", l.ID, l.Offer.Provider)
	case h.granted[l.ID]:
		w.fail("a machine is asked for again, for lease %s, which was given one", l.ID)
	case !w.now.Before(l.Ends):
		w.fail("a machine is asked for, for lease %s, which was over %s ago", l.ID, w.now.Sub(l.Ends))
	case slices.ContainsFunc(h.shown[l.ID], func(m string) bool { return !w.isStray(l.Offer.Provider, m) }):
		w.fail("a machine is asked for again, for lease %s, of which one was just listed", l.ID)
	case listed.Before(h.unclear[l.ID]):
		w.fail(
			"a machine is asked for again, for lease %s, and %s was not listed since nobody knows whether there is one",
			l.ID,
			l.Offer.Provider,
		)
	case len(h.shown[l.ID]) > 0:
		w.seen["asked for again because the first is taken for a stray"]++
	}
}

// isStray reports whether the yard had reason to take a machine for a stray and has
// written so: it was listed before it carried its lease. Such a machine is given back and
// never becomes that of its lease by being listed, so the lease still needs one.
func (w *world) isStray(provider, machine string) bool {
	for _, l := range w.store.leases {
		if l.Stray && l.Offer.Provider == provider && l.Instance == machine {
			return w.bare[machine]
		}
	}

	return false
}

// checkHeard looks whether a machine that was just answered ends itself by the time
// that is stored as the end of its lease.
func (w *world) checkHeard(m *machine) {
	if l := w.store.leases[m.lease.ID]; m.deadline.After(l.Ends) {
		w.fail("machine %s ends itself at %s and its lease ends at %s", m.id, m.deadline, l.Ends)
	}
}

// over is when the yard's hold on a machine ended, or ends if it is not renewed.
func (w *world) over(m *machine) time.Time {
	l := w.store.leases[m.lease.ID]
	switch {
	case l.Instance != "" && l.Instance != m.id: // one too many, from when that was clear
		return later(l.Granted, m.created)
	case !l.Released.IsZero():
		return later(l.Released, m.created)
	case l.State.Final():
		return later(l.Ended, m.created)
	}

	return later(l.Ends, m.created)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// checkEnded looks at a machine that has ended: by how much has it outlived its lease?
func (w *world) checkEnded(m *machine) {
	over := w.over(m)
	raw := m.ended.Sub(over)
	w.raw = max(w.raw, raw)
	could := raw - covered(over, m.ended, append(slices.Clone(w.outages), m.p.outages...), w.now)
	w.worst = max(w.worst, could)
	bound := lifecycle.New(w.config().Provision).Bound() + slack
	for _, at := range w.crashed {
		if at.After(over.Add(-perRestart)) && at.Before(m.ended) {
			bound += perRestart
		}
	}

	if could > bound {
		w.fail(
			"machine %s outlived lease %s by %s, of which it could have been ended for %s: the bound is %s",
			m.id,
			m.lease.ID,
			raw,
			could,
			bound,
		)
	}

	if m.booted.IsZero() {
		return // only its provider can end it
	}

	own := later(w.store.leases[m.lease.ID].Ends, m.booted.Add(m.lease.Ends.Sub(m.lease.Requested))).Add(cloud.Slack +
		endMost)

	if m.ended.After(own) {
		w.fail("machine %s ended at %s and should have ended itself by %s", m.id, m.ended, own)
	}
}

// covered is how much of a stretch lies within some of the spans.
func covered(from, to time.Time, spans []span, now time.Time) time.Duration {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var sum time.Duration
	for _, s := range spans {
		if s.to.IsZero() {
			s.to = now
		}

		s.from = later(s.from, from)
		if s.to.After(to) {
			s.to = to
		}

		if s.to.After(s.from) {
			sum += s.to.Sub(s.from)
			from = s.to
		}
	}

	return sum
}

// checkBooks looks whether every machine was paid for once: what was posted for the
// leases of a machine does not overlap, and the rent is that of the time until it ended,
// or at most until the yard heard of that: what is posted is not taken back.
func (w *world) checkBooks() {
	type entry struct {
		span
		lease id.Lease
		node  id.Node
	}

	paid := map[string][]entry{}
	rent := map[id.Lease]float64{}
	opened := map[id.Lease]time.Time{}

	for i := range w.store.postings {
		p := &w.store.postings[i]
		if p.Lease == "" {
			w.fail("posting %d is of a provisioned node and names no lease: %+v", p.Seq, p)
			return
		}

		l := w.store.leases[p.Lease]
		e := entry{span{p.From, p.To}, l.ID, p.Node}

		if at, ok := opened[l.ID]; !ok || p.From.Before(at) {
			opened[l.ID] = p.From
		}

		rent[l.ID] += p.NodeCost.Dollars()

		if key := w.machineOf(&l); p.NodeCost > 0 && p.To.After(p.From) && !slices.Contains(paid[key], e) {
			paid[key] = append(paid[key], e)
		}
	}

	for key, list := range paid {
		slices.SortFunc(list, func(a, b entry) int { return a.from.Compare(b.from) })
		for i := 1; i < len(list); i++ {
			if list[i].from.Before(list[i-1].to) {
				w.fail("machine %s is paid for twice: %+v and %+v", key, list[i-1], list[i])
			}
		}
	}

	for name, dollars := range rent {
		l := w.store.leases[name]
		least, most := l.Offer.Cost(job.Duration(l.Ended.Sub(opened[name]))),
			l.Offer.Cost(job.Duration(l.Since.Sub(opened[name])))

		if money.Amount(dollars) < least-cent/10 || money.Amount(dollars) > most+cent/10 {
			w.fail(
				"$%.4f of rent were posted for lease %s, which was held from %s to %s for $%.4f, and $%.4f when that was heard",
				dollars,
				name,
				opened[name],
				l.Ended,
				least,
				most,
			)
		}
	}
}

const cent = 0.01

// machineOf names the machine that a lease had, as it was in truth: the yard may never
// have heard which one has joined.
func (w *world) machineOf(l *fleet.Lease) string {
	for _, m := range w.provider(l.Offer.Provider).machines {
		if l.Instance == m.id || l.Instance == "" && l.Node != "" && l.Node == m.node {
			return m.id
		}
	}

	return "of lease " + string(l.ID)
}

// digest takes note of what was stored, so that two histories can be compared.
func (w *world) digest(b *yardmaster.Batch) {
	if w.hash == nil {
		return
	}

	if err := json.NewEncoder(w.hash).Encode(b); err != nil {
		w.fail("encode: %w", err)
	}
}
