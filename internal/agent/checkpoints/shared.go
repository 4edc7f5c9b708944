package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/checkpoint"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// The layout of a shared file system. Every run has a directory of its own, so that a run which is still alive
// somewhere cannot touch what a newer one has:
//
//	trainyard/JOB-UID/EPOCH-UID/rank-N       the checkpoint directory of a rank, which its program writes to
//	trainyard/JOB-UID/EPOCH-UID/kept/DIGEST  a checkpoint, which nobody changes
const (
	// SharedDir is the directory on a shared file system in which everything of the yard is.
	SharedDir = "trainyard"

	keptDir     = "kept"
	rankPrefix  = "rank-"
	sharedDepth = 4 // of a checkpoint directory below the root
	// sharedBatch is how many directories are asked about at a time.
	sharedBatch = 1000
	// copySize is how much is copied between two signs of life.
	copySize = 64 << 20
)

// SharedRank names the run and the rank whose checkpoint directory is on a shared file system.
type SharedRank struct {
	Job         id.Job
	JobUID, UID id.UID // of the job and of the run
	Epoch, Rank int
}

// DirOn returns the checkpoint directory on a shared file system.
func (r *SharedRank) DirOn(root string) string {
	return filepath.Join(root, SharedDir, string(r.Job)+"-"+string(r.JobUID),
		strconv.Itoa(r.Epoch)+"-"+string(r.UID), rankPrefix+strconv.Itoa(r.Rank))
}

// rootOf returns the root of the shared file system on which a checkpoint directory is.
func rootOf(dir string) string {
	for range sharedDepth {
		dir = filepath.Dir(dir)
	}

	return dir
}

// keep stores a checkpoint on the shared file system on which its run writes, and enters it in the catalogue. What is
// kept is a copy, or the files themselves under a second name if their program never writes into them again.
func (s *Saver) keep(ctx context.Context, t *tree, u *unit, files []file, progress *transfer) (err error) {
	root, err := s.all.opt.Shared(ctx, s.rank.Shared)
	if err != nil {
		return err
	}
	if root != rootOf(s.rank.Dir) {
		return fmt.Errorf("shared file system %s is at %s now, the run writes to %s", s.rank.Shared, root, s.rank.Dir)
	}

	kept := filepath.Join(filepath.Dir(s.rank.Dir), keptDir)
	draft := filepath.Join(kept, ".draft-"+strconv.Itoa(s.rank.Rank))

	defer func() { err = errors.Join(err, os.RemoveAll(draft)) }()

	if err := makeDraft(ctx, draft, t, u, files, progress); err != nil {
		return err
	}

	all, err := s.digest(ctx, draft, u, files, progress)
	if err != nil {
		return err
	}
	if !u.single {
		if err := unchanged(t, files); err != nil {
			return err
		}
	}

	s.state.remember(all)

	manifest, err := manifestOf(all)
	if err != nil {
		return err
	}

	name := filepath.Join(kept, manifest.chunk.Digest[:32]+"-"+strconv.FormatInt(newest(u.files).UnixNano(), 36))
	if err := settleDraft(draft, name); err != nil {
		return fmt.Errorf("keep checkpoint %s: %w", u.name, err)
	}

	below, err := filepath.Rel(root, name)
	if err != nil {
		return fmt.Errorf("keep checkpoint %s: %w", u.name, err)
	}

	if err := s.enter(ctx, t, u, manifest, filepath.ToSlash(below), progress); err != nil {
		return err
	}

	jobDir := filepath.Dir(filepath.Dir(s.rank.Dir))
	if err := s.all.sweep(ctx, s.rank.Shared, root, []string{filepath.Base(jobDir)}); err != nil {
		s.all.opt.Log.Warn("cannot remove checkpoints that are not kept", "dir", jobDir, "error", err)
	}

	return nil
}

// makeDraft makes a directory with the files of a checkpoint, on disk.
func makeDraft(ctx context.Context, draft string, t *tree, u *unit, files []file, progress *transfer) error {
	if err := os.RemoveAll(draft); err != nil {
		return err
	}

	dirs := map[string]bool{}
	own := map[string]bool{}
	for i := range u.files {
		own[u.files[i].path] = true
	}

	for i := range files {
		f := &files[i]
		to := filepath.Join(draft, filepath.FromSlash(f.path))

		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}

		dirs[filepath.Dir(to)] = true

		if f.link != "" {
			if err := os.Symlink(f.link, to); err != nil {
				return err
			}

			continue
		}

		if err := duplicate(ctx, t, f, to, u.single, own[f.path] && writtenOnce(u), progress); err != nil {
			return err
		}
	}

	for d := range dirs {
		if err := atomicfile.SyncDir(d); err != nil {
			return err
		}
	}

	return nil
}

// writtenOnce reports whether the program that wrote a checkpoint never writes into its files again: it replaces them
// or has new ones next time.
func writtenOnce(u *unit) bool {
	switch u.found {
	case checkpoint.ByMarker, checkpoint.ByRename, checkpoint.ByHuggingFace, checkpoint.ByLightning, checkpoint.BySnapshot:
		return true
	case checkpoint.ByDCP, checkpoint.ByRest:
	}

	return false
}

// duplicate makes a file beside one of the checkpoint directory: as a clone where the file system can, as a second name
// if it is never written again, as a copy otherwise.
func duplicate(
	ctx context.Context, t *tree, f *file, to string, single, link bool, progress *transfer,
) (err error) {
	from, err := (&reader{packer: &packer{tree: t, single: single}}).open(f)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, from.Close()) }()

	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode.Perm()|0o600)
	if err != nil {
		return err
	}

	err = unix.IoctlFileClone(int(out.Fd()), int(from.Fd()))
	if err == nil {
		progress.skip(f.size)
		return finishFile(out, f)
	}

	if link && secondName(from, to) == nil {
		progress.skip(f.size)
		return errors.Join(from.Sync(), out.Close())
	}

	err = copyFile(ctx, out, from, f.size, progress)

	return errors.Join(err, finishFile(out, f))
}

// finishFile closes a file that was made like another one, on disk.
func finishFile(out *os.File, like *file) error {
	return errors.Join(out.Chmod(like.mode.Perm()), out.Sync(), out.Close())
}

// secondName gives an open file another name, in place of the file that has it.
func secondName(from *os.File, to string) error {
	other := to + ".link"
	source := "/proc/self/fd/" + strconv.Itoa(int(from.Fd()))

	if err := unix.Linkat(unix.AT_FDCWD, source, unix.AT_FDCWD, other, unix.AT_SYMLINK_FOLLOW); err != nil {
		return err
	}

	if err := os.Rename(other, to); err != nil {
		return errors.Join(err, os.Remove(other))
	}

	return nil
}

// copyFile copies a file of a known size. The kernel does it, on the file server if that can.
func copyFile(ctx context.Context, to io.Writer, from io.Reader, size int64, progress *transfer) error {
	for left := size; left > 0; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		n, err := io.CopyN(to, from, min(left, copySize))
		progress.done(n)
		left -= n

		if errors.Is(err, io.EOF) {
			return errChanged // it has become shorter
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// digest computes the chunks of the files of a draft.
func (s *Saver) digest(
	ctx context.Context, draft string, u *unit, files []file, progress *transfer,
) (_ []packed, err error) {
	root, err := os.OpenRoot(draft)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, root.Close()) }()

	t := &tree{root: root, dirs: map[string]bool{}}
	original := make(map[string]*file, len(files))

	for i := range files {
		f, err := t.lstat(files[i].path)
		if err != nil {
			return nil, err
		}

		t.files = append(t.files, f)
		original[f.path] = &files[i]
	}

	p := &packer{
		store: s.all.store, gear: s.all.gear, run: s.rank.Run, tree: t, progress: progress, single: u.single, stays: true,
		cached: func(f *file) ([]api.CheckpointChunk, bool) { return s.state.chunks(original[f.path]) },
	}

	all, err := p.pack(ctx, t.files)
	if err != nil {
		return nil, err
	}

	for i := range all {
		all[i].file = *original[all[i].file.path]
	}

	return all, nil
}

// settleDraft gives a draft its final name. One that is there already is the same: an earlier agent process made it and
// did not enter it in the catalogue.
func settleDraft(draft, name string) error {
	err := os.Rename(draft, name)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	if err != nil {
		return err
	}

	return atomicfile.SyncDir(filepath.Dir(name))
}

// manifestOf returns the manifest of files.
func manifestOf(all []packed) (piece, error) {
	m := api.CheckpointManifest{Files: make([]api.CheckpointFile, len(all))}
	for i := range all {
		m.Files[i] = all[i].entry()
	}

	text, err := json.Marshal(m)
	if err != nil {
		return piece{}, fmt.Errorf("encode the manifest: %w", err)
	}

	return piece{text, &api.CheckpointChunk{Digest: digestOf(text), Size: int64(len(text))}}, nil
}

// bringKept copies those files of a checkpoint that are on shared file systems to a directory beside the checkpoint
// directory. They are verified there, so that nothing that happens to the originals later matters. One that is missing
// is left out.
func (r *restore) bringKept(ctx context.Context, part *job.RestorePart, files []api.CheckpointFile) (err error) {
	base, err := r.opt.Shared(ctx, part.Shared)
	if err != nil {
		return err
	}
	if !fs.ValidPath(part.Path) {
		return corrupt("%q is not a path on shared file system %s", part.Path, part.Shared)
	}

	root, err := os.OpenRoot(filepath.Join(base, filepath.FromSlash(part.Path)))
	if errors.Is(err, fs.ErrNotExist) {
		return corrupt("%s is gone from shared file system %s", part.Path, part.Shared)
	}
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, root.Close()) }()

	t := &tree{root: root}

	for i := range files {
		f, err := t.lstat(files[i].Path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotAFile) || err == nil && f.link != "" {
			continue
		}
		if err != nil {
			return err
		}

		to := filepath.Join(r.kept, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}

		err = duplicate(ctx, t, &f, to, false, false, r.progress)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, errChanged) {
			continue // another rank has it too, or it is not the file that was kept
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// Sweep removes from a shared file system what the yard does not need any more.
func (c *Checkpoints) Sweep(ctx context.Context, name string) error {
	root, err := c.opt.Shared(ctx, name)
	if err != nil {
		return err
	}

	entries, err := os.ReadDir(filepath.Join(root, SharedDir))
	if err != nil {
		return err
	}

	var jobs []string
	for _, e := range entries {
		if e.IsDir() {
			jobs = append(jobs, e.Name())
		}
	}

	return c.sweep(ctx, name, root, jobs)
}

// sweep removes what is not needed any more of some jobs.
func (c *Checkpoints) sweep(ctx context.Context, name, root string, jobs []string) error {
	base, err := os.OpenRoot(root)
	if err != nil {
		return err
	}

	defer func() { _ = base.Close() }()

	var dirs []api.SharedDir
	for _, j := range jobs {
		found, err := sharedDirs(base, path.Join(SharedDir, j))
		if err != nil {
			return err
		}

		dirs = append(dirs, found...)
	}

	for len(dirs) > 0 {
		some := dirs[:min(len(dirs), sharedBatch)]
		dirs = dirs[len(some):]

		reply, err := c.opt.Yard().UnneededDirs(ctx, api.SharedDirs{Shared: name, Dirs: some})
		if err != nil {
			return err
		}

		for _, p := range reply.Remove {
			if err := base.RemoveAll(filepath.FromSlash(p)); err != nil {
				return err
			}

			c.opt.Log.Info("removed from a shared file system", "shared", name, "path", p)
			removeEmpty(base, path.Dir(p))
		}
	}

	return nil
}

// removeEmpty removes a directory and those above it as far as they are empty. One that is not stays, which is what
// the error says.
func removeEmpty(base *os.Root, dir string) {
	for dir != SharedDir && dir != "." {
		if base.Remove(filepath.FromSlash(dir)) != nil {
			return
		}

		dir = path.Dir(dir)
	}
}

// sharedDirs lists what the runs of a job have left on a shared file system. What does not have the names of the yard
// is not listed.
func sharedDirs(base *os.Root, jobDir string) ([]api.SharedDir, error) {
	name, _, ok := strings.Cut(path.Base(jobDir), "-")
	if !ok {
		return nil, nil
	}

	var list []api.SharedDir

	runs, err := readDir(base, jobDir)
	if err != nil {
		return nil, err
	}

	for _, run := range runs {
		number, uid, ok := strings.Cut(run, "-")
		epoch, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}

		d := api.SharedDir{Run: id.NewRun(id.Job(name), epoch), UID: id.UID(uid)}

		ranks, err := readDir(base, path.Join(jobDir, run))
		if err != nil {
			return nil, err
		}

		for _, rank := range ranks {
			if strings.HasPrefix(rank, rankPrefix) {
				d.Path = path.Join(jobDir, run, rank)
				list = append(list, d)
			}
		}

		kept, err := readDir(base, path.Join(jobDir, run, keptDir))
		if err != nil {
			return nil, err
		}

		for _, k := range kept {
			d.Path, d.Kept = path.Join(jobDir, run, keptDir, k), true
			list = append(list, d)
		}
	}

	return list, nil
}

// readDir lists the directories in a directory; none if it is gone.
func readDir(base *os.Root, dir string) ([]string, error) {
	f, err := base.Open(filepath.FromSlash(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	defer func() { _ = f.Close() }()

	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}

	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}

	return names, nil
}

// nonceFile is where the nonce of a shared file system is. Several yards may use one.
func nonceFile(f *api.SharedFolder) string {
	return filepath.Join(f.Path, SharedDir, ".nonce-"+f.Nonce[:min(len(f.Nonce), 8)])
}

// LookAt checks that a folder is the shared file system that the yard knows by its name, and that this agent can write
// to it. It writes the nonce if the yard says that this node does.
func LookAt(f *api.SharedFolder) error {
	dir := filepath.Join(f.Path, SharedDir)
	text, err := os.ReadFile(nonceFile(f))

	switch {
	case errors.Is(err, fs.ErrNotExist) && f.Create:
		if info, err := os.Stat(f.Path); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is not a directory", f.Path)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := atomicfile.Write(nonceFile(f), []byte(f.Nonce)); err != nil {
			return fmt.Errorf("write the nonce: %w", err)
		}
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s not found: %s is not mounted, or is another file system than the one of the other nodes",
			nonceFile(f), f.Path)
	case err != nil:
		return fmt.Errorf("read the nonce: %w", err)
	case string(text) != f.Nonce:
		return fmt.Errorf("%s has another nonce: it is of another yard or file system", nonceFile(f))
	}

	probe, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return fmt.Errorf("write to %s: %w", dir, err)
	}

	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// SharedTimeout is how long a shared file system may take to answer before it counts as gone.
const SharedTimeout = 10 * time.Second
