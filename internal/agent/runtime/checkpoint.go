package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"trainyard/internal/agent/runtime/tree"
	"trainyard/internal/id"
)

// linkCheckpoints makes the folder for checkpoints and, if the job names one in
// its working directory, puts a link to it there. What the shipped files
// hold at that place is moved into it, unless an earlier run has left something of that name.
func (s *supervisor) linkCheckpoints() (err error) {
	kept := filepath.Join(s.data, checkpointsDir, string(s.rec.Job))
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}
	name := s.rec.Launch.Checkpoint
	if name == "" {
		return nil
	}
	// A Root does not follow links that lead out of the working directory.
	root, err := os.OpenRoot(filepath.Join(s.dir, workDir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return root.Symlink(kept, name)
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		if err := root.Remove(name); err != nil {
			return err
		}
		return root.Symlink(kept, name)
	case !info.IsDir():
		return fmt.Errorf("%s is a file", name)
	}
	if err := s.moveShipped(root, name, kept); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	return root.Symlink(kept, name)
}

// moveShipped moves what was shipped in the checkpoint folder to where it is kept.
func (s *supervisor) moveShipped(root *os.Root, name, kept string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		to := filepath.Join(kept, n)
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		// name is not a link, as the caller has seen, and lies inside the working directory.
		if err := os.Rename(filepath.Join(root.Name(), name, n), to); err != nil {
			return err
		}
	}
	return nil
}

// pruneCheckpoints removes the checkpoint folders of jobs that have no rank
// here: empty ones at once, others when nothing in them has been touched for
// CheckpointAge. The yard does not tell agents when a job has ended for good.
func (r *Runtime) pruneCheckpoints() {
	root := filepath.Join(r.dir, checkpointsDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.log.Error("cannot look at the checkpoints", "error", err)
		}
		return
	}
	for _, e := range entries {
		r.pruneCheckpoint(id.Job(e.Name()))
	}
}

// pruneCheckpoint removes one job's checkpoints if it is time.
func (r *Runtime) pruneCheckpoint(j id.Job) {
	dir := filepath.Join(r.dir, checkpointsDir, string(j))
	touched, empty, err := lastTouched(dir)
	if err == nil && (empty || r.clk.Now().Sub(touched) > r.opt.CheckpointAge) {
		err = r.dropCheckpoints(j, dir, empty)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Error("cannot remove checkpoints", "dir", dir, "error", err)
	}
}

// dropCheckpoints removes a folder unless the job has a rank here. New ranks
// are recorded under the same lock before their supervisor makes the folder.
func (r *Runtime) dropCheckpoints(j id.Job, dir string, empty bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rk := range r.ranks {
		if rk.rec.Job == j {
			return nil
		}
	}
	if empty {
		return os.Remove(dir)
	}
	return tree.Remove(dir)
}

// lastTouched returns when a folder or something directly in it changed last.
func lastTouched(dir string) (at time.Time, empty bool, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return at, false, err
	}
	at = info.ModTime()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if inner, err := e.Info(); err == nil && inner.ModTime().After(at) {
			at = inner.ModTime()
		}
	}
	return at, len(entries) == 0, err
}
