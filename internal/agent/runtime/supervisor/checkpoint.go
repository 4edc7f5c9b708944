package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/agent/snapshot"
)

// checkpoints returns the directory with the checkpoints of the job.
func (s *supervisor) checkpoints() string {
	return s.rec.Checkpoints(s.data)
}

// linkCheckpoints creates the checkpoint directory and, if the job names one in its working
// directory, puts a link to it there. Uploaded files at that path are moved into it, unless an
// earlier run left a file of the same name.
func (s *supervisor) linkCheckpoints() error {
	kept := s.checkpoints()
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}

	if err := s.linkFolder(kept); err != nil || s.rec.User == nil {
		return err
	}

	// Snapshots stay the agent's: the program must not change what CRIU restores.
	return sandbox.Own(kept, s.rec.User, func(name string) bool {
		_, err := os.Lstat(filepath.Join(kept, name, snapshot.Marker))
		return err == nil
	})
}

// linkFolder puts the link into the working directory.
func (s *supervisor) linkFolder(kept string) (err error) {
	name := s.rec.Launch.Checkpoint
	if name == "" {
		return nil
	}

	link := kept
	if s.rec.Launch.Snapshot { // as the program sees it, in every run on every node
		link = filepath.Join(snapshot.Root, checkpointBind)
	}

	// A Root does not follow links out of the working directory.
	root, err := os.OpenRoot(filepath.Join(s.dir, rundir.WorkDir))
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, root.Close()) }()

	if err := s.makeParents(root, filepath.Dir(name)); err != nil {
		return err
	}

	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return root.Symlink(link, name)
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		if err := root.Remove(name); err != nil {
			return err
		}

		return root.Symlink(link, name)
	case !info.IsDir():
		return fmt.Errorf("%s is a file", name)
	}

	if err := s.moveUploaded(root, name, kept); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}

	return root.Symlink(link, name)
}

// makeParents makes the directory of the link, and those on the way to it, for the program.
func (s *supervisor) makeParents(root *os.Root, dir string) error {
	if err := root.MkdirAll(dir, 0o755); err != nil || s.rec.User == nil {
		return err
	}

	for ; dir != "."; dir = filepath.Dir(dir) {
		if err := root.Lchown(dir, s.rec.User.UID, s.rec.User.GID); err != nil {
			return err
		}
	}

	return nil
}

// moveUploaded moves uploaded files from the checkpoint path in the working directory to the
// directory where checkpoints are kept.
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

		// The caller has checked that name is not a link and lies inside the working directory.
		if err := moveTree(filepath.Join(root.Name(), name, n), to); err != nil {
			return err
		}
	}

	return nil
}

// moveTree moves a file or a directory, also to another file system.
func moveTree(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}

	if err := copyTree(from, to); err != nil {
		return err
	}

	return os.RemoveAll(from)
}
