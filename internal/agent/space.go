package agent

import (
	"fmt"

	"trainyard/internal/diskspace"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// space watches the free space of the disk that holds the agent's data: what runs write there, their output, and the
// files and datasets of the next ones. Below the minimum the node takes no new jobs; those that run are left alone.
// Only the report loop uses it.
type space struct {
	dir   string
	floor diskspace.Floor
	free  func(dir string) (free, total job.Bytes, err error)
	low   bool // the last look found too little
}

// problem measures the free space and returns the problem to report, nil if there is enough. The words do not change
// while the disk stays full, because every change is stored. A disk counts as full until a quarter more than the
// minimum is free, so that a node at the limit does not come and go.
func (s *space) problem() (*fleet.Problem, error) {
	if s.floor == (diskspace.Floor{}) {
		return nil, nil
	}

	free, total, err := s.free(s.dir)
	if err != nil {
		return nil, err
	}

	least := s.floor.Of(total)

	limit := least
	if s.low {
		limit += least / 4
	}

	s.low = free < limit
	if !s.low {
		return nil, nil
	}

	return &fleet.Problem{
		Cause:  diskspace.CodeFull,
		Reason: fmt.Sprintf("less than %s free on the disk that holds %s", humanize.Size(least), s.dir),
	}, nil
}

// currentInventory returns the newest look at the machine, with what keeps new jobs off it now.
func (a *Agent) currentInventory() fleet.Inventory {
	problem, err := a.space.problem()
	a.noteProblem("measurement of free space", err)

	a.mu.Lock()
	defer a.mu.Unlock()

	inv := a.latestScan.Inventory
	inv.Problem = problem

	before := ""
	if sent := a.acknowledgedInventory; sent != nil && sent.Problem != nil {
		before = sent.Problem.Reason
	}

	switch {
	case problem == nil && before != "":
		a.log.Info("node has space again and takes jobs")
	case problem != nil && before != problem.Reason:
		a.log.Warn("node takes no jobs", "cause", problem.Cause, "reason", problem.Reason)
	}

	return inv
}

// diskFree is the free space in bytes, -1 if it cannot be measured.
func (a *Agent) diskFree() float64 {
	free, _, err := a.cfg.Free(a.cfg.Dir)
	if err != nil {
		return -1
	}

	return float64(free)
}
