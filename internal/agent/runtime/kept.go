package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// The working directories of ranks that have ended are kept for a while, so that their owners can fetch files from them
// that they have not named before. Nothing else of a run directory is.

// keptFile describes a kept working directory, beside its record.
const keptFile = "kept.json"

// keptRun is the content of keptFile.
type keptRun struct {
	Size job.Bytes `json:"size"`
	At   time.Time `json:"at"`
}

// kept is a working directory that is kept.
type kept struct {
	dir string // with the record beside it
	keptRun
}

// keep moves the working directory and the record of a rank out of its run directory, which is removed then. One
// without files is not kept.
func (r *Runtime) keep(name, dir string) error {
	work := filepath.Join(dir, rundir.WorkDir)
	size, files, err := treeSize(work)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was never prepared
	}
	if err != nil || files == 0 || r.opt.KeepRuns == 0 || size > r.opt.KeptBytes {
		return err
	}

	r.prune.Lock()
	defer r.prune.Unlock()

	k := kept{filepath.Join(r.dir, rundir.KeptDir, name), keptRun{size, r.clk.Now()}}
	if err := errors.Join(rundir.RemoveTree(k.dir), os.MkdirAll(k.dir, 0o700)); err != nil {
		return err
	}

	err = os.Rename(filepath.Join(dir, rundir.LaunchFile), filepath.Join(k.dir, rundir.LaunchFile))
	if err == nil {
		err = rundir.WriteJSON(filepath.Join(k.dir, keptFile), k.keptRun, false)
	}

	if err == nil {
		err = os.Rename(work, filepath.Join(k.dir, rundir.WorkDir))
	}

	if err != nil {
		return errors.Join(fmt.Errorf("keep the working directory of %s: %w", name, err), rundir.RemoveTree(k.dir))
	}

	r.kept, r.keptSize = append(r.kept, k), r.keptSize+k.Size

	return r.dropKept()
}

// treeSize returns the bytes of all files below a directory, and how many there are.
func treeSize(root string) (size job.Bytes, files int, err error) {
	err = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}

		if err == nil {
			size += job.Bytes(info.Size())
			files++
		}

		return err
	})

	return size, files, err
}

// loadKept finds what an earlier agent process has kept.
func (r *Runtime) loadKept() error {
	r.prune.Lock()
	defer r.prune.Unlock()

	root := filepath.Join(r.dir, rundir.KeptDir)
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	for _, e := range entries {
		k := kept{dir: filepath.Join(root, e.Name())}
		ok, err := rundir.ReadJSON(filepath.Join(k.dir, keptFile), &k.keptRun)
		if err != nil || !ok { // a crash left it
			if err := rundir.RemoveTree(k.dir); err != nil {
				return err
			}

			continue
		}

		r.kept, r.keptSize = append(r.kept, k), r.keptSize+k.Size
	}

	slices.SortFunc(r.kept, func(a, b kept) int { return a.At.Compare(b.At) })

	return nil
}

// keepPruning removes kept working directories when they are due, also on a node where no other run ends.
func (r *Runtime) keepPruning() {
	every := max(time.Second, min(time.Minute, r.opt.KeepRuns/2))
	clock.Every(r.ctx, r.clk, every, func(time.Time) { r.pruneKept() })
}

// pruneKept removes the kept working directories that are due.
func (r *Runtime) pruneKept() {
	r.prune.Lock()
	defer r.prune.Unlock()

	if err := r.dropKept(); err != nil {
		r.log.Error("cannot remove kept working directories", "error", err)
	}
}

// dropKept removes what is too old, and then the oldest until the rest fits and leaves room on the disk. The caller
// holds r.prune.
func (r *Runtime) dropKept() error {
	for len(r.kept) > 0 {
		oldest := r.kept[0]
		if r.clk.Now().Sub(oldest.At) <= r.opt.KeepRuns && r.keptSize <= r.opt.KeptBytes {
			free, size, err := r.opt.Free(r.dir)
			if err != nil || free >= r.opt.MinFree.WithSpare(size) {
				return err
			}
		}

		if err := rundir.RemoveTree(oldest.dir); err != nil {
			return err
		}

		r.kept, r.keptSize = r.kept[1:], r.keptSize-oldest.Size
	}

	return nil
}

// keptSources returns where the files of a rank are whose working directory is kept.
func (r *Runtime) keptSources(run id.Run, n int) (MetricSources, error) {
	missing := fault.New(fault.NotFound, "rank_not_found",
		"the folder of rank %d of run %s is not on this node any more, or had no files", n, run)
	if _, _, ok := run.Split(); !ok || n < 0 { // it becomes part of a path
		return MetricSources{}, missing
	}

	dir := filepath.Join(r.dir, rundir.KeptDir, rundir.RankName(run, n))

	var rec rundir.Record
	ok, err := rundir.ReadJSON(filepath.Join(dir, rundir.LaunchFile), &rec)
	if err != nil {
		return MetricSources{}, err
	}
	if !ok {
		return MetricSources{}, missing
	}

	return MetricSources{
		Work: filepath.Join(dir, rundir.WorkDir), Checkpoints: rec.Checkpoints(r.dir), Launch: rec.Launch,
	}, nil
}
