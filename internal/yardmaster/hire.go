package yardmaster

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/hire/leases"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// Granted says that a provider has created a machine for a lease.
type Granted struct {
	Lease    id.Lease
	Provider string
	Machine  fleet.Instance
}

func (m Granted) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Granted(y.now, m.Lease, m.Provider, m.Machine)
	if l, ok := y.leases.Get(m.Lease); ok {
		y.market.Granted(l.Offer.Name, y.now)
	}
	return nil, nil
}

// Refused says that a provider gives no machine for a lease, for certain.
type Refused struct {
	Lease id.Lease
	Code  string
	Why   string
}

func (m Refused) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	if l, ok := y.leases.Get(m.Lease); ok {
		y.market.Refused(l.Offer.Name, m.Code, y.now)
	}
	y.leases.Refused(y.now, m.Lease, m.Code+": "+m.Why)
	y.round = true
	return nil, nil
}

// Unclear says that it is not known whether a provider has created a machine.
type Unclear struct {
	Lease id.Lease
	Why   string
}

func (m Unclear) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Unclear(y.now, m.Lease, m.Why)
	return nil, nil
}

// Accepted says that a provider has taken the order to end a lease's machine.
type Accepted struct{ Lease id.Lease }

func (m Accepted) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Accepted(y.now, m.Lease)
	return nil, nil
}

// MachineGone says that a lease's machine has ended, as its provider told of it alone.
type MachineGone struct {
	Lease id.Lease
	Why   string // "spot" if the provider took it back
}

func (m MachineGone) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Gone(y.now, m.Lease, m.Why)
	return nil, nil
}

// Lease returns a lease that has not ended, nil if there is none.
func (y *Yard) Lease(name id.Lease) *fleet.Lease {
	l, _ := y.leases.Get(name)
	return l
}

// Listed is what a provider shows of the yard's machines.
type Listed struct {
	Provider string
	Asked    time.Time // before the answer
	Machines []fleet.Instance
}

func (m Listed) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	y.leases.Listed(y.now, m.Asked, m.Provider, m.Machines)
	if o, failing := y.failing[m.Provider]; failing && o.over == nil {
		o.over = y.after(y.now.Add(steady), func(y *Yard) {
			delete(y.failing, m.Provider)
			y.event(Event{Kind: "provider.back", Actor: theYard, Reason: fmt.Sprintf("%s answers again, after: %s", m.Provider, o.why)})
		})
	}
	return nil, nil
}

// outage is a time in which a provider does not answer as it should.
type outage struct {
	why  string // the first call went wrong
	over *timer // says that it is, unless a call goes wrong before; nil while none is answered
}

// steady is for how long a provider must answer until it is said to be back: of one that
// fails every now and then nobody wants to read each time.
const steady = time.Minute

// ProviderFailed says that a call went wrong that will be made again.
type ProviderFailed struct {
	Provider string
	Lease    id.Lease // "" if it was a list
	Why      string
}

func (m ProviderFailed) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	if o, known := y.failing[m.Provider]; known {
		y.drop(o.over)
		o.over = nil
	} else {
		y.failing[m.Provider] = &outage{why: m.Why}
		y.event(Event{Kind: "provider.failed", Actor: theYard, Lease: m.Lease, Reason: fmt.Sprintf("%s does not answer as it should and is asked again: %s", m.Provider, m.Why)})
	}
	return nil, nil
}

// ReturnLease gives a hired node back. What runs there is stopped and starts again
// elsewhere. A job that waits for it and for others hired with it has no use for those
// alone: they are given back too, and it may hire anew. The answer is the lease.
type ReturnLease struct {
	Lease id.Lease
	By    id.User
}

func (m ReturnLease) handle(y *Yard) (any, error) {
	l, ok := y.leases.Get(m.Lease)
	if !ok {
		return y.leases.Return(y.now, m.Lease, "")
	}
	reason := "given back by " + string(m.By)
	others := y.awaitedWith(l)
	y.quit(l, reason)
	for _, o := range others {
		y.quit(o, fmt.Sprintf("lease %s, without which it is of no use, was %s", l.ID, reason))
	}
	return *l, nil
}

// awaitedWith returns the other leases of a gang for which a job still waits.
func (y *Yard) awaitedWith(l *fleet.Lease) []*fleet.Lease {
	awaited := func(name id.Lease) bool {
		o, live := y.leases.Get(name)
		return live && o.Gang == l.Gang
	}
	if l.Gang == "" || !slices.ContainsFunc(y.hired[l.Job], awaited) {
		return nil
	}
	var list []*fleet.Lease
	for _, o := range y.leases.Live() {
		if o.Gang == l.Gang && o != l && o.Live() {
			list = append(list, o)
		}
	}
	return list
}

// quit gives a lease back, when nothing runs on its node any more if it has one.
func (y *Yard) quit(l *fleet.Lease, reason string) {
	if n, joined := y.nodes[l.Node]; joined && l.State == fleet.LeaseActive {
		y.vacate(n, reason)
		return
	}
	y.giveBack(l.ID, reason)
}

// vacate gives a hired node back when nothing runs there any more.
func (y *Yard) vacate(n *nodeRecord, reason string) {
	if !n.Drained {
		n.Drained, n.Since, n.Reason = true, y.now, reason
		y.changedNode(n)
	}
	if len(n.runs) == 0 {
		y.giveBack(n.Lease, reason)
		return
	}
	for _, run := range sortedKeys(n.runs) {
		y.stop(y.runs[run], job.StopTerm, job.CausePreempted)
	}
}

// giveBack gives a lease back that may have ended already.
func (y *Yard) giveBack(l id.Lease, reason string) {
	if _, live := y.leases.Get(l); live {
		_, err := y.leases.Return(y.now, l, reason)
		y.must(err)
	}
}

// hires writes leases for what a plan wants to hire.
func (y *Yard) hires(list []place.Hire) {
	for i := range list {
		h := &list[i]
		r, ok := y.jobs[h.Item.Job]
		offer, offered := y.market.Offer(h.Offer)
		var why string
		switch {
		case !ok || r.item != h.Item:
			why = "the job no longer waits"
		case !offered:
			why = "nobody offers " + h.Offer
		case h.Count < 1 || h.Reason == "":
			why = "the plan gives no count or no reason"
		case len(y.hired[r.ID]) > 0:
			why = "nodes were hired for the job already"
		default:
			why = y.mayHire(r, h)
		}
		if why == "" {
			hired, err := y.leases.Hire(y.now, leases.Wish{Offer: offer, Count: h.Count, Job: r.ID, Owner: r.Owner, Project: r.Project, Reason: h.Reason})
			if err == nil {
				y.note(r, hired, h.Cost)
				continue
			}
			why = err.Error()
		}
		y.event(Event{Kind: "plan.dropped", Actor: theYard, Job: h.Item.Job, Reason: why})
	}
}

// note remembers what was hired for a job and is expected to cost so much, so that
// nobody else spends that money, and lets time pass for the leases.
func (y *Yard) note(r *jobRecord, hired []*fleet.Lease, cost float64) {
	for _, l := range hired {
		y.hired[r.ID] = append(y.hired[r.ID], l.ID)
		y.books.Limits.Nodes(y.now, payer(l), 1)
		hourly := float64(l.Offer.Hourly) / 1e6
		y.asking[l.ID] = hourly
		y.books.Limits.Use(y.now, r.who(), fleet.OnDemand, 0, hourly)
	}
	y.books.Limits.Commit(r.who(), admit.Outlay{Money: cost, GPUHours: -1, Budget: r.Spec.Budget, Spent: r.Cost - r.Paid})
	y.sweepLeases()
}

// arrived ends the expectation of what a lease costs: its machine is there and costs
// what it costs, or it will not come.
func (y *Yard) arrived(l *fleet.Lease) {
	if hourly, ok := y.asking[l.ID]; ok {
		delete(y.asking, l.ID)
		y.books.Limits.Use(y.now, admit.Who{Owner: l.Owner, Project: l.Project, Job: l.Job}, fleet.OnDemand, 0, -hourly)
	}
}

// mayHire says which limit forbids to hire for a job, "" if none does.
func (y *Yard) mayHire(r *jobRecord, h *place.Hire) string {
	a := y.allowance(r)
	switch {
	case a.Hold != "":
		return a.Hold
	case a.NoRent:
		return a.By.Money + " lets it run only where no rent is paid"
	case h.Count > a.Nodes:
		return fmt.Sprintf("%s lets it have %d more on-demand nodes", a.By.Nodes, a.Nodes)
	case h.Cost > a.Money:
		return fmt.Sprintf("%s has $%.2f left and this would cost $%.2f", a.By.Money, max(a.Money, 0), h.Cost)
	}
	return ""
}

// unhire gives back what was hired for a job that no longer waits for it and has not come.
func (y *Yard) unhire(j id.Job) {
	list, ok := y.hired[j]
	if !ok {
		return
	}
	delete(y.hired, j)
	for _, name := range list {
		if l, live := y.leases.Get(name); live && (l.State == fleet.LeaseAsked || l.State == fleet.LeaseBooting) {
			y.giveBack(name, "job "+string(j)+", for which it was hired, no longer waits for it")
		}
	}
}

// sweepLeases lets time pass for the leases as long as there are any.
func (y *Yard) sweepLeases() {
	if y.sweep != nil {
		return
	}
	y.sweep = y.after(y.now.Add(y.cfg.Hire.Every()), func(y *Yard) {
		y.sweep = nil
		y.leases.Sweep(y.now, y.heard)
		if len(y.leases.Live()) > 0 {
			y.sweepLeases()
		}
	})
}

// heard reports whether a node's agent has been heard lately.
func (y *Yard) heard(n id.Node) bool {
	r, ok := y.nodes[n]
	return ok && r.State == fleet.Ready && (r.heard || y.cfg.SuspectAfter == 0)
}

// settleLeases passes on what has changed among the leases.
func (y *Yard) settleLeases() {
	out := y.leases.Take()
	y.out.leases = append(y.out.leases, out.Changed...)
	for _, l := range out.Changed {
		if !y.cfg.Unmetered {
			y.books.Lease(y.now, l)
		}
		if l.Node != "" {
			y.touch(l.Node)
		}
		if l.State != fleet.LeaseAsked && l.State != fleet.LeaseBooting {
			y.arrived(l)
		}
		if !l.Live() {
			y.unnote(l)
			y.shut(l)
		}
	}
	for _, t := range out.Told {
		y.event(Event{Kind: t.Kind, Actor: theYard, Owner: t.Lease.Owner, Job: t.Lease.Job, Node: t.Lease.Node, Lease: t.Lease.ID,
			From: string(t.From), To: string(t.Lease.State), Reason: t.Reason})
	}
	for _, l := range out.Closed {
		y.closeLease(l)
	}
	for _, l := range out.Gone {
		if n, ok := y.nodes[l.Node]; ok && n.State != fleet.Removed {
			y.loseHired(n, l)
		}
	}
	if len(y.leases.Live()) > 0 {
		y.sweepLeases()
	}
	if len(out.Changed) > 0 {
		y.round = true
	}
}

// shut lets nothing new onto a node that is being given back, also if its agent is
// heard again.
func (y *Yard) shut(l *fleet.Lease) {
	if n, ok := y.nodes[l.Node]; ok && n.State != fleet.Removed && !n.Drained {
		n.Drained, n.Since, n.Reason = true, y.now, l.Reason
		y.changedNode(n)
	}
}

// closeLease does what is left to do when a lease has ended.
func (y *Yard) closeLease(l *fleet.Lease) {
	if !l.Stray {
		y.books.Limits.Nodes(y.now, payer(l), -1)
	}
	y.market.Ended(l)
}

// payer is on whose account a lease is.
func payer(l *fleet.Lease) admit.Who { return admit.Who{Owner: l.Owner, Project: l.Project} }

// unnote forgets a lease of which a job can expect nothing any more.
func (y *Yard) unnote(l *fleet.Lease) {
	if left := slices.DeleteFunc(y.hired[l.Job], func(o id.Lease) bool { return o == l.ID }); len(left) > 0 {
		y.hired[l.Job] = left
	} else {
		delete(y.hired, l.Job)
	}
}

// loseHired takes a node out of the yard whose machine is gone.
func (y *Yard) loseHired(n *nodeRecord, l *fleet.Lease) {
	if n.State != fleet.Lost {
		y.moveNode(n, fleet.EventGone, theYard, l.Reason)
	}
	y.giveUp(n, job.CauseNodeLost, fmt.Sprintf("node %s is gone: %s", n.ID, l.Reason))
	y.moveNode(n, fleet.EventRemove, theYard, l.Reason)
	y.table.Remove(n.ID)
}

// idle looks whether a hired node on which nothing runs is to be given back.
func (y *Yard) idle(name id.Node) {
	n, ok := y.nodes[name]
	if !ok || n.Lease == "" || len(n.runs) > 0 || n.State == fleet.Removed {
		return
	}
	l, live := y.leases.Get(n.Lease)
	if !live || l.State != fleet.LeaseActive {
		return
	}
	if n.Drained {
		y.giveBack(l.ID, n.Reason)
		return
	}
	if y.boots(l) || slices.Contains(y.hired[l.Job], l.ID) && y.now.Sub(l.Joined) < time.Minute { // its job starts there next
		y.drop(n.look)
		n.look = y.after(y.now.Add(time.Minute), func(y *Yard) { y.idle(name) })
		return
	}
	for _, k := range hire.Keep(y.idlers(), y.now, y.cfg.Keep) {
		switch {
		case k.Lease != l.ID:
		case k.Return:
			y.vacate(n, k.Why)
		case !k.Again.IsZero():
			y.drop(n.look)
			n.look = y.after(k.Again, func(y *Yard) { y.idle(name) })
		}
	}
}

// boots reports whether nodes that a lease is of use only together with are still to come.
func (y *Yard) boots(l *fleet.Lease) bool {
	return l.Gang != "" && slices.ContainsFunc(y.leases.Live(), func(o *fleet.Lease) bool {
		return o.Gang == l.Gang && (o.State == fleet.LeaseAsked || o.State == fleet.LeaseBooting)
	})
}

// idlers lists the hired nodes on which nothing runs.
func (y *Yard) idlers() []hire.Idle {
	var list []hire.Idle
	for _, l := range y.leases.Live() {
		if n, ok := y.nodes[l.Node]; ok && l.State == fleet.LeaseActive && len(n.runs) == 0 && !n.Drained {
			list = append(list, hire.Idle{Lease: l, Since: n.idle})
		}
	}
	return list
}
