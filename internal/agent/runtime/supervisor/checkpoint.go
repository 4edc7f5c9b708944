package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"trainyard/internal/agent/runtime/rundir"
)

// linkCheckpoints makes the folder for checkpoints and, if the job names one in
// its working directory, puts a link to it there. What the shipped files
// hold at that place is moved into it, unless an earlier run has left something of that name.
func (s *supervisor) linkCheckpoints() (err error) {
	kept := filepath.Join(s.data, rundir.CheckpointsDir, string(s.rec.Job))
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}

	name := s.rec.Launch.Checkpoint
	if name == "" {
		return nil
	}

	// A Root does not follow links that lead out of the working directory.
	root, err := os.OpenRoot(filepath.Join(s.dir, rundir.WorkDir))
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

	if err := s.moveUploaded(root, name, kept); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}

	return root.Symlink(kept, name)
}

// moveUploaded moves what was shipped in the checkpoint folder to where it is kept.
func (s *supervisor) moveUploaded(root *os.Root, name, kept string) error {
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
