package sim

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Network is how data and checkpoints travel. Each way carries so many bytes a
// second; who comes while it is in use waits until it is free, so that all
// together never get more than it carries.
type Network struct {
	Storage job.Bytes   // from the data's store to a node
	Inside  job.Bytes   // between two nodes of one place: own machines, or the cloud
	Across  job.Bytes   // between own machines and the cloud
	Price   money.PerGB // of what goes across
}

// ways are the times at which each way is free again.
type ways struct{ storage, inside, across time.Duration }

// bring fetches what a run needs and its nodes do not have, and returns how long
// that takes.
func (s *simulation) bring(m *model) time.Duration {
	n, l := s.cfg.Network, m.life
	if n == nil {
		return 0
	}

	var ready time.Duration
	if l.job.Data > 0 {
		for _, seat := range m.allocations {
			if !slices.Contains(l.been, seat.Node) {
				l.been = append(l.been, seat.Node)
				ready = max(ready, s.carryOver(&s.ways.storage, n.Storage, l.job.Data))
			}
		}
	}

	if l.last == nil || l.job.CheckpointSize == 0 || l.last.allocations[0].Node == m.allocations[0].Node {
		return ready
	}
	if inCloud(l.last.hosts[0]) == inCloud(m.hosts[0]) {
		return max(ready, s.carryOver(&s.ways.inside, n.Inside, l.job.CheckpointSize))
	}

	cost := n.Price.Moving(int64(l.job.CheckpointSize))
	l.Cost += cost
	s.tally.out.Money += float64(cost)

	return max(ready, s.carryOver(&s.ways.across, n.Across, l.job.CheckpointSize))
}

func inCloud(h *host) bool { return h.node.Class != fleet.Local }

// carryOver sends bytes over a way and returns how long it is until they are there.
func (s *simulation) carryOver(free *time.Duration, speed, size job.Bytes) time.Duration {
	if speed <= 0 {
		return 0
	}

	*free = max(*free, s.now) + job.Seconds(float64(size)/float64(speed))

	return *free - s.now
}
