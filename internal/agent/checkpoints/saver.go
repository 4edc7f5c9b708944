package checkpoints

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Saver saves the checkpoints of one rank while it runs and when it has ended.
type Saver struct {
	Upload

	all   *Checkpoints
	rank  Rank
	state *state
	watch *watch        // of the directory; nil if it cannot be watched
	ended chan struct{} // closed when the program has ended

	entered time.Time // when the last checkpoint was entered in the catalogue; the zero time if none was

	// With the mutex of the upload.
	looking bool      // it has begun to look at the directory
	request int       // number of the last request to save
	wanted  time.Time // since when a checkpoint that was asked for is awaited; the zero time if none is
	ending  *ending
}

// Save starts to save the checkpoints of a rank. What an earlier agent process has saved is not saved again. The
// directory is watched from now on, though it is looked at later: nothing else tells that something old was moved
// there.
func (c *Checkpoints) Save(rank Rank) *Saver {
	s := newSaver(c, rank)
	if rank.Shared == "" && !s.finished {
		s.beginWatch()
	}

	s.begin(s.run)

	return s
}

func newSaver(c *Checkpoints, rank Rank) *Saver {
	known := loadState(c.statePath(rank.Run, rank.Rank), c.opt.Log)

	return &Saver{
		Upload: Upload{opt: &c.opt, finished: known.Finished}, all: c, rank: rank, state: known,
		ended: make(chan struct{}),
	}
}

// End says that the program has ended. One that ended by itself and without an error has left no file half written. One
// that ended before its directory was looked at, and left nothing there, is finished with that.
func (s *Saver) End(at time.Time, clean bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ending == nil {
		s.ending = &ending{at, clean}
		s.held = s.all.opt.Clock.Now()
		s.finished = s.finished || !s.looking && s.rank.Shared == "" && isEmpty(s.rank.Dir)
		close(s.ended)
	}
}

// isEmpty reports whether a directory has no entries, or is not there.
func isEmpty(dir string) bool {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}

	defer func() { _ = d.Close() }()

	_, err = d.Readdirnames(1)

	return errors.Is(err, io.EOF)
}

// awaitFirstLook waits for a moment before the directory is looked at for the first time, so that a short program
// costs next to nothing. It reports false if there is nothing to look for.
func (s *Saver) awaitFirstLook(ctx context.Context) bool {
	if done, _ := s.Finished(); !done && s.programEnd() == nil {
		s.wait(ctx, s.all.opt.Every/beginShare, nil)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.looking = true

	return !s.finished && ctx.Err() == nil
}

// beginShare says how soon after its start the directory of a rank is looked at for the first time: after this part of
// the time between two looks.
const beginShare = 8

// Request says that the program was asked to save: what it writes next is stored without delay. The same request may be
// made again.
func (s *Saver) Request(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if number > s.request {
		s.request, s.wanted = number, s.all.opt.Clock.Now()
	}
}

// Forget removes what is remembered of a rank.
func (c *Checkpoints) Forget(run id.Run, rank int) error {
	var errs []error
	for _, path := range []string{c.statePath(run, rank), c.keptPath(run, rank)} {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

func (c *Checkpoints) statePath(run id.Run, rank int) string {
	return filepath.Join(c.opt.Dir, string(run)+"."+strconv.Itoa(rank)+".json")
}

// run looks at the directory again and again until the program has ended and everything is stored.
func (s *Saver) run(ctx context.Context) {
	defer s.endWatch()

	if !s.awaitFirstLook(ctx) || !s.awaitShared(ctx) {
		return
	}

	root, err := s.open()
	if err != nil {
		s.finish(err)
		return
	}

	defer func() { _ = root.Close() }()

	var woken chan struct{}
	if s.watch != nil {
		woken = s.watch.wake
	}

	f := &finder{
		rest: s.all.opt.Rest, rank: s.rank.Rank, ranks: s.rank.Ranks, started: s.rank.Started,
	}

	for failures := 0; ctx.Err() == nil; {
		if s.watch != nil {
			f.renamed = s.watch.names()
		}

		end := s.programEnd()
		more, err := s.round(ctx, root, f, end)
		s.report(err)

		switch {
		case ctx.Err() != nil:
			return
		case refused(err):
			s.finish(err)
			return
		case err != nil && !errors.Is(err, errChanged):
			failures++
		case err == nil && !more && end != nil:
			s.finish(nil)
			return
		default:
			failures = 0
		}

		if end != nil && s.stuck() {
			s.finish(fmt.Errorf("no progress for %s: %w", job.Duration(s.all.opt.Patience), cmp.Or(err, errChanged)))
			return
		}

		if err == nil && more {
			continue
		}

		s.wait(ctx, max(s.all.opt.Every, job.Backoff(failures, 0, maxRetryWait)), woken)
	}
}

// awaitShared waits until the shared file system with the checkpoint directory is there. It reports false if that is
// given up.
func (s *Saver) awaitShared(ctx context.Context) bool {
	for failures := 0; s.rank.Shared != "" && ctx.Err() == nil; failures++ {
		_, err := s.all.opt.Shared(ctx, s.rank.Shared)
		if err == nil {
			break
		}

		s.report(err)

		if s.stuck() {
			s.finish(err)
			return false
		}

		s.wait(ctx, max(s.all.opt.Every, job.Backoff(failures, 0, maxRetryWait)), nil)
	}

	return ctx.Err() == nil
}

// open opens the checkpoint directory and begins to watch it, if that is not done.
func (s *Saver) open() (*os.Root, error) {
	if s.watch == nil {
		s.beginWatch()
	}

	root, err := os.OpenRoot(s.rank.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the checkpoint directory: %w", err)
	}

	return root, nil
}

// beginWatch begins to watch the checkpoint directory. Without that renames are not noticed, but everything else works.
func (s *Saver) beginWatch() {
	err := os.MkdirAll(s.rank.Dir, 0o700)
	if err == nil {
		s.watch, err = newWatch(s.rank.Dir)
	}

	if err != nil {
		s.all.opt.Log.Warn("cannot watch the checkpoint directory", "run", s.rank.Run, "error", err)
	}
}

func (s *Saver) endWatch() {
	if s.watch != nil {
		_ = s.watch.close() // it was only read
	}
}

// wait waits for the next look.
func (s *Saver) wait(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()

	ended := s.ended
	if s.programEnd() != nil {
		ended = nil
	}

	select {
	case <-ctx.Done():
	case <-ended:
	case <-woken:
		settle, cancel := context.WithTimeout(ctx, min(d, s.all.opt.Every)/4)
		defer cancel()

		select {
		case <-settle.Done(): // until then more may have followed
		case <-ended:
		}
	}
}

// programEnd returns how the program ended, nil if it has not.
func (s *Saver) programEnd() *ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// round looks at the directory once and saves the newest checkpoint that is not saved yet. It reports whether it saved
// one.
func (s *Saver) round(ctx context.Context, root *os.Root, f *finder, end *ending) (bool, error) {
	t, err := scan(root)
	if err != nil {
		return false, err
	}

	units := f.look(t, s.all.opt.Clock.Now(), end)
	if len(units) == 0 {
		return false, nil
	}

	u := &units[len(units)-1] // older ones are skipped for it
	if s.state.has(u.files) || end == nil && s.tooSoon(u) {
		return false, nil
	}

	return true, s.save(ctx, t, u)
}

// tooSoon reports whether a checkpoint follows the one before too closely to be stored. A program that replaces
// the same files all the time would fill the catalogue otherwise. A layout with steps and a marker say themselves
// what is worth keeping, and so does a request.
func (s *Saver) tooSoon(u *unit) bool {
	if u.found != checkpoint.ByRest && u.found != checkpoint.ByRename {
		return false
	}

	s.mu.Lock()
	asked := !s.wanted.IsZero()
	s.mu.Unlock()

	if asked {
		return false
	}

	interval := s.all.opt.Interval
	if s.rank.Every > 0 {
		interval = s.rank.Every / 2 // half, because no program keeps the time exactly
	}

	return !s.entered.IsZero() && s.all.opt.Clock.Now().Sub(s.entered) < interval
}

// noteEntered records that a checkpoint was entered in the catalogue.
func (s *Saver) noteEntered(u *unit) {
	s.entered = s.all.opt.Clock.Now()

	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.wanted.IsZero() && !newest(u.files).Before(s.wanted) {
		s.wanted = time.Time{}
	}
}

// save stores a checkpoint and enters it in the catalogue.
func (s *Saver) save(ctx context.Context, t *tree, u *unit) error {
	files := slices.Concat(u.files, u.beside)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })

	var size int64
	for i := range files {
		size += files[i].size
	}

	doing := "uploading checkpoint " + u.name
	if s.rank.Shared != "" {
		doing = fmt.Sprintf("keeping checkpoint %s on shared file system %s", u.name, s.rank.Shared)
	}

	progress := newTransfer(s.all.opt.Clock, size, "%s", doing)
	s.show(progress)
	defer s.show(nil)

	ctx, halt := s.bounded(ctx, progress)
	defer halt()

	if s.rank.Shared != "" {
		return s.keep(ctx, t, u, files, progress)
	}

	return s.upload(ctx, t, u, files, progress)
}

// upload uploads the files of a checkpoint and enters it in the catalogue.
func (s *Saver) upload(ctx context.Context, t *tree, u *unit, files []file, progress *transfer) error {
	p := &packer{
		store: s.all.store, gear: s.all.gear, run: s.rank.Run, tree: t, progress: progress, cached: s.state.chunks,
		single: u.single,
	}

	all, err := p.pack(ctx, files)
	if err != nil {
		return err
	}

	s.state.remember(all)

	if !u.single {
		if err := unchanged(t, files); err != nil {
			return err
		}
	}

	manifest, err := manifestOf(all)
	if err != nil {
		return err
	}

	return s.enter(ctx, t, u, manifest, "", progress)
}

// unchanged fails if files are not any more what they were when they were found.
func unchanged(t *tree, files []file) error {
	for i := range files {
		now, err := t.lstat(files[i].path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotAFile) || err == nil && !now.same(&files[i]) {
			return errChanged
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// enter stores the manifest of a checkpoint and enters it in the catalogue. Its files were uploaded, or are at a
// path on a shared file system.
func (s *Saver) enter(
	ctx context.Context, t *tree, u *unit, manifest piece, path string, progress *transfer,
) (err error) {
	if err := s.all.store.upload(ctx, s.rank.Run, []piece{manifest}, progress); err != nil {
		return err
	}
	if err := s.all.store.folder.sync(ctx, progress); err != nil {
		return err
	}

	in := api.NewCheckpoint{
		Run: s.rank.Run, UID: s.rank.UID, Rank: s.rank.Rank, Ranks: 1, Name: u.name, Metric: u.metric, Value: u.value,
		Size: job.Bytes(progress.total), World: u.world, Framework: u.framework, Found: u.found,
		Written: newest(u.files).UTC(), Manifest: manifest.chunk.Digest, Shared: s.rank.Shared, Path: path,
	}

	if u.step >= 0 {
		in.Step = &u.step
	}

	if u.sharded {
		in.Ranks = s.rank.Ranks
	}

	var reply api.NewCheckpointReply
	err = patiently(ctx, progress, func() error {
		reply, err = s.all.opt.Yard().AddCheckpoint(ctx, in)
		return err
	})
	if err != nil {
		return fmt.Errorf("enter checkpoint %s in the catalogue: %w", u.name, err)
	}

	s.all.opt.Log.Info("checkpoint stored", "run", s.rank.Run, "checkpoint", reply.ID, "name", u.name, "found", u.found,
		"size", in.Size, "uploaded", job.Bytes(progress.sent()))
	s.noteEntered(u)
	s.state.markStored(u.files, t)

	return s.state.save()
}

// report passes on what is wrong.
func (s *Saver) report(err error) {
	if errors.Is(err, errChanged) || errors.Is(err, context.Canceled) {
		err = nil // the next look finds it again, or another
	}

	s.all.opt.Problem(Operation(s.rank.Run), err)
}

// Operation names the upload of the checkpoints of a run in reports of problems.
func Operation(run id.Run) string { return "checkpoint upload of " + string(run) }

// finish records that nothing more will be saved of this rank.
func (s *Saver) finish(problem error) {
	if problem != nil {
		s.all.opt.Log.Warn("checkpoints of a run are not stored", "run", s.rank.Run, "error", problem)
	}

	s.state.Finished = s.programEnd() != nil
	s.settle(errors.Join(problem, s.state.save()))
}

// refused reports whether an error of the server means that checkpoints of this run are not wanted. A chunk that is
// missing when the checkpoint is entered was removed meanwhile, and is uploaded again.
func refused(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) || f.Code == "chunk_missing" {
		return false
	}

	switch f.Kind {
	case fault.Conflict, fault.NotFound, fault.Denied, fault.Invalid, fault.OverLimit:
		return true
	case fault.Unavailable, fault.Internal, fault.Unknown:
	}

	return false
}

// stored is one file of which the chunks are known.
type stored struct {
	Link   string                `json:"link,omitempty"`
	Size   int64                 `json:"size"`
	Time   int64                 `json:"time"` // of its last change, in nanoseconds
	Inode  uint64                `json:"inode"`
	Chunks []api.CheckpointChunk `json:"chunks,omitempty"`
	// Catalogued says that it is part of a checkpoint in the catalogue.
	Catalogued bool `json:"catalogued,omitempty"`
}

func (e *stored) is(f *file) bool {
	return e.Link == f.link && e.Size == f.size && e.Time == f.mtime.UnixNano() && e.Inode == f.inode
}

// state is what is known of the files of a rank, also by the next agent process. Only its saver uses it.
type state struct {
	path     string
	Finished bool               `json:"finished,omitempty"`
	Files    map[string]*stored `json:"files,omitempty"` // by path
}

// loadState reads the state that an earlier agent process left. One that cannot be read costs an upload of what is
// there already, not more.
func loadState(path string, log *slog.Logger) *state {
	s := &state{path: path, Files: map[string]*stored{}}

	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, s)
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot read the state of checkpoint uploads", "file", path, "error", err)
	}

	if s.Files == nil {
		s.Files = map[string]*stored{}
	}

	return s
}

func (s *state) save() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("store the state of checkpoint uploads: %w", err)
	}

	text, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.Write(s.path, text, atomicfile.SingleWriter(), atomicfile.Volatile())
	}

	if err != nil {
		return fmt.Errorf("store the state of checkpoint uploads: %w", err)
	}

	return nil
}

// has reports whether all of some files are in the catalogue as they are.
func (s *state) has(files []file) bool {
	return !slices.ContainsFunc(files, func(f file) bool {
		e := s.Files[f.path]
		return e == nil || !e.is(&f) || !e.Catalogued
	})
}

// chunks returns the chunks of a file that has not changed since it was uploaded.
func (s *state) chunks(f *file) ([]api.CheckpointChunk, bool) {
	e := s.Files[f.path]
	if e == nil || !e.is(f) {
		return nil, false
	}

	return slices.Clone(e.Chunks), true
}

// remember keeps the chunks of files that were uploaded.
func (s *state) remember(all []packed) {
	for i := range all {
		f := &all[i].file
		if e := s.Files[f.path]; e != nil && e.is(f) {
			continue
		}

		s.Files[f.path] = &stored{
			Link: f.link, Size: f.size, Time: f.mtime.UnixNano(), Inode: f.inode, Chunks: all[i].entry().Chunks,
		}
	}
}

// markStored notes that the files of a checkpoint are in the catalogue, and forgets those that are not there any more.
func (s *state) markStored(own []file, t *tree) {
	for p := range s.Files {
		if _, ok := t.find(p); !ok {
			delete(s.Files, p)
		}
	}

	for i := range own {
		if e := s.Files[own[i].path]; e != nil {
			e.Catalogued = true
		}
	}
}
