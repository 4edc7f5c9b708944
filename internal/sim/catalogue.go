package sim

import (
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/yardmaster"
)

// savesAfter is how long a run works before its first checkpoint if its job does not say how often it saves.
const savesAfter = 10 * time.Minute

// catalogue lets the yard know the first checkpoint of a run. It stands for all later ones: policies go by its size.
func (s *simulation) catalogue(m *model) {
	c := m.life.job.Spec.Checkpoint
	if c == nil || s.cfg.Watch != nil || s.cfg.CheckpointsStay || s.cfg.Cloud == nil && s.cfg.Network == nil {
		return
	}

	every := time.Duration(c.Every)
	if every == 0 {
		every = savesAfter
	}

	s.saves++
	s.at(max(m.works, s.now)+every, func(s *simulation) {
		s.saves--

		if m.halted {
			return
		}

		size := m.life.job.CheckpointSize
		s.step(yardmaster.AddCheckpoint{Checkpoint: checkpoint.Checkpoint{
			Run: m.run, UID: m.uid, Name: ".", Step: -1, Found: checkpoint.ByRest, Written: s.time(), Ranks: 1,
			Parts: []checkpoint.Part{{Node: m.allocations[0].Node, Manifest: string(m.run), Size: size}},
		}})
	})
}
