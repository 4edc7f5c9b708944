package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/job"
)

// setUp provides the set-up, from the cache or by running it. The set-up stays in the cache until
// release is called. If the set-up fails, setUp returns false and the ending of the rank.
func (s *supervisor) setUp() (release func(), e rundir.Ending, ok bool) {
	plan := s.rec.Setup
	use, err := s.lockSetup(plan.Dir, rundir.SetupUseLock, unix.LOCK_SH, s.remarkWait)
	if err != nil {
		return func() {}, setupTrouble(err), false
	}
	if use == nil {
		return func() {}, s.neverStarted(), false
	}

	release = func() { _ = use.Close() }

	made, have, err := s.cached(plan.Dir)
	if err == nil && !have {
		var maker *os.File
		maker, err = s.lockSetup(plan.Dir, rundir.SetupMakeLock, unix.LOCK_EX, s.remarkWait)
		if err == nil && maker == nil {
			return release, s.neverStarted(), false
		}

		if err == nil {
			defer func() { _ = maker.Close() }()

			made, have, err = s.cached(plan.Dir) // another run may have made it meanwhile
		}
	}

	if err == nil && have {
		err = s.reuse(made)
		if err == nil {
			s.out.remark("set-up %s taken from the cache", plan.Key)
			return release, rundir.Ending{}, true
		}
	}

	if err != nil {
		return release, setupTrouble(err), false
	}

	e, ok, err = s.makeSetup()
	if err != nil {
		return release, setupTrouble(err), false
	}

	return release, e, ok
}

// setupTrouble returns the ending of a rank whose set-up failed for a reason outside the job.
func setupTrouble(err error) rundir.Ending {
	return rundir.Ending{Cause: job.CauseLaunchFailed, Reason: fmt.Sprintf("cannot prepare the set-up: %v", err)}
}

// remarkWait says that another run makes the same set-up.
func (s *supervisor) remarkWait() {
	s.out.remark("waiting for another run that is making the same set-up")
}

// lockSetup takes a lock of a set-up and waits while another process holds it; it calls waiting before. It returns nil
// if the rank is asked to stop meanwhile.
func (s *supervisor) lockSetup(dir, name string, how int, waiting func()) (*os.File, error) {
	for remarked := false; ; {
		f, err := rundir.TryLockSetup(dir, name, how)
		if f != nil || err != nil {
			return f, err
		}

		if !remarked {
			remarked = true
			waiting()
		}

		s.await(50 * time.Millisecond)

		if s.stopRequested() {
			return nil, nil
		}
	}
}

// cached reports whether a complete set-up is in the cache.
func (s *supervisor) cached(dir string) (rundir.SetupResult, bool, error) {
	var made rundir.SetupResult
	have, err := rundir.ReadJSON(filepath.Join(dir, rundir.SetupResultFile), &made)
	return made, have, err
}

// reuse copies the cached set-up into the rank's working directory.
func (s *supervisor) reuse(made rundir.SetupResult) error {
	now := s.clk.Now()
	if err := os.Chtimes(filepath.Join(s.rec.Setup.Dir, rundir.SetupResultFile), now, now); err != nil {
		return err
	}
	if !made.Tree {
		return nil
	}

	work := filepath.Join(s.dir, rundir.WorkDir)
	if err := rundir.RemoveTree(work); err != nil {
		return err
	}

	if err := copyTree(filepath.Join(s.rec.Setup.Dir, rundir.SetupTreeName), work); err != nil || s.rec.User == nil {
		return err
	}

	return sandbox.Own(work, s.rec.User, nil)
}

// makeSetup runs the set-up and caches its result if it succeeds.
func (s *supervisor) makeSetup() (rundir.Ending, bool, error) {
	plan, work := s.rec.Setup, filepath.Join(s.dir, rundir.WorkDir)
	kept := filepath.Join(plan.Dir, rundir.SetupTreeName)

	// Remove what a failed attempt left behind.
	if err := errors.Join(rundir.RemoveTree(plan.OutputDir()), rundir.RemoveTree(kept)); err != nil {
		return rundir.Ending{}, false, err
	}
	if err := s.makeDir(plan.OutputDir()); err != nil {
		return rundir.Ending{}, false, err
	}

	before, _, err := fingerprint(work)
	if err != nil {
		return rundir.Ending{}, false, err
	}

	r, err := s.runScript(s.rec.Launch.Setup, job.RunPreparing)
	if err != nil {
		return rundir.Ending{}, false, err
	}
	if !r.ok() {
		return s.classifySetup(r), false, nil
	}

	after, size, err := fingerprint(work)
	if err != nil {
		return rundir.Ending{}, false, err
	}

	made := rundir.SetupResult{Tree: after != before}
	_, made.Size, err = fingerprint(plan.OutputDir())
	if err != nil {
		return rundir.Ending{}, false, err
	}

	if made.Tree {
		made.Size += size

		if err := copyTree(work, kept); err != nil {
			// The run can continue; the next run makes its set-up again.
			s.logError(err)
			s.out.remark("set-up not cached: %v", err)
			return rundir.Ending{}, true, rundir.RemoveTree(kept)
		}
	}

	if s.rec.User != nil {
		if err := sandbox.Seal(plan.OutputDir(), s.rec.User); err != nil {
			return rundir.Ending{}, false, err
		}
	}

	return rundir.Ending{}, true, rundir.WriteJSON(filepath.Join(plan.Dir, rundir.SetupResultFile), made, true)
}
