package runtime

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"trainyard/internal/agent/runtime/rundir"
)

// The run directory of a short rank is the next one's, so that a file system makes and removes four files for it
// and not eleven. It waits as long as its supervisor does, and is removed then. Its name has a dot, so that Adopt
// removes what an agent process leaves that is killed.

// gonePath returns where the run directory of a rank that was forgotten is moved to. No two are the same: one may wait
// there for the next rank.
func (r *Runtime) gonePath(name string) string {
	r.forgotten++ // guarded by mu, as the caller holds it
	return filepath.Join(r.dir, rundir.RunsDir, ".gone-"+strconv.FormatUint(r.forgotten, 10)+"-"+name)
}

// discard removes the run directory of a rank that was forgotten, or keeps it for the next rank if the supervisor of
// this one has said that nothing of it is left.
func (r *Runtime) discard(dir string, spent bool) error {
	if !spent || rundir.Recycle(dir) != nil {
		return rundir.RemoveTree(dir)
	}

	r.tasks.Go(func() {
		rest, cancel := context.WithTimeout(r.ctx, r.spareRest)
		defer cancel()

		select {
		case r.spareDirs <- dir:
		case <-rest.Done():
			if err := rundir.RemoveTree(dir); err != nil {
				r.log.Warn("cannot remove a run directory", "dir", dir, "error", err)
			}
		}
	})

	return nil
}

// newRunDir returns a directory in which there is room for a rank. It gets its name when it is filled.
func (r *Runtime) newRunDir() (string, error) {
	select {
	case dir := <-r.spareDirs:
		return dir, nil
	default:
	}

	dir, err := os.MkdirTemp(filepath.Join(r.dir, rundir.RunsDir), ".new-")
	if err != nil {
		return "", err
	}

	return dir, rundir.Reserve(dir)
}
