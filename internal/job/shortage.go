package job

import (
	"time"

	"trainyard/internal/id"
)

// Shortage is what is known of the memory that jobs of a kind need, because one of them ran out of it.
type Shortage struct {
	Key   string    `json:"key"`   // what jobs of the kind have in common
	Floor Floor     `json:"floor"` // memory of which they ran out: they need more than that
	Job   id.Job    `json:"job"`   // that ran out of it last
	At    time.Time `json:"at"`
}

// Add records that another job of the kind ran out of memory.
func (s *Shortage) Add(lacked Floor, j id.Job, now time.Time) {
	s.Floor.Memory = max(s.Floor.Memory, lacked.Memory)
	s.Floor.GPUMemory = max(s.Floor.GPUMemory, lacked.GPUMemory)
	s.Job, s.At = j, now
}

// Correct records that a job of the kind succeeded with so much memory; 0 if how much it had of one sort is unknown.
// It reports whether that was less than is known to be needed.
func (s *Shortage) Correct(had Floor) bool {
	before := s.Floor
	if had.Memory > 0 && had.Memory <= s.Floor.Memory {
		s.Floor.Memory = 0
	}

	if had.GPUMemory > 0 && had.GPUMemory <= s.Floor.GPUMemory {
		s.Floor.GPUMemory = 0
	}

	return s.Floor != before
}

// For returns the floor of a job of the kind: GPUs with more memory than where others ran out, and twice as much memory
// on the host, unless the job asks for more than they had anyway.
func (s *Shortage) For(spec *Spec) Floor {
	floor := Floor{GPUMemory: s.Floor.GPUMemory}
	if spec.Resources.Memory <= s.Floor.Memory {
		floor.Memory = 2 * s.Floor.Memory
	}

	return floor
}
