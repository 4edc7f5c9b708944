package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// codeCorrupt marks the fault of a checkpoint whose content is wrong or gone.
const codeCorrupt = "checkpoint_corrupt"

func corrupt(format string, args ...any) error {
	return fault.New(fault.Conflict, codeCorrupt, format, args...)
}

// Corrupt reports whether a restore failed because the content of the checkpoint is wrong or gone, not because it could
// not be reached or written.
func Corrupt(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == codeCorrupt
}

// Restoring is a restore under way.
type Restoring struct {
	mu       sync.Mutex
	progress *transfer
}

// Progress describes the restore, "" before it is known how much there is to do.
func (r *Restoring) Progress() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.progress == nil {
		return ""
	}

	return r.progress.words()
}

func (r *Restoring) show(t *transfer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = t
}

// restore is the state of one restore.
type restore struct {
	*Checkpoints
	run      id.Run
	from     *job.Restore
	dir      string // the checkpoint directory
	staging  string // becomes it
	aside    string // what it was
	kept     string // copies of its files on shared file systems
	progress *transfer
	queue    []api.CheckpointChunk     // those that are not here and were not asked for yet, in order
	places   map[string]api.ChunkPlace // of those that were asked for last
}

// target is a file that is being restored.
type target struct {
	entry *api.CheckpointFile
	local string // file at the same path, "" if there is none
	same  []bool // which of its chunks are
}

// whole reports whether the local file is the same.
func (t *target) whole() bool { return t.local != "" && !slices.Contains(t.same, false) }

// Restore makes the checkpoint directory of a rank hold exactly one checkpoint. It is built beside the directory, from
// files that are already there and from the store, and takes its place when every digest was verified and everything
// is on disk; what was in the directory and is not part of the checkpoint is moved aside and replaced by the next
// restore. A server or store that does not answer is waited for until ctx ends. A restore that was interrupted can be
// repeated.
func (c *Checkpoints) Restore(ctx context.Context, rank Rank, from *job.Restore, show *Restoring) error {
	parent, name := filepath.Split(rank.Dir)
	r := &restore{
		Checkpoints: c, run: rank.Run, from: from, dir: rank.Dir,
		staging: filepath.Join(parent, ".restore-"+name), aside: filepath.Join(parent, ".aside-"+name),
		kept:     filepath.Join(parent, ".kept-"+name),
		progress: newTransfer(c.opt.Clock, int64(from.Size), "restoring checkpoint %s", from.Checkpoint),
	}

	show.show(r.progress)

	files, err := r.manifest(ctx)
	if err == nil {
		err = r.restore(ctx, files)
	}

	if err := errors.Join(err, os.RemoveAll(r.kept)); err != nil {
		return fmt.Errorf("restore checkpoint %s: %w", from.Checkpoint, err)
	}

	return c.baseline(rank, files)
}

// manifest fetches the list of files: the union of what the ranks saved. Those on shared file systems are brought.
func (r *restore) manifest(ctx context.Context) ([]api.CheckpointFile, error) {
	all := map[string]api.CheckpointFile{}

	if err := os.RemoveAll(r.kept); err != nil { // left by a restore that was interrupted
		return nil, err
	}

	for i := range r.from.Parts {
		part := &r.from.Parts[i]
		var m api.CheckpointManifest

		text, err := r.fetchManifest(ctx, part.Manifest)
		if err != nil {
			return nil, err
		}

		if json.Unmarshal(text, &m) != nil || m.Check() != nil || !linksInside(&m) {
			return nil, corrupt("the manifest %s is invalid", part.Manifest)
		}

		for _, f := range m.Files {
			all[f.Path] = f
		}

		if part.Shared != "" {
			if err := r.bringKept(ctx, part, m.Files); err != nil {
				return nil, err
			}
		}
	}

	files := make([]api.CheckpointFile, 0, len(all))
	for _, p := range slices.Sorted(maps.Keys(all)) {
		files = append(files, all[p])
	}

	return files, nil
}

// linksInside reports whether every link of a manifest leads to a path inside the checkpoint directory.
func linksInside(m *api.CheckpointManifest) bool {
	return !slices.ContainsFunc(m.Files, func(f api.CheckpointFile) bool {
		return f.Link != "" && (filepath.IsAbs(f.Link) || !filepath.IsLocal(filepath.Join(filepath.Dir(f.Path), f.Link)))
	})
}

// fetchManifest downloads a manifest, whose size is not known before.
func (r *restore) fetchManifest(ctx context.Context, digest string) ([]byte, error) {
	var text []byte
	wrong := 0

	err := patiently(ctx, r.progress, func() error {
		c := []api.CheckpointChunk{{Digest: digest}}
		places, err := r.store.ask(ctx, api.ChunksRequest{Run: r.run, Chunks: c, Restore: true}, r.progress)
		if err != nil {
			return err
		}

		body, err := r.store.open(ctx, r.run, digest, places[digest])
		if err != nil {
			return err
		}

		text, err = io.ReadAll(io.LimitReader(body, api.MaxCheckpointManifest))
		if err := errors.Join(err, body.Close()); err != nil {
			return unreachable(err)
		}

		if digestOf(text) == digest {
			return nil
		}

		wrong++
		if wrong == corruptTries {
			return corrupt("the manifest %s has another digest", digest)
		}

		return fault.New(fault.Unavailable, "chunk_damaged", "the manifest %s arrived with another digest", digest)
	})

	return text, gone(err)
}

// gone makes a chunk that the store does not have corruption of its checkpoint.
func gone(err error) error {
	if fault.KindOf(err) == fault.NotFound {
		return corrupt("part of its content is gone: %v", err)
	}

	return err
}

// restore builds the directory and puts it into its place.
func (r *restore) restore(ctx context.Context, files []api.CheckpointFile) error {
	targets, err := r.compare(ctx, files)
	if err != nil {
		return err
	}
	if err := r.checkSpace(targets); err != nil {
		return err
	}

	if err := os.RemoveAll(r.staging); err != nil {
		return err
	}
	if err := os.MkdirAll(r.staging, 0o700); err != nil {
		return err
	}
	if err := r.fill(ctx, targets); err != nil {
		return errors.Join(err, os.RemoveAll(r.staging))
	}

	return r.swap(targets)
}

// compare finds out which of the content is already on this node: in the checkpoint directory or, after a restore that
// was interrupted, beside it.
func (r *restore) compare(ctx context.Context, files []api.CheckpointFile) ([]target, error) {
	targets := make([]target, len(files))
	g := newGroup(ctx)

	for i := range files {
		t := &targets[i]
		t.entry, t.same = &files[i], make([]bool, len(files[i].Chunks))

		for _, dir := range []string{r.dir, r.aside, r.kept} {
			if local := filepath.Join(dir, filepath.FromSlash(files[i].Path)); t.local == "" && ordinary(dir, local) {
				t.local = local
			}
		}

		if t.local != "" {
			g.run(func(ctx context.Context) error { return r.compareFile(ctx, t) })
		}
	}

	err := g.wait()

	for i := range targets {
		for n, c := range targets[i].entry.Chunks {
			if !targets[i].same[n] {
				r.queue = append(r.queue, c)
			}
		}
	}

	return targets, err
}

// ordinary reports whether there is a regular file at a path below a directory, with no link on the way to it.
func ordinary(dir, name string) bool {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}

	direct, err := filepath.EvalSymlinks(filepath.Dir(name))
	root, rootErr := filepath.EvalSymlinks(dir)
	below, relErr := filepath.Rel(root, direct)

	return err == nil && rootErr == nil && relErr == nil && filepath.IsLocal(below)
}

// compareFile compares the chunks of a local file with those of the checkpoint.
func (r *restore) compareFile(ctx context.Context, t *target) error {
	f, err := os.OpenFile(t.local, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.local = ""
		return nil // it is downloaded then
	}

	defer func() { _ = f.Close() }()

	buf, err := r.store.buffer(ctx)
	if err != nil {
		return err
	}

	defer r.store.release(buf)

	info, err := f.Stat()
	if err != nil || info.Size() != t.entry.Size {
		t.local = "" // most likely another one altogether
		return err
	}

	at := int64(0)
	for i, c := range t.entry.Chunks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		_, err := f.ReadAt(buf[:c.Size], at)
		t.same[i] = err == nil && digestOf(buf[:c.Size]) == c.Digest
		at += c.Size
	}

	return nil
}

// checkSpace fails if the disk has not enough room for what is missing.
func (r *restore) checkSpace(targets []target) error {
	var need int64

	for i := range targets {
		if targets[i].whole() {
			if !strings.HasPrefix(targets[i].local, r.kept+string(filepath.Separator)) { // those were counted before
				r.progress.skip(targets[i].entry.Size)
			}
		} else {
			need += targets[i].entry.Size
		}
	}

	free, _, err := r.opt.Free(filepath.Dir(r.dir))
	if err != nil {
		return fmt.Errorf("measure free space: %w", err)
	}
	if job.Bytes(need) <= free {
		return nil
	}

	return fault.New(fault.OverLimit, "disk_full", "%s needed on the disk that holds %s, %s free",
		job.Bytes(need).Short(), filepath.Dir(r.dir), free.Short())
}

// fill makes the files in the staging directory.
func (r *restore) fill(ctx context.Context, targets []target) error {
	jobs := make(chan func(context.Context, []byte) error)
	g := newGroup(ctx)

	for range parallelTransfers {
		g.run(func(ctx context.Context) error {
			buf := make([]byte, maxChunk)
			for fn := range jobs {
				if err := fn(ctx, buf); err != nil {
					return err
				}
			}

			return nil
		})
	}

	err := r.feed(g.ctx, targets, jobs)
	close(jobs)

	if waitErr := g.wait(); waitErr != nil {
		return waitErr
	}

	return err
}

// feed makes the files one after another and gives their chunks to those who fetch them.
func (r *restore) feed(ctx context.Context, targets []target, jobs chan<- func(context.Context, []byte) error) error {
	for i := range targets {
		if err := r.make(ctx, &targets[i], jobs); err != nil {
			return err
		}
	}

	return nil
}

// make makes one file.
func (r *restore) make(ctx context.Context, t *target, jobs chan<- func(context.Context, []byte) error) error {
	name := filepath.Join(r.staging, filepath.FromSlash(t.entry.Path))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}

	if t.entry.Link != "" {
		return os.Symlink(t.entry.Link, name)
	}

	if t.whole() {
		return os.Link(t.local, name)
	}

	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fs.FileMode(t.entry.Mode).Perm()|0o600)
	if err != nil {
		return err
	}

	w := &writing{file: f, mode: fs.FileMode(t.entry.Mode).Perm()}
	w.left.Store(1)
	err = r.fetchFile(ctx, t, w, jobs)

	return errors.Join(err, w.done())
}

// fetchFile gives the chunks of one file to those who fetch them.
func (r *restore) fetchFile(
	ctx context.Context, t *target, w *writing, jobs chan<- func(context.Context, []byte) error,
) error {
	at := int64(0)

	for i, c := range t.entry.Chunks {
		var place api.ChunkPlace

		if !t.same[i] {
			var err error
			place, err = r.place(ctx, c)
			if err != nil {
				return err
			}
		}

		from, local := at, t.same[i]
		at += c.Size

		w.left.Add(1)

		one := func(ctx context.Context, buf []byte) error {
			return errors.Join(r.bring(ctx, t, w, c, from, local, place, buf), w.done())
		}

		select {
		case jobs <- one:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), w.done())
		}
	}

	return nil
}

// place returns where a chunk is. It asks for many at a time, also of the files that follow.
func (r *restore) place(ctx context.Context, c api.CheckpointChunk) (api.ChunkPlace, error) {
	for {
		p, ok := r.places[c.Digest]
		if ok || len(r.queue) == 0 {
			return p, nil
		}

		some := r.queue[:min(askBatch, len(r.queue))]
		r.queue = r.queue[len(some):]

		var err error
		r.places, err = r.store.ask(ctx, api.ChunksRequest{Run: r.run, Chunks: some, Restore: true}, r.progress)
		if err != nil {
			return p, gone(err)
		}
	}
}

// bring writes one chunk of a file, from the local file that has it or from the store.
func (r *restore) bring(ctx context.Context, t *target, w *writing, c api.CheckpointChunk, at int64, local bool,
	place api.ChunkPlace, buf []byte) error {
	data := buf[:c.Size]

	if local {
		if err := readLocal(t.local, data, at, c.Digest); err != nil {
			return err
		}

		r.progress.skip(c.Size)
	} else {
		var err error
		data, err = r.store.fetch(ctx, r.run, c, place, buf, r.progress)
		if err != nil {
			return gone(err)
		}

		r.progress.done(c.Size)
	}

	if _, err := w.file.WriteAt(data, at); err != nil {
		return err
	}

	// Begins to write it to disk, so that the sync at the end is short. It is only a hint.
	_ = unix.SyncFileRange(int(w.file.Fd()), at, c.Size, unix.SYNC_FILE_RANGE_WRITE)

	return nil
}

// readLocal reads a chunk from a local file, in which it was a moment ago.
func readLocal(name string, data []byte, at int64, digest string) (err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	if _, err := f.ReadAt(data, at); err != nil {
		return err
	}
	if digestOf(data) != digest {
		return fmt.Errorf("%s: %w", name, errChanged)
	}

	return nil
}

// writing is a file whose chunks are written at the same time. The last one syncs and closes it.
type writing struct {
	file *os.File
	mode fs.FileMode
	left atomic.Int32 // those who write, and the one who finds them
}

// done is called by each when it has finished.
func (w *writing) done() error {
	if w.left.Add(-1) > 0 {
		return nil
	}

	return errors.Join(w.file.Chmod(w.mode), w.file.Sync(), w.file.Close())
}

// swap puts the staging directory into its place, durably.
func (r *restore) swap(targets []target) error {
	dirs := map[string]bool{r.staging: true}
	for i := range targets {
		for d := filepath.Join(r.staging, filepath.Dir(filepath.FromSlash(targets[i].entry.Path))); !dirs[d]; {
			dirs[d] = true
			d = filepath.Dir(d)
		}
	}

	for d := range dirs {
		if err := atomicfile.SyncDir(d); err != nil {
			return err
		}
	}

	if _, err := os.Lstat(r.dir); err == nil { // otherwise the last restore was interrupted here
		if err := os.RemoveAll(r.aside); err != nil {
			return err
		}
		if err := os.Rename(r.dir, r.aside); err != nil {
			return err
		}
	}

	if err := os.Rename(r.staging, r.dir); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(filepath.Dir(r.dir)); err != nil {
		return err
	}

	return r.tidy()
}

// tidy removes what was moved aside unless it has files that are not part of the checkpoint.
func (r *restore) tidy() error {
	other := errors.New("another file")

	err := filepath.WalkDir(r.aside, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		below, err := filepath.Rel(r.aside, name)
		if err != nil {
			return err
		}

		was, err := os.Lstat(name)
		if err != nil {
			return err
		}
		if is, err := os.Lstat(filepath.Join(r.dir, below)); err != nil || !os.SameFile(was, is) {
			return other
		}

		return nil
	})

	switch {
	case errors.Is(err, other):
		r.opt.Log.Info("files that are not part of the restored checkpoint were moved aside", "run", r.run,
			"checkpoint", r.from.Checkpoint, "dir", r.aside)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}

	return os.RemoveAll(r.aside)
}

// baseline records that the files of a rank are in the catalogue, so that they are not saved again.
func (c *Checkpoints) baseline(rank Rank, files []api.CheckpointFile) error {
	s := &state{path: c.statePath(rank.Run, rank.Rank), Files: map[string]*stored{}}

	for i := range files {
		info, err := os.Lstat(filepath.Join(rank.Dir, filepath.FromSlash(files[i].Path)))
		if err != nil {
			return fmt.Errorf("look at a restored file: %w", err)
		}

		f := describe(files[i].Path, info)
		if files[i].Link != "" {
			f.size = 0
		}

		s.Files[f.path] = &stored{
			Link: files[i].Link, Size: f.size, Time: f.mtime.UnixNano(), Inode: f.inode, Chunks: files[i].Chunks,
			Catalogued: true,
		}
	}

	return s.save()
}
