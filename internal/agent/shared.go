package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"trainyard/internal/agent/checkpoints"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// sweepEvery is how often what is not needed any more is removed from shared file systems.
const sweepEvery = 10 * time.Minute

// sharedFolders is what is known of the shared file systems that the server declares for this node. One that does not
// answer must stop nothing else, so every look at it is given up after a time.
type sharedFolders struct {
	mu       sync.Mutex
	declared []api.SharedFolder
	found    []fleet.Shared
	hanging  map[string]bool // paths at which a look has not come back
}

// takeShared takes what the server declares. What is new is looked at soon.
func (a *Agent) takeShared(declared []api.SharedFolder) {
	s := &a.shared
	s.mu.Lock()
	same := slices.Equal(s.declared, declared)
	s.declared = declared
	s.mu.Unlock()

	if !same {
		notify(a.inventorySoon)
	}
}

// lookAll looks at all that are declared.
func (s *sharedFolders) lookAll(ctx context.Context) {
	s.mu.Lock()
	declared := s.declared
	s.mu.Unlock()

	var found []fleet.Shared

	for i := range declared {
		f := &declared[i]
		is := fleet.Shared{Name: f.Name, Path: f.Path, OK: true}

		if err := s.look(ctx, f); err != nil {
			is.OK, is.Reason = false, clipReason(err.Error())
		}

		found = append(found, is)
	}

	if ctx.Err() != nil {
		return // the agent is stopping, which says nothing about them
	}

	s.mu.Lock()
	s.found = found
	s.mu.Unlock()
}

// list returns what was found of each.
func (s *sharedFolders) list() []fleet.Shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// look looks at one, for a limited time.
func (s *sharedFolders) look(ctx context.Context, f *api.SharedFolder) error {
	silent := fmt.Errorf("%s does not answer", f.Path)

	s.mu.Lock()
	busy := s.hanging[f.Path]
	if !busy {
		if s.hanging == nil {
			s.hanging = map[string]bool{}
		}

		s.hanging[f.Path] = true
	}
	s.mu.Unlock()

	if busy {
		return silent
	}

	done := make(chan error, 1)
	folder := *f

	go func() {
		err := checkpoints.LookAt(&folder)

		s.mu.Lock()
		delete(s.hanging, folder.Path)
		s.mu.Unlock()

		done <- err
	}()

	ctx, cancel := context.WithTimeout(ctx, checkpoints.SharedTimeout)
	defer cancel()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return silent
	}
}

// sharedRoot makes sure that a shared file system is there at this moment, and returns where.
func (a *Agent) sharedRoot(ctx context.Context, name string) (string, error) {
	s := &a.shared
	s.mu.Lock()
	at := slices.IndexFunc(s.declared, func(f api.SharedFolder) bool { return f.Name == name })
	var folder api.SharedFolder
	if at >= 0 {
		folder = s.declared[at]
	}
	s.mu.Unlock()

	if at < 0 {
		return "", fault.New(fault.Unavailable, "shared_fs", "shared file system %s is not declared for this node", name)
	}

	folder.Create = false // only a look that the server hears of makes one

	if err := s.look(ctx, &folder); err != nil {
		notify(a.inventorySoon)
		return "", fault.New(fault.Unavailable, "shared_fs", "shared file system %s: %v", name, err).WithCause(err)
	}

	return folder.Path, nil
}

// sharedCheckpoints returns the checkpoint directory of a rank if it is on a shared file system, "" otherwise.
func (a *Agent) sharedCheckpoints(ctx context.Context, want *api.Assignment) (string, error) {
	if want.Launch.Shared == "" {
		return "", nil
	}

	root, err := a.sharedRoot(ctx, want.Launch.Shared)
	if err != nil {
		return "", err
	}

	rank := checkpoints.SharedRank{
		Job: want.Job, JobUID: want.Launch.JobUID, UID: want.Launch.UID, Epoch: want.Epoch, Rank: want.Rank,
	}

	return rank.DirOn(root), nil
}

// sweepLoop removes what is not needed any more from the shared file systems of which this node is the keeper.
func (a *Agent) sweepLoop(ctx context.Context) {
	for clock.Sleep(ctx, sweepEvery) {
		s := &a.shared
		s.mu.Lock()
		declared := s.declared
		s.mu.Unlock()

		var errs []error
		for i := range declared {
			if declared[i].Keeper {
				errs = append(errs, a.checkpoints.Sweep(ctx, declared[i].Name))
			}
		}

		if ctx.Err() == nil {
			a.noteProblem("cleaning of shared file systems", errors.Join(errs...))
		}
	}
}
