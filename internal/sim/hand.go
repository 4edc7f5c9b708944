package sim

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Hand lets whoever runs a simulation take part in it.
type Hand struct{ s *simulation }

// Now returns the virtual time.
func (h Hand) Now() time.Time { return h.s.time() }

// Do gives the yard a message.
func (h Hand) Do(m yardmaster.Message) any { return h.s.step(m) }

// Query looks at the yard, if it is the simulation's own.
func (h Hand) Query(look func(*yardmaster.Yard)) {
	if y, own := h.s.yard.(*yardmaster.Yard); own {
		look(y)
	}
}

// After lets something happen after a time.
func (h Hand) After(d time.Duration, do func(Hand)) {
	h.s.at(h.s.now+d, func(s *simulation) { do(Hand{s}) })
}

// PutUser adds a user.
func (h Hand) PutUser(name id.User, role tenant.Role) {
	h.s.users[name] = true
	h.Do(yardmaster.PutUser{User: name, Role: role, By: "admin"})
}

// Join lets a machine join the yard with a token that a user has created for it.
func (h Hand) Join(n fleet.Node, by id.User) {
	token := id.Token("join-" + string(n.ID))

	h.s.addHost(n)
	h.Do(yardmaster.AddToken{By: string(by), Token: tenant.Token{
		ID: token, Kind: tenant.JoinToken, Owner: by, Class: string(n.Class), Pool: n.Pool, UsesLeft: 1,
		Expires: h.Now().Add(time.Hour), Note: "for " + string(n.ID),
	}})
	h.Do(yardmaster.Join{Token: token, Name: string(n.ID), Inventory: n.Inventory})
}

// Report lets a node report its hardware, after change has changed it.
func (h Hand) Report(n id.Node, change func(*fleet.Inventory)) {
	at := h.s.hosts[n]
	inv := at.node.Inventory
	inv.GPUs = append([]fleet.GPU(nil), inv.GPUs...)
	change(&inv)
	at.node.Inventory = inv

	report := at.report(nil)
	report.Inventory = &inv
	h.Do(report)
}

// Progress lets a run report how much of its work it has done.
func (h Hand) Progress(run id.Run, done, work float64) {
	if m, running := h.s.runs[run]; running {
		h.s.reportRank(m, 0, yardmaster.RankReport{
			State: job.RunRunning, Progress: &job.Progress{Done: done, Work: work, At: h.Now()},
		})
	}
}

// Change lets something happen to a node.
func (h Hand) Change(c Change) {
	if err := h.s.apply(&c); err != nil && h.s.failed == nil {
		h.s.failed = err
	}
}

// JobCalled returns the newest job of this name that has not ended.
func (h Hand) JobCalled(name string) (found id.Job, ok bool) {
	newest := uint64(0)
	for j, l := range h.s.jobs {
		if n, _ := j.Number(); l.job.Name == name && n > newest {
			newest, found, ok = n, j, true
		}
	}

	return found, ok
}
