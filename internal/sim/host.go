package sim

import (
	"fmt"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// host is a modelled node.
type host struct {
	node    fleet.Node
	dead    bool
	noticed bool     // its provider has given notice that it reclaims it
	runs    []*model // on it, by start
	meter   meter
}

func (s *simulation) addHost(n fleet.Node) {
	h := &host{node: n, meter: newMeter(s.cfg.Tariff, &n, s.now)}
	s.hosts[n.ID] = h
	s.tally.size(s.now, len(n.Inventory.GPUs))
}

// report is what the agent of the node says, with what it is able to do.
func (h *host) report(ranks []yardmaster.RankReport) yardmaster.NodeReport {
	inv := &h.node.Inventory
	return yardmaster.NodeReport{
		Node: h.node.ID, Ranks: ranks, Restores: inv.Restores, Suspends: inv.Suspends, Secrets: inv.Secrets,
	}
}

// apply lets something happen to a node.
func (s *simulation) apply(c *Change) error {
	h, known := s.hosts[c.ID]

	if c.Kind == NodeJoins {
		if known || c.Node == nil {
			return fmt.Errorf("at %s: node %s cannot join", c.At, c.ID)
		}

		n := *c.Node
		n.ID = c.ID
		s.addHost(n)
		s.step(yardmaster.Join{Token: tokenOf(n.Class), Name: string(c.ID), Inventory: n.Inventory})

		return nil
	}

	if !known {
		return fmt.Errorf("at %s: no node is called %s", c.At, c.ID)
	}

	switch c.Kind {
	case NodeReclaimed:
		s.step(yardmaster.Cordon{Node: c.ID, By: "its owner", On: true})
		s.interrupt(h)
	case NodeCordoned:
		s.step(yardmaster.Cordon{Node: c.ID, By: "its owner", On: true})
	case NodeUncordoned:
		s.step(yardmaster.Cordon{Node: c.ID, By: "its owner"})
	case NodeFails:
		s.crash(h)
	case NodeHeals:
		h.dead = false
		s.step(h.report(nil))
		s.interrupt(h) // its runs died in the crash, which the yard may not have noticed yet
	case NodeJoins:
	default:
		return fmt.Errorf("at %s: unknown node event %q", c.At, c.Kind)
	}

	if open := c.Kind == NodeUncordoned || c.Kind == NodeHeals; open != h.meter.open {
		s.tally.size(s.now, len(h.node.Inventory.GPUs)*sign(open))

		if open {
			h.meter.reopen(s.now)
		} else {
			h.meter.close(s.now)
		}
	}

	return nil
}

func sign(open bool) int {
	if open {
		return 1
	}

	return -1
}

// interrupt ends the runs on a node without time to save a checkpoint. The yard stops
// the other ranks of these runs.
func (s *simulation) interrupt(h *host) {
	for _, m := range slices.Clone(h.runs) {
		if !m.halted {
			m.advance(s)
			m.lose()
			m.halted, m.broken = true, true
			m.gen++
			s.show(m, Watched{Ended: true, Cause: job.CausePreempted})
		}

		rank := slices.Index(m.hosts, h)
		s.keep(m)

		r := yardmaster.RankReport{State: job.RunEnded, Signalled: true, Cause: job.CausePreempted, Ended: s.time()}
		if m.runs {
			r.Started = s.epoch.Add(m.startedAt)
		}

		if m.life.job.Spec.Speed != nil {
			r.Progress = &job.Progress{Done: m.did}
		}

		s.rankGone(m, rank)
		s.reportRank(m, rank, r)
	}
}

// crash silences a node. Its runs make no more progress; the yard notices after Detect.
func (s *simulation) crash(h *host) {
	h.dead = true
	for _, m := range h.runs {
		if !m.halted {
			m.advance(s)
			m.lose()
			s.keep(m)
			m.halted, m.broken = true, true
			m.gen++
			s.show(m, Watched{Ended: true, Cause: job.CauseNodeLost})
		}
	}

	s.at(s.now+s.cfg.Detect, func(s *simulation) {
		if !h.dead {
			return
		}

		for _, m := range slices.Clone(h.runs) {
			s.rankGone(m, slices.Index(m.hosts, h))
		}

		s.step(
			yardmaster.NodeGone{
				Node:   h.node.ID,
				By:     "sim",
				Reason: fmt.Sprintf("no heartbeat for %s", job.Duration(s.cfg.Detect)),
			},
		)
	})
}
