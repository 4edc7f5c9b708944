// Package share divides one GPU among several jobs.
//
// A preloaded library (native/gpushare) holds back the kernel launches of a job's processes and caps their memory. A
// Broker, one for each GPU, grants it the GPU for some time: an arbiter decides by weighted virtual time, and never
// touches a clock, a socket or a process; the broker connects it to the processes. A job is who comes through its
// socket, whatever it says. If the broker is gone, programs go on without shares, and connect again when it is back.
package share

import (
	"fmt"
	"time"

	"trainyard/internal/agent/share/accounts"
)

// Class says who is served first.
type Class int

// The classes, from the least to the most urgent.
const (
	// Opportunistic jobs get what the others leave.
	Opportunistic Class = iota
	// Normal jobs share in proportion to their weights.
	Normal
	// Guaranteed jobs are served before normal ones until they have had their share, and beyond it like them.
	Guaranteed
)

func (c Class) String() string {
	switch c {
	case Opportunistic:
		return "opportunistic"
	case Normal:
		return "normal"
	case Guaranteed:
		return "guaranteed"
	}

	return fmt.Sprintf("class %d", int(c))
}

// Terms are what a job has of a GPU.
type Terms struct {
	Weight      float64 // its share, of 1
	Limit       float64 // the most it gets even if nobody else wants the GPU; 0 or 1 for no limit
	Class       Class
	Interactive bool // someone waits for each of its steps: turns are short
}

func (t Terms) limited() bool { return t.Limit > 0 && t.Limit < 1 }

func (t Terms) check() error {
	switch {
	case t.Weight <= 0 || t.Weight > 1:
		return fmt.Errorf("the share of a GPU must be above 0 and at most 1, got %g", t.Weight)
	case t.Limit < 0 || t.Limit > 1:
		return fmt.Errorf("the limit of a GPU share must be between 0 and 1, got %g", t.Limit)
	case t.Class < Opportunistic || t.Class > Guaranteed:
		return fmt.Errorf("unknown %s", t.Class)
	}

	return nil
}

// Mode says how a GPU is shared at the moment.
type Mode int

// The modes.
const (
	// Whole is one job that launches freely.
	Whole Mode = iota
	// Open lets all jobs launch freely, because they leave room for each other: the driver's time-slicing divides the GPU.
	Open
	// Token lets one job launch at a time.
	Token
	// MIG leaves the division to slices in hardware.
	MIG
	// MPS leaves it to NVIDIA's daemon, for jobs of one owner.
	MPS
)

func (m Mode) String() string {
	switch m {
	case Whole:
		return "whole"
	case Open:
		return "open"
	case Token:
		return "token"
	case MIG:
		return "mig"
	case MPS:
		return "mps"
	}

	return fmt.Sprintf("mode %d", int(m))
}

// Use is what a job has had of a GPU since it was added.
type Use struct {
	Held     time.Duration // had the GPU; in open mode estimated from how busy the jobs were
	Demanded time.Duration // had it or waited for it
	Entitled time.Duration // what its share of that is
	Grants   int           // how often it was granted the GPU
	// Unresponsive says that it did not give the GPU back when it was asked to, and still has not.
	Unresponsive bool
	Memory       accounts.Memory
	Denials      int // failed allocations
	Processes    int // that use the GPU now
}

// Tuning holds the times of an arbiter.
type Tuning struct {
	Quantum            time.Duration // the usual turn
	InteractiveQuantum time.Duration // the turn while an interactive job is among them
	Short              time.Duration // the least turn against a job that is more than a turn behind
	Patience           time.Duration // how long after a revocation a job counts as unresponsive
	Depth              time.Duration // how much unused limit or guarantee is saved up
	Dwell              time.Duration // how long a change must last in open mode
	Retry              time.Duration // how long open mode is trusted at first
	Trust              time.Duration // how long it is trusted at most
}

// DefaultTuning returns the times for training jobs.
func DefaultTuning() Tuning {
	return Tuning{
		Quantum:            150 * time.Millisecond,
		InteractiveQuantum: 20 * time.Millisecond,
		Short:              10 * time.Millisecond,
		Patience:           5 * time.Second,
		Depth:              500 * time.Millisecond,
		Dwell:              2 * time.Second,
		Retry:              10 * time.Second,
		Trust:              time.Minute,
	}
}
