package sim

import (
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// loadState adds a yard in the midst of its work to the initial state.
func (s *simulation) loadState(b *Beginning, state *yardmaster.State) {
	for _, n := range b.State.Nodes {
		if n.State == fleet.Removed {
			continue
		}

		s.addHost(n)
		h := s.hosts[n.ID]
		h.dead = n.State == fleet.Lost
		if h.dead || n.Cordoned {
			h.meter.open = false
			s.tally.size(s.now, -len(n.Inventory.GPUs))
		}

		state.Nodes = append(state.Nodes, n)
	}

	state.Datasets = append(slices.Clone(state.Datasets), b.State.Datasets...)
	state.Users = append(state.Users, b.State.Users...)
	for _, u := range b.State.Users {
		s.users[u.ID] = true
	}

	state.Jobs, state.Needs = slices.Clone(b.State.Jobs), b.State.Needs // the yard sorts them
	state.LastJob, state.LastEvent, state.Seed = b.State.LastJob, b.State.LastEvent, b.State.Seed

	for _, j := range b.State.Jobs {
		if j.State.Final() {
			continue
		}

		s.addJob(b.Truth(j), &j)
	}

	for _, run := range b.State.Runs {
		if _, alive := s.jobs[run.Job]; !alive || run.State == job.RunEnded {
			continue
		}

		run.Ranks = slices.Clone(run.Ranks) // the yard changes them
		state.Runs = append(state.Runs, run)
		state.Orders = append(state.Orders, ordersOf(&run)...)
	}

	slices.SortFunc(state.Runs, func(a, b job.Run) int { return strings.Compare(string(a.ID), string(b.ID)) })
}

// meet adds jobs that people have submitted to the server whose nodes are modelled.
func (s *simulation) meet(jobs []job.Job) {
	if _, live := s.yard.(*remote); !live {
		return
	}

	for i := range jobs {
		if _, known := s.jobs[jobs[i].ID]; !known && !jobs[i].State.Final() {
			s.addJob(s.cfg.Begin.Truth(jobs[i]), &jobs[i])
		}
	}
}

// addJob adds a job that somebody else has submitted.
func (s *simulation) addJob(truth *Job, j *job.Job) {
	l := &jobRecord{job: truth, id: j.ID, saved: j.Done, share: workShare(truth), program: truth.program()}
	l.Outcome = Outcome{Job: truth, ID: j.ID, Started: NotStarted, GPUSeconds: j.Served}

	if s.cfg.Begin.Progress != nil {
		if done, _, known := s.cfg.Begin.Progress(j.ID); known {
			l.saved = done
		}
	}

	s.jobs[j.ID] = l
	s.tally.submitted(s.now)
}

// ordersOf returns the orders that are open for a run.
func ordersOf(run *job.Run) []yardmaster.Order {
	var orders []yardmaster.Order
	for i := range run.Ranks {
		k := &run.Ranks[i]
		if k.State == job.RunEnded {
			continue
		}

		orders = append(
			orders,
			yardmaster.Order{Run: run.ID, Job: run.Job, Epoch: run.Epoch, Rank: i, Node: k.Node, Stop: run.Stop,
				Suspend: job.SuspendOrder{Number: k.Suspension.Number},
				Launch:  job.Launch{GPUs: k.GPUs, CPUs: k.CPUs, Memory: k.Memory, Nodes: make([]string, len(run.Ranks))}},
		)
	}

	return orders
}

// resumeRuns continues the runs of the initial state on their nodes.
func (s *simulation) resumeRuns(state *yardmaster.State) {
	for i := range state.Runs {
		run := &state.Runs[i]
		l := s.jobs[run.Job]
		m := &model{run: run.ID, uid: run.UID, life: l, did: l.saved, ran: l.ran, ordered: run.Ordered.Sub(s.epoch)}

		for k := range run.Ranks {
			rank := &run.Ranks[k]
			h := s.hosts[rank.Node]

			m.allocations = append(
				m.allocations,
				place.Allocation{Node: rank.Node, GPUs: fleet.Mask(rank.GPUs), Share: rank.Share},
			)

			m.hosts = append(m.hosts, h)
			m.ended = append(m.ended, rank.State == job.RunEnded)
			m.gpus += len(rank.GPUs)
			if rank.State != job.RunEnded {
				m.live++
			}
		}

		s.runs[run.ID] = m
		s.occupy(m)

		switch {
		case run.Started.IsZero():
			s.start(m)
		case run.Suspended():
			s.resumeSuspended(m, run)
		default:
			s.resume(m, run.Started.Sub(s.epoch), s.now)
			s.schedule(m)
			s.watch(m)
		}

		if run.Stop != job.StopNone {
			s.stop(m, run.Stop)
		}
	}
}

// occupy marks the GPUs of the live ranks of a run as used, and returns how long their nodes take to boot.
func (s *simulation) occupy(m *model) (boot time.Duration) {
	m.share, m.watts = make([]money.Amount, len(m.hosts)), make([]float64, len(m.hosts))
	for i, h := range m.hosts {
		if m.ended[i] {
			continue
		}

		boot = max(boot, h.meter.boot())
		s.hold(m, i)
		h.runs = append(h.runs, m)
	}

	return boot
}

// hold lets a rank use its GPUs from now on.
func (s *simulation) hold(m *model, rank int) {
	var more int
	m.share[rank], m.watts[rank], more = m.hosts[rank].meter.join(s.now, m.allocations[rank])
	s.tally.use(s.now, more)
}

// resume takes up a run that began before the simulation and worked until a time.
func (s *simulation) resume(m *model, began, until time.Duration) {
	m.runs = true
	m.startedAt = began
	m.since = began
	m.works = began
	if t := m.life.truth(m.did); t != nil {
		m.works += time.Duration(t.Start)
		s.setRate(m, t)
	}

	m.pace = s.paceOf(m)
	m.life.last = m

	if s.cfg.Begin.Progress != nil {
		if _, at, known := s.cfg.Begin.Progress(m.life.id); known {
			m.since = max(m.since, at.Sub(s.epoch))
		}
	}

	m.advanceTo(until)
}

// resumeSuspended takes up a run that was suspended in place before the simulation: others have its GPU, and it works
// again when it is told to.
func (s *simulation) resumeSuspended(m *model, run *job.Run) {
	k := &run.Ranks[0]
	since := k.Suspended.Sub(s.epoch)
	s.resume(m, run.WorkingSince().Sub(s.epoch), since)
	m.startedAt = run.Started.Sub(s.epoch)

	s.vacate(m, 0)
	m.loan = loan{
		order: k.Suspension.Number, still: true, since: since, lent: true, from: since, total: time.Duration(k.Lent),
	}
}
