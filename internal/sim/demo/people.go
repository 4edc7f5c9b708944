package demo

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// admin is who sets the yard up.
const admin id.User = "admin"

// from is a message of a person.
func from(who id.User, m yardmaster.Message) yardmaster.Message {
	return yardmaster.From{Message: m, Origin: yardmaster.Origin{Actor: string(who), Address: addressOf(who)}}
}

// setUp lets the admin set the yard up: people, projects, limits, data and machines.
func setUp(h sim.Hand) {
	h.PutUser(admin, tenant.Admin)

	for _, p := range people {
		h.PutUser(p.name, p.role)
	}

	known := map[id.Project]bool{}
	for _, p := range people {
		for _, project := range p.projects {
			if !known[project] {
				known[project] = true
				h.Do(from(admin, yardmaster.PutProject{Project: project, By: string(admin)}))
			}

			h.Do(from(admin, yardmaster.PutMember{
				Member: tenant.Member{Project: project, User: p.name, Lead: project == p.leads}, By: string(admin),
			}))
		}
	}

	for _, q := range quotas() {
		h.Do(from(admin, yardmaster.PutQuota{Quota: q, By: string(admin)}))
	}

	for _, n := range machines() {
		h.Join(n, admin)
	}

	for _, d := range datasets() {
		h.Do(from("operator-1", yardmaster.PutDataset{Dataset: d, By: "operator-1"}))
	}
}

const day = 24 * time.Hour

// accidents lets things go wrong, and people do something about them, so long before the end of the month.
func accidents(h sim.Hand, length time.Duration) {
	before := func(d time.Duration, do func(sim.Hand)) {
		if d <= length {
			h.After(length-d, do)
		}
	}

	change := func(d time.Duration, kind sim.ChangeKind, n id.Node) {
		before(d, func(h sim.Hand) { h.Change(sim.Change{Kind: kind, ID: n}) })
	}

	change(19*day, sim.NodeFails, "lab-2")
	change(19*day-3*time.Hour, sim.NodeHeals, "lab-2")
	change(11*day, sim.NodeCordoned, "lab-1")
	change(11*day-5*time.Hour, sim.NodeUncordoned, "lab-1")

	gpu := func(d time.Duration, change func(*fleet.GPU)) {
		before(d, func(h sim.Hand) {
			h.Report(failing, func(inv *fleet.Inventory) { change(&inv.GPUs[2]) })
		})
	}

	gpu(4*day, func(g *fleet.GPU) { g.Health = "12 correctable memory errors since the last reset" })
	gpu(30*time.Hour, func(g *fleet.GPU) {
		g.Health = "Xid 63 (page retirement), 214 correctable memory errors since the last reset"
	})
	gpu(20*time.Hour, func(g *fleet.GPU) {
		g.Health = "Xid 48 (double-bit memory error), Xid 63 (page retirement)"
		g.Error = "uncorrectable memory error (Xid 48)"
	})

	before(70*time.Minute, func(h sim.Hand) {
		if j, found := h.JobCalled("asr-conformer-small"); found {
			h.Do(from(You, yardmaster.Pause{Job: j, By: You}))
		}
	})

	before(3*day, func(h sim.Hand) {
		h.Do(yardmaster.NoteAccess{Calls: []yardmaster.Access{{
			Origin: yardmaster.Origin{Actor: "researcher-5", Address: addressOf("researcher-5")},
			Kind:   yardmaster.EventRefused, Owner: "researcher-6", Count: 2,
			Reason: "permission denied: researcher-5 cannot read jobs of researcher-6",
		}}})
	})

	before(2*day, func(h sim.Hand) {
		h.Do(from(admin, yardmaster.PutQuota{By: string(admin), Quota: tenant.Quota{
			Subject: tenant.Subject{Project: "vision"}, Budget: dollars(1200), Period: tenant.Month,
			OnExceeded: tenant.ExceededWarn,
		}}))
	})
}

// reclaims are when the provider reclaims a spot machine.
func reclaims(length time.Duration) (list []sim.Reclaim) {
	for _, d := range []time.Duration{22 * day, 15*day + 7*time.Hour, 8*day + 5*time.Hour, 3*day + 2*time.Hour} {
		if d < length {
			list = append(list, sim.Reclaim{At: length - d, Notice: 2 * time.Minute})
		}
	}

	return list
}
