package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/clock"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

const (
	// diskEvery is how often the folders of a run are measured, at most.
	diskEvery = time.Second
	// diskShare bounds the time that is spent on that: one part in so many.
	diskShare = 50
)

// watchDisk stops the run when its folders use more of the disk than they may, until ctx is cancelled.
func (s *supervisor) watchDisk(ctx context.Context) {
	for wait := diskEvery; clock.Sleep(ctx, wait); {
		begun := s.clk.Now()
		used := s.diskUse()
		wait = max(diskEvery, diskShare*s.clk.Now().Sub(begun))

		if used > s.rec.MaxDisk {
			s.send(ctx, order{
				mode: job.StopTerm, cause: job.CauseDiskLimit,
				reason: fmt.Sprintf("its folders use %s of the disk and may use %s on this node",
					humanize.Size(used), humanize.Size(s.rec.MaxDisk)),
			})

			return
		}
	}
}

// diskUse returns how much of the disk the folders of the run use. Checkpoints on a shared file system do not count.
func (s *supervisor) diskUse() job.Bytes {
	dirs := []string{filepath.Join(s.dir, rundir.WorkDir)}
	if s.rec.CheckpointDir == "" {
		dirs = append(dirs, s.checkpoints())
	}

	if s.rec.User != nil {
		for _, name := range []string{rundir.HomeDir, rundir.TmpDir, rundir.ReportDir} {
			dirs = append(dirs, filepath.Join(s.dir, name))
		}

		dirs = append(dirs, s.cache())
	}

	var sum int64
	for _, dir := range dirs {
		n, err := treeUse(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.logError(fmt.Errorf("measure %s: %w", dir, err))
		}

		sum += n
	}

	return job.Bytes(sum)
}

// treeUse returns how many bytes of the disk a directory uses. The program may change it meanwhile; no link leads out
// of it.
func treeUse(dir string) (sum int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, root.Close()) }()

	linked := map[uint64]bool{}
	err = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone, or closed
		}

		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // likewise
		}

		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || linked[st.Ino] {
			return nil
		}

		if st.Nlink > 1 && !d.IsDir() {
			linked[st.Ino] = true
		}

		sum += st.Blocks * 512

		return nil
	})

	return sum, err
}
