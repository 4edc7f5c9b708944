package leases_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

const (
	reportEvery = 20 * time.Second
	shutdown    = time.Minute // how long a machine takes to end itself
)

// machine is the model of a machine that a provider has made: its boot script with the
// dead man's switch, its agent, and the processes it runs.
type machine struct {
	id       string
	p        *provider
	lease    fleet.Lease // as it was when it was asked for
	offer    fleet.Offer
	created  time.Time
	ending   time.Time // it was told to end, or ends itself
	ended    time.Time
	why      string
	tagged   time.Time // from when on its lease is shown; zero for never
	skew     time.Duration
	booted   time.Time // its switch is armed; zero if it never boots
	deadline time.Time // when it must end itself, by the clock that counts from its boot
	dead     bool      // its agent is
	silent   time.Time // its agent reaches nobody until then
	reported time.Time // when the yard last heard of it
	node     id.Node
	tries    int
	procs    map[string]time.Time // orders and when they are done
	first    map[string]time.Time // and when they began
}

// newMachine makes a machine whose fate is drawn here.
func newMachine(p *provider, l *fleet.Lease) *machine {
	w := p.w
	w.store.machines++
	m := &machine{
		id:      fmt.Sprintf("i-%d", w.store.machines),
		p:       p,
		lease:   *l,
		offer:   l.Offer,
		created: w.now,
		tagged:  w.now,
		procs:   map[string]time.Time{},
		first:   map[string]time.Time{},
	}

	switch {
	case w.chance(15):
		m.tagged = time.Time{}
		w.seen["machine without a tag"]++
	case w.chance(8):
		m.tagged = w.now.Add(w.upTo(2 * time.Minute))
		w.seen["tag that comes late"]++
	}

	if w.chance(6) {
		m.skew = w.upTo(96*time.Hour) - 48*time.Hour
		w.seen["machine with a wrong clock"]++
	}

	boot := time.Duration(m.offer.Boot)

	if w.chance(15) {
		w.seen["machine that never boots"]++
	} else {
		w.after(boot/4+w.upTo(boot/4), m.arm)
		joins := boot/2 + w.upTo(boot/2)
		switch {
		case w.chance(15):
			w.seen["machine that joins late"]++
			joins += w.upTo(2 * time.Hour)
		case w.chance(15):
			w.seen["agent that never joins"]++
			joins, m.dead = 0, true
		}

		if !m.dead {
			w.after(joins, m.join)
		}
	}

	if m.offer.Spot && w.chance(2) {
		w.after(w.upTo(3*time.Hour), func() { m.end(w.upTo(endMost), "spot") })
		w.seen["spot machine taken back"]++
	}

	return m
}

// shown is the machine as its provider shows it.
func (m *machine) shown(at time.Time) fleet.Instance {
	i := fleet.Instance{
		ID:       m.id,
		Region:   m.offer.Region,
		Type:     m.offer.Type,
		Spot:     m.offer.Spot,
		State:    fleet.InstancePending,
		Launched: m.created,
		Billed:   m.p.bill(m, at),
	}

	if !m.tagged.IsZero() && !at.Before(m.tagged) {
		i.Lease = m.lease.ID
	}

	switch {
	case !m.ended.IsZero() && !at.Before(m.ended):
		i.State, i.Why, i.Ended = fleet.InstanceGone, m.why, m.ended
	case !m.ending.IsZero() && !at.Before(m.ending):
		i.State = fleet.InstanceEnding
	case !m.booted.IsZero() && !at.Before(m.booted):
		i.State = fleet.InstanceUp
	}

	return i
}

// end lets the machine end in a while.
func (m *machine) end(in time.Duration, why string) {
	if !m.ending.IsZero() {
		return
	}

	w := m.p.w
	m.ending, m.why = w.now, why
	w.after(in, func() {
		m.ended = w.now
		w.checkEnded(m)
	})
}

// arm starts the dead man's switch, as the boot script does: the time that is left counts
// from now, and the wall clock can only make it shorter.
func (m *machine) arm() {
	w := m.p.w
	left := m.lease.Ends.Sub(m.lease.Requested)
	if byWall := m.lease.Ends.Sub(w.now.Add(m.skew)); byWall > 0 && byWall < left {
		left = byWall
	}

	m.booted, m.deadline = w.now, w.now.Add(left)
	m.guard()
}

// guard ends the machine when its lease is over: its agent does it in order, and if that
// is dead the switch does it a while later.
func (m *machine) guard() {
	w := m.p.w
	at := m.deadline
	if m.dead || m.node == "" {
		at = at.Add(cloud.Slack)
	}

	w.after(at.Sub(w.now), func() {
		switch {
		case !m.ending.IsZero():
		case w.now.Before(m.deadline) || (m.dead || m.node == "") && w.now.Before(m.deadline.Add(cloud.Slack)):
			m.guard()
		default:
			w.seen["machine that ended itself"]++
			m.end(shutdown, "")
		}
	})
}

// join lets the agent join the yard, again and again until it is answered.
func (m *machine) join() {
	w := m.p.w
	if !m.ending.IsZero() || m.booted.IsZero() || m.node != "" {
		if m.booted.IsZero() && m.ending.IsZero() {
			w.after(10*time.Second, m.join)
		}

		return
	}

	m.tries++
	reply, stored, err := w.send(m.wantsToJoin(m.id))

	var f *fault.Error
	switch n, ok := reply.(fleet.Node); {
	case !stored:
		w.after(reportEvery, m.join)
	case errors.As(err, &f) && f.Code == "lease_over":
		w.seen["join after the lease"]++
		m.end(shutdown, "")
	case err != nil: // its token was used by another one; the switch ends it
		w.seen["join with a used token"]++
		m.dead = true
	case !ok:
		w.fail("join answered %+v", reply)
	case w.chance(10):
		w.seen["answer to a join lost"]++
		w.after(reportEvery, m.join)
	default:
		m.node, m.reported = n.ID, w.now
		if w.chance(20) {
			w.after(w.upTo(10*time.Minute), m.intrude)
		}

		w.after(w.upTo(reportEvery), m.report)
	}
}

func (m *machine) wantsToJoin(key string) yardmaster.Join {
	node := m.offer.Node()
	return yardmaster.Join{
		Token:     tokenOf(m.lease.ID),
		Name:      "cloud-" + string(m.lease.ID),
		Key:       key,
		Inventory: node.Inventory,
	}
}

// intrude lets another machine join with the same token.
func (m *machine) intrude() {
	if _, stored, err := m.p.w.send(m.wantsToJoin("another of " + m.id)); stored && err == nil {
		m.p.w.fail("two machines joined with the token of lease %s", m.lease.ID)
	}

	m.p.w.seen["second join with a token"]++
}

// report lets the agent report, and obey the answer.
func (m *machine) report() {
	w := m.p.w

	if !m.ending.IsZero() || m.dead {
		return
	}

	w.after(reportEvery, m.report)

	switch {
	case w.now.Before(m.silent):
		return
	case w.chance(1500):
		w.seen["agent that dies"]++
		m.dead = true
		return
	case w.chance(800):
		w.seen["agent that falls silent"]++
		m.silent = w.now.Add(w.upTo(time.Hour))
		return
	}

	reply, stored, err := w.send(m.tells())
	if stored {
		m.reported = w.now
	}

	switch heard, ok := reply.(yardmaster.LeaseRenewal); {
	case !stored || w.chance(20):
	case err != nil: // it is no node any more
		w.seen["report after the lease"]++
		m.end(shutdown, "")
	case ok:
		m.deadline = w.now.Add(heard.LeaseLeft)
		w.checkHeard(m)
	}
}

// tells is what the agent reports: what it was ordered to run, and how far that is.
func (m *machine) tells() yardmaster.NodeReport {
	w := m.p.w
	rep := yardmaster.NodeReport{Node: m.node}
	orders := w.store.ordersOf(m.node)
	maps.DeleteFunc(m.procs, func(key string, _ time.Time) bool {
		_, ok := orders[key]
		return !ok
	})

	for _, key := range slices.Sorted(maps.Keys(orders)) {
		o := orders[key]
		if _, ok := m.procs[key]; !ok {
			m.first[key], m.procs[key] = w.now, w.now.Add(w.store.lasts[o.Job])
		}

		r := yardmaster.RankReport{Run: o.Run, Rank: o.Rank, State: job.RunRunning, Started: m.first[key]}

		if over := m.procs[key]; o.Stop != job.StopNone {
			r.State = job.RunEnded
			r.Ended = w.now
			r.Cause = job.CauseCancelled
			r.Signalled = true
		} else if !w.now.Before(over) {
			r.State, r.Ended = job.RunEnded, over
		}

		rep.Ranks = append(rep.Ranks, r)
	}

	return rep
}
