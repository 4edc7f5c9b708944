package collector

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/retention"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// world is a yard of which everything is in memory. Before each thing that the collector asks of a store others act.
type world struct {
	t           *rapid.T
	now         time.Time
	blobs       map[string]stored
	possessions map[possession]bool // who has uploaded which file
	jobs        []job.Job           // by number
	checkpoints []checkpoint.Checkpoint
	documents   []store.Document
	clients     []*client
	yard        *yardmaster.Yard
	guard       *Guard
	collector   *Collector
	collecting  bool
	acting      bool
	events      []string
}

type possession struct{ owner, digest string }

type stored struct {
	content []byte
	at      time.Time
}

// unused is the age limit of blobs here.
const unused = time.Hour

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), blobs: map[string]stored{},
		possessions: map[possession]bool{}, yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})),
	}
	w.guard = NewGuard(memory{w}, w.now)
	w.collector = New(Deps{
		Guard: w.guard, Store: records{w: w}, Loop: w, Yard: "yard-1", Clock: w, Log: slog.New(slog.DiscardHandler),
		Limits: retention.Limits{Unused: unused, Workdirs: 2 * time.Hour, Checkpoints: 2 * time.Hour},
	})

	return w
}

func (w *world) Now() time.Time { return w.now }
func (w *world) Held() error    { return nil }

func (w *world) Query(_ context.Context, fn func(*yardmaster.Yard)) error {
	w.meanwhile()
	fn(w.yard)

	return nil
}

func (w *world) Do(_ context.Context, m yardmaster.Message) (any, error) {
	w.meanwhile()

	switch m := m.(type) {
	case yardmaster.RemoveCheckpoint:
		for i := range w.checkpoints {
			c := &w.checkpoints[i]
			if c.ID != m.Checkpoint {
				continue
			}
			if c.Pinned {
				return nil, fault.New(fault.Conflict, "checkpoint_pinned", "it is pinned")
			}

			c.State = checkpoint.Removed
		}
	case yardmaster.RecordCleanup:
		w.events = append(w.events, m.Summary)
	default:
		w.t.Fatalf("unexpected message %T", m)
	}

	return nil, nil
}

// meanwhile lets others act while the collector works.
func (w *world) meanwhile() {
	if !w.collecting || w.acting {
		return
	}

	w.acting = true
	defer func() { w.acting = false }()

	for range rapid.IntRange(0, 3).Draw(w.t, "acts meanwhile") {
		w.act()
	}
}

// memory is the blob store.
type memory struct{ w *world }

func (m memory) Put(_ context.Context, name string, r io.Reader) error {
	m.w.meanwhile()

	content, err := io.ReadAll(r)
	m.w.blobs[name] = stored{content, m.w.now}

	return err
}

func (m memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.w.meanwhile()

	b, ok := m.w.blobs[name]
	if !ok {
		return nil, blob.NotFound(name)
	}

	return io.NopCloser(bytes.NewReader(b.content)), nil
}

func (m memory) GetRange(ctx context.Context, name string, _, _ int64) (io.ReadCloser, error) {
	return m.Get(ctx, name)
}

func (m memory) Stat(_ context.Context, name string) (blob.Info, error) {
	b, ok := m.w.blobs[name]
	if !ok {
		return blob.Info{}, blob.NotFound(name)
	}

	return blob.Info{Name: name, Size: int64(len(b.content)), Stored: b.at}, nil
}

func (m memory) Has(_ context.Context, name string) (bool, error) {
	_, ok := m.w.blobs[name]
	return ok, nil
}

func (m memory) Delete(_ context.Context, name string) error {
	delete(m.w.blobs, name)
	return nil
}

func (m memory) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(m.w.blobs)) {
			info, err := m.Stat(ctx, name)
			if !strings.HasPrefix(name, prefix) || err != nil {
				continue
			}

			m.w.meanwhile() // what is listed may be out of date when it is looked at

			if !yield(info, nil) {
				return
			}
		}
	}
}

// records is the durable store.
type records struct {
	store.Store
	w *world
}

func (s records) Jobs(_ context.Context, f store.JobFilter) ([]job.Job, error) {
	s.w.meanwhile()

	var list []job.Job
	for _, j := range slices.Backward(s.w.jobs) {
		if n, _ := j.ID.Number(); (f.Before == 0 || n < f.Before) && len(list) < f.Limit {
			list = append(list, j)
		}
	}

	return list, nil
}

func (s records) Job(_ context.Context, j id.Job) (job.Job, error) {
	n, _ := j.Number()
	return s.w.jobs[n-1], nil
}

func (s records) Checkpoints(_ context.Context, _ store.CheckpointFilter) ([]checkpoint.Checkpoint, error) {
	s.w.meanwhile()

	return slices.DeleteFunc(slices.Clone(s.w.checkpoints), func(c checkpoint.Checkpoint) bool {
		return c.State == checkpoint.Removed
	}), nil
}

func (s records) Documents(_ context.Context, f store.DocumentFilter) ([]store.Document, error) {
	s.w.meanwhile()

	var list []store.Document
	for _, d := range s.w.documents {
		if d.Kind == f.Kind && d.ID > f.After {
			list = append(list, d)
		}
	}

	slices.SortFunc(list, func(a, b store.Document) int { return strings.Compare(a.ID, b.ID) })

	return list[:min(len(list), f.Limit)], nil
}

func (s records) Keep(_ context.Context, docs ...store.Document) error {
	for _, d := range docs {
		s.w.documents = slices.DeleteFunc(s.w.documents, func(old store.Document) bool {
			return old.Kind == d.Kind && old.ID == d.ID
		})
		s.w.documents = append(s.w.documents, d)
	}

	return nil
}

func (s records) Disown(_ context.Context, digests ...string) error {
	maps.DeleteFunc(s.w.possessions, func(p possession, _ bool) bool { return slices.Contains(digests, p.digest) })

	return nil
}

func (s records) PossessedDigests(_ context.Context, after string, limit int) ([]string, error) {
	s.w.meanwhile()

	var list []string
	for p := range s.w.possessions {
		if p.digest > after {
			list = append(list, p.digest)
		}
	}

	slices.Sort(list)
	list = slices.Compact(list)

	return list[:min(len(list), limit)], nil
}

// client uploads the files of a working directory and submits a job, or the chunks of a checkpoint and adds that.
type client struct {
	owner     string
	kind      string
	names     map[string][]byte // blobs, with their content
	manifest  string            // digest
	job       int               // of a checkpoint: index of its job
	missing   []string
	asked     bool
	validated bool
	done      bool
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func (w *world) newClient() *client {
	c := &client{names: map[string][]byte{}, kind: "workdir"}
	c.owner = rapid.SampledFrom([]string{"ada", "bob"}).Draw(w.t, "owner")

	name := httpapi.FileBlob
	if len(w.jobs) > 0 && rapid.Bool().Draw(w.t, "checkpoint") {
		c.kind, c.job, name = "checkpoint", rapid.IntRange(0, len(w.jobs)-1).Draw(w.t, "job"), httpapi.ChunkBlob
	}

	var workdir api.Manifest
	var saved api.CheckpointManifest
	for i, n := range rapid.SliceOfN(rapid.IntRange(0, 5), 1, 3).Draw(w.t, "content") {
		content := []byte("content " + strconv.Itoa(n))
		digest := digestOf(content)
		c.names[name(digest)] = content
		workdir.Files = append(workdir.Files, api.ManifestFile{Path: strconv.Itoa(i), Digest: digest})
		saved.Files = append(saved.Files, api.CheckpointFile{
			Path: strconv.Itoa(i), Chunks: []api.CheckpointChunk{{Digest: digest}},
		})
	}

	var text []byte
	var err error
	if c.kind == "workdir" {
		text, err = json.Marshal(workdir)
	} else {
		text, err = json.Marshal(saved)
	}

	if err != nil {
		w.t.Fatal(err)
	}

	c.manifest = digestOf(text)
	c.names[name(c.manifest)] = text

	return c
}

// step does the next thing of a client: it asks what is missing, uploads that, has the server validate, commits.
func (w *world) step(c *client) {
	ctx := context.Background()
	blobs := w.guard.Store()
	names := slices.Sorted(maps.Keys(c.names))

	switch {
	case !c.asked:
		missing, err := w.missingOf(ctx, c, blobs, names)
		if err != nil {
			w.t.Fatal(err)
		}

		c.missing, c.asked = missing, true
	case len(c.missing) > 0:
		if err := blobs.Put(ctx, c.missing[0], bytes.NewReader(c.names[c.missing[0]])); err != nil {
			w.t.Fatal(err)
		}

		if c.kind == "workdir" {
			w.possessions[possession{c.owner, path.Base(c.missing[0])}] = true
		}

		c.missing = c.missing[1:]
	case !c.validated:
		missing, err := w.missingOf(ctx, c, blobs, names)
		if err != nil {
			w.t.Fatal(err)
		}

		c.validated, c.asked = len(missing) == 0, len(missing) == 0 // otherwise it begins anew
	default:
		w.commit(c)
	}
}

// missingOf returns what a client has to upload. It asks one after the other, so that a test can be repeated.
func (w *world) missingOf(ctx context.Context, c *client, blobs blob.Store, names []string) ([]string, error) {
	possessed := maps.Clone(w.possessions)

	var missing []string
	for _, n := range names {
		if c.kind == "workdir" && !possessed[possession{c.owner, path.Base(n)}] {
			missing = append(missing, n)
			continue
		}

		has, err := blobs.Has(ctx, n)
		if err != nil {
			return nil, err
		}

		if !has {
			missing = append(missing, n)
		}
	}

	return missing, nil
}

func (w *world) commit(c *client) {
	c.done = true

	if c.kind == "workdir" {
		for name := range c.names {
			if !w.possessions[possession{c.owner, path.Base(name)}] {
				w.t.Fatalf("%s has uploaded %s, which is forgotten", c.owner, name)
			}
		}

		w.jobs = append(w.jobs, job.Job{ID: id.NewJob(uint64(len(w.jobs) + 1)), State: job.Running, Workdir: c.manifest})

		return
	}

	j := &w.jobs[c.job]
	if j.State.Final() {
		return // refused
	}

	w.checkpoints = append(w.checkpoints, checkpoint.Checkpoint{
		ID: id.NewCheckpoint(j.ID, len(w.checkpoints)+1), Job: j.ID, Number: len(w.checkpoints) + 1,
		State: checkpoint.Stored, Parts: []checkpoint.Part{{Manifest: c.manifest}},
	})
}

// act lets something happen.
func (w *world) act() {
	w.clients = slices.DeleteFunc(w.clients, func(c *client) bool { return c.done })

	switch what := rapid.IntRange(0, 9).Draw(w.t, "act"); {
	case what == 0 && len(w.jobs) > 0:
		j := &w.jobs[rapid.IntRange(0, len(w.jobs)-1).Draw(w.t, "job")]
		if !j.State.Final() {
			j.State, j.Ended = job.Succeeded, w.now
		}
	case what == 1 && len(w.checkpoints) > 0:
		c := &w.checkpoints[rapid.IntRange(0, len(w.checkpoints)-1).Draw(w.t, "checkpoint")]
		if rapid.Bool().Draw(w.t, "pin") && c.State == checkpoint.Stored {
			c.Pinned = true
		} else if !c.Pinned {
			c.State = checkpoint.Removed
		}
	case what == 2:
		w.pass(time.Duration(rapid.IntRange(1, 80).Draw(w.t, "minutes")) * time.Minute)
	case what <= 4 || len(w.clients) == 0:
		w.clients = append(w.clients, w.newClient())
	default:
		w.step(w.clients[rapid.IntRange(0, len(w.clients)-1).Draw(w.t, "client")])
	}
}

// pass lets time pass. What the server is just about to commit is committed before: that takes no hour.
func (w *world) pass(d time.Duration) {
	for _, c := range w.clients {
		if c.validated && !c.done {
			w.commit(c)
		}
	}

	w.now = w.now.Add(d)
}

// needed lists all blobs that something refers to, and by what.
func (w *world) needed() map[string]string {
	list := map[string]string{}
	add := func(of, name string, parse func(io.Reader) []string) {
		list[name] = of

		for _, n := range parse(bytes.NewReader(w.blobs[name].content)) {
			list[n] = of
		}
	}

	for i := range w.jobs {
		if j := &w.jobs[i]; w.collector.Limits.KeepsWorkdir(w.now, j) {
			add(string(j.ID), httpapi.FileBlob(j.Workdir), filesOf)
		}
	}

	for i := range w.checkpoints {
		if c := &w.checkpoints[i]; c.State == checkpoint.Stored {
			add(string(c.ID), httpapi.ChunkBlob(c.Parts[0].Manifest), chunksOf)
		}
	}

	return list
}

func (w *world) check() {
	for name, of := range w.needed() {
		if _, ok := w.blobs[name]; !ok {
			w.t.Fatalf("%s needs %s, which is gone", of, name)
		}
	}
}

func (w *world) collect() {
	w.collecting = true
	defer func() { w.collecting = false }()

	if _, err := w.collector.Collect(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func TestWhatIsNeededIsNeverRemovedAndTheRestIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)

		for range rapid.IntRange(1, 60).Draw(t, "acts") {
			if rapid.IntRange(0, 5).Draw(t, "collect") == 0 {
				w.collect()
			} else {
				w.act()
			}

			w.check()
		}

		// When nobody acts any more, all that is left is needed.
		w.clients = nil
		for range 4 {
			w.pass(unused + time.Minute)

			if _, err := w.collector.Collect(context.Background()); err != nil {
				t.Fatal(err)
			}
		}

		w.check()

		needed := w.needed()
		for name := range w.blobs {
			if needed[name] == "" && name != ownerBlob {
				t.Fatalf("nobody needs %s, and it is still there", name)
			}
		}

		for p := range w.possessions {
			if !w.has(httpapi.FileBlob(p.digest)) {
				t.Fatalf("%s possesses %s, which is gone", p.owner, p.digest)
			}
		}
	})
}
