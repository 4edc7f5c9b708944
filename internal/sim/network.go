package sim

import (
	"slices"
	"time"

	"trainyard/internal/dataset"
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
	Disk    job.Bytes   // of a node: at which a program writes and reads its checkpoint; 0 for at once
}

// Yard is the same as the yard knows it.
func (n *Network) Yard() dataset.Network {
	return dataset.Network{In: n.Inside, Across: n.Across, PerGB: n.Price}
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

	if l.last == nil || l.job.Spec.Checkpoint == nil || l.job.CheckpointSize == 0 {
		return ready
	}

	if l.last.allocations[0].Node != m.allocations[0].Node { // else it is still there
		ready = max(ready, s.carryCheckpoint(m))
	}

	return ready + s.disk(l)
}

// carryCheckpoint carries a checkpoint between the first node of a run and the yard's store, which is
// where its own machines are, and returns how long that takes.
func (s *simulation) carryCheckpoint(m *model) time.Duration {
	n, l := s.cfg.Network, m.life
	if !inCloud(m.hosts[0]) {
		return s.carryOver(&s.ways.inside, n.Inside, l.job.CheckpointSize)
	}

	cost := n.Price.Moving(int64(l.job.CheckpointSize))
	l.Cost += cost
	s.tally.out.Money += float64(cost)
	s.tally.out.TransferMoney += float64(cost)

	return s.carryOver(&s.ways.across, n.Across, l.job.CheckpointSize)
}

// disk returns how long the program of a job writes or reads its checkpoint.
func (s *simulation) disk(l *jobRecord) time.Duration {
	if n := s.cfg.Network; n != nil && n.Disk > 0 {
		return job.Seconds(float64(l.job.CheckpointSize) / float64(n.Disk))
	}

	return 0
}

// saved returns how long it takes until the last checkpoint of a run that is stopped is safe: it is
// written and brought to the store. The run holds its nodes until then.
func (s *simulation) saved(m *model) time.Duration {
	save := s.disk(m.life)
	if t := m.life.truth(m.did); t != nil {
		save = max(save, time.Duration(t.Save))
	}

	if s.cfg.Network != nil && m.life.job.CheckpointSize > 0 {
		save += s.carryCheckpoint(m)
	}

	return save
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
