package checkpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeYard keeps chunks and the catalogue in memory, and fails when it is asked to.
type fakeYard struct {
	t *testing.T

	mu        sync.Mutex
	changed   chan struct{} // closed at the next change
	chunks    map[string][]byte
	entered   []api.NewCheckpoint
	outputs   []api.NewOutputs
	uploaded  int64 // bytes
	fetched   int64 // bytes
	asked     int   // chunks
	sign      func(digest string) (string, map[string]string)
	before    func(call string) error                 // each call is made
	onMissing func(missing []string)                  // after it was found out which are missing
	damage    func(digest string, data []byte) []byte // of what is fetched
	refuse    func(in *api.NewCheckpoint) error       // a new entry
	wait      func(ctx context.Context, call string)  // before each call
	unneeded  func(d api.SharedDir) bool              // on a shared file system
	full      func(in *api.NewOutputs) error          // whether there is room
	calls     map[string]int
	folder    *blob.Dir // where chunks are kept, nil if in memory
	elsewhere string    // where they are kept, on another machine
}

func newYard(t *testing.T) *fakeYard {
	t.Helper()
	return &fakeYard{t: t, changed: make(chan struct{}), chunks: map[string][]byte{}, calls: map[string]int{}}
}

func (y *fakeYard) UnneededDirs(ctx context.Context, in api.SharedDirs) (api.SharedDirsReply, error) {
	var reply api.SharedDirsReply
	if err := y.enter(ctx, "unneeded"); err != nil {
		return reply, err
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	for _, d := range in.Dirs {
		if y.unneeded != nil && y.unneeded(d) {
			reply.Remove = append(reply.Remove, d.Path)
		}
	}

	return reply, nil
}

func (y *fakeYard) AddOutputs(ctx context.Context, in api.NewOutputs) error {
	if err := y.enter(ctx, "outputs"); err != nil {
		return err
	}

	y.mu.Lock()
	full := y.full
	y.mu.Unlock()

	if full != nil {
		if err := full(&in); err != nil {
			return err
		}
	}

	if in.Manifest != "" {
		y.manifest(in.Manifest) // all of it must be there
	}

	y.change(func() { y.outputs = append(y.outputs, in) })

	return nil
}

// enter begins a call.
func (y *fakeYard) enter(ctx context.Context, call string) error {
	y.mu.Lock()
	before, wait := y.before, y.wait
	y.calls[call]++
	y.mu.Unlock()

	if wait != nil {
		wait(ctx, call)
	}

	if before != nil {
		return before(call)
	}

	return ctx.Err()
}

func (y *fakeYard) change(fn func()) {
	y.mu.Lock()
	defer y.mu.Unlock()

	fn()
	close(y.changed)
	y.changed = make(chan struct{})
}

func (y *fakeYard) Chunks(ctx context.Context, req api.ChunksRequest) (api.ChunksReply, error) {
	if err := y.enter(ctx, "chunks"); err != nil {
		return api.ChunksReply{}, err
	}

	y.mu.Lock()

	reply := api.ChunksReply{Folder: y.elsewhere}
	var missing []string

	if y.folder != nil {
		reply.Folder, reply.Local = y.folder.Folder(), req.Nonce != "" && y.folder.Sees(req.Nonce)
	}

	for _, c := range req.Chunks {
		y.asked++
		y.look(ctx, c.Digest)

		if _, ok := y.chunks[c.Digest]; ok && !req.Restore {
			continue
		}

		place := api.ChunkPlace{Digest: c.Digest}
		if reply.Local {
			place.File = chunkFile(c.Digest)
		}

		if y.sign != nil {
			place.URL, place.Header = y.sign(c.Digest)
		}

		missing = append(missing, c.Digest)
		reply.Chunks = append(reply.Chunks, place)
	}

	hook := y.onMissing
	y.mu.Unlock()

	if hook != nil && !req.Restore {
		hook(missing)
	}

	return reply, nil
}

// chunkFile is where a chunk is in the folder.
func chunkFile(digest string) string { return "chunks/" + digest }

// look takes a chunk from the folder that somebody has put there.
func (y *fakeYard) look(ctx context.Context, digest string) {
	if y.folder == nil || y.chunks[digest] != nil {
		return
	}

	r, err := y.folder.Get(ctx, chunkFile(digest))
	if err != nil {
		return
	}

	defer func() { _ = r.Close() }()

	if data, err := io.ReadAll(r); err == nil {
		y.chunks[digest] = data
	}
}

func (y *fakeYard) PutChunk(ctx context.Context, _ id.Run, digest string, content []byte) error {
	if err := y.enter(ctx, "put"); err != nil {
		return err
	}

	return y.keep(digest, content)
}

func (y *fakeYard) keep(digest string, content []byte) error {
	if digestOf(content) != digest || len(content) > api.MaxCheckpointManifest {
		return fault.New(fault.Invalid, "digest", "content has another digest")
	}

	y.change(func() {
		y.chunks[digest] = bytes.Clone(content)
		y.uploaded += int64(len(content))
	})

	return nil
}

func (y *fakeYard) FetchChunk(ctx context.Context, _ id.Run, digest string) (io.ReadCloser, error) {
	if err := y.enter(ctx, "fetch"); err != nil {
		return nil, err
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	data, ok := y.chunks[digest]
	if !ok {
		return nil, fault.New(fault.NotFound, "chunk_not_found", "chunk %s not found", digest)
	}

	y.fetched += int64(len(data))
	if y.damage != nil {
		data = y.damage(digest, data)
	}

	return io.NopCloser(bytes.NewReader(data)), nil
}

func (y *fakeYard) AddCheckpoint(ctx context.Context, in api.NewCheckpoint) (api.NewCheckpointReply, error) {
	if err := y.enter(ctx, "add"); err != nil {
		return api.NewCheckpointReply{}, err
	}

	y.mu.Lock()
	refuse := y.refuse
	y.mu.Unlock()

	if refuse != nil {
		if err := refuse(&in); err != nil {
			return api.NewCheckpointReply{}, err
		}
	}

	if in.Shared == "" {
		y.manifest(in.Manifest) // all of it must be there
	}

	y.change(func() { y.entered = append(y.entered, in) })

	return api.NewCheckpointReply{ID: "j1.c1"}, nil
}

// manifest returns what a manifest lists, and fails if anything of it is not stored.
func (y *fakeYard) manifest(digest string) map[string]string {
	y.t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()

	y.look(y.t.Context(), digest)

	var m api.CheckpointManifest
	if err := json.Unmarshal(y.chunks[digest], &m); err != nil {
		y.t.Errorf("manifest %s: %v", digest, err)
	}

	if err := m.Check(); err != nil {
		y.t.Errorf("manifest %s: %v", digest, err)
	}

	files := map[string]string{}
	for _, f := range m.Files {
		var text strings.Builder
		for _, c := range f.Chunks {
			y.look(y.t.Context(), c.Digest)

			data, ok := y.chunks[c.Digest]
			if !ok || int64(len(data)) != c.Size {
				y.t.Errorf("chunk %s of %s is not stored", c.Digest, f.Path)
			}

			text.Write(data)
		}

		files[f.Path] = text.String()
		if f.Link != "" {
			files[f.Path] = "-> " + f.Link
		}
	}

	return files
}

// await waits until a condition holds; it is called under the lock.
func (y *fakeYard) await(what string, ok func() bool) {
	y.t.Helper()
	limit, cancel := context.WithTimeout(y.t.Context(), 5*time.Minute)
	defer cancel()

	for {
		y.mu.Lock()
		done, changed := ok(), y.changed
		y.mu.Unlock()

		if done {
			return
		}

		select {
		case <-changed:
		case <-limit.Done():
			y.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// awaitEntries waits for n entries of the catalogue and returns them.
func (y *fakeYard) awaitEntries(n int) []api.NewCheckpoint {
	y.t.Helper()
	var all []api.NewCheckpoint
	y.await(fmt.Sprintf("%d checkpoints", n), func() bool {
		all = slices.Clone(y.entered)
		return len(all) >= n
	})

	return all
}

// newCheckpoints returns the checkpoints of a node of the yard.
func newCheckpoints(t *testing.T, y *fakeYard) *Checkpoints {
	t.Helper()
	c := New(Options{
		Dir: t.TempDir(), Yard: func() Yard { return y }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Clock: clock.Wall{}, Changed: func() { y.change(func() {}) }, Problem: func(string, error) {},
		Free:  func(string) (job.Bytes, job.Bytes, error) { return 1 << 40, 1 << 40, nil },
		Every: 10 * time.Millisecond, Rest: 50 * time.Millisecond, Interval: 1,
	})
	t.Cleanup(c.Close)

	return c
}

func newRank(t *testing.T) Rank {
	t.Helper()
	return Rank{Run: "j1.1", UID: "u1", Ranks: 1, Dir: filepath.Join(t.TempDir(), "j1")}
}

// save starts a saver that stops at the end of the test.
func save(t *testing.T, c *Checkpoints, rank Rank) *Saver {
	t.Helper()
	s := c.Save(rank)
	t.Cleanup(s.Stop)

	return s
}

// contents returns what is in a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}

	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}

		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			files[below] = "-> " + target

			return err
		}

		text, err := os.ReadFile(path)
		files[below] = string(text)

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

// sameFiles fails the test if two directories differ, without printing what is in them.
func sameFiles(t *testing.T, what string, got, want map[string]string) {
	t.Helper()

	if maps.Equal(got, want) {
		return
	}

	t.Errorf("%s has %v, want %v", what, sizes(got), sizes(want))
}

func sizes(files map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, fmt.Sprintf("%s (%d bytes, %.8s)", name, len(files[name]), digestOf([]byte(files[name]))))
	}

	return list
}
