package collector

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/checkpoint"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

const someFile = "files/ab/abc"

// oldFile is a world with a file that nobody refers to and that is old enough to be removed.
func oldFile(t *testing.T) *world {
	t.Helper()
	w := newWorld(nil)
	if err := w.guard.blobs.Put(t.Context(), someFile, strings.NewReader("text")); err != nil {
		t.Fatal(err)
	}

	w.now = w.now.Add(unused + time.Minute)

	return w
}

func (w *world) has(name string) bool {
	_, ok := w.blobs[name]
	return ok
}

func TestAnUnusedFileIsRemovedAndReported(t *testing.T) {
	t.Parallel()
	w := oldFile(t)

	report, err := w.collector.Collect(t.Context())
	if err != nil || w.has(someFile) || report != (Report{Files: 1, Bytes: 4}) {
		t.Fatalf("report %+v, %v; still there: %v", report, err, w.has(someFile))
	}

	if err := w.collector.record(t.Context(), &report); err != nil {
		t.Fatal(err)
	}

	if len(w.events) != 1 || w.events[0] != "removed 1 unused file, 4 B in total" {
		t.Errorf("events %q", w.events)
	}

	if err := w.collector.record(t.Context(), &Report{}); err != nil || len(w.events) != 1 {
		t.Errorf("nothing was removed, and the events are %q", w.events)
	}
}

// A server that has just taken the lead does not know what the one before it has taken or reported as present.
func TestAYoungBlobIsKeptByANewLeader(t *testing.T) {
	t.Parallel()
	w := oldFile(t)
	w.now = w.now.Add(-time.Hour / 2)
	w.guard = NewGuard(memory{w}, w.now)
	w.collector.Guard = w.guard

	if _, err := w.collector.Collect(t.Context()); err != nil || !w.has(someFile) {
		t.Errorf("a blob of half an hour is gone (%v)", err)
	}
}

// A server that was killed after it removed a file, or whose store failed then, has left the possession of it.
func TestThePossessionOfWhatIsGoneIsRemoved(t *testing.T) {
	t.Parallel()
	w := oldFile(t)
	gone, kept := digestOf([]byte("gone")), digestOf([]byte("kept"))
	w.blobs[httpapi.FileBlob(kept)] = stored{[]byte("kept"), w.now}
	w.possessions = map[possession]bool{{"ada", gone}: true, {"bob", gone}: true, {"bob", kept}: true}

	if _, err := w.collector.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}

	if want := map[possession]bool{{"bob", kept}: true}; !maps.Equal(w.possessions, want) {
		t.Errorf("possessions %v, want %v", w.possessions, want)
	}
}

func TestNothingIsRemoved(t *testing.T) {
	t.Parallel()
	lost := errors.New("another server leads")

	tests := map[string]struct {
		change func(*world)
		want   string // error
	}{
		"from the blobs of another yard": {
			func(w *world) { w.blobs[ownerBlob] = stored{content: []byte("yard-2")} }, "another yard",
		},
		"soon after a restore": {
			func(w *world) {
				w.yard = yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
				w.yard.Load(w.now, yardmaster.State{
					Incarnation: yardmaster.Incarnation{Number: 2, Began: w.now.Add(-24 * time.Hour), Settled: w.now},
				})
			}, "",
		},
		"if a manifest is damaged": {
			func(w *world) {
				w.jobs = []job.Job{{ID: "j1", State: job.Running, Workdir: "abc"}}
				w.blobs[someFile] = stored{content: []byte("{}")}
			}, "damaged",
		},
		"by a server that does not lead":  {func(w *world) { w.collector.Loop = notLeading{w, lost} }, lost.Error()},
		"if the catalogue cannot be read": {func(w *world) { w.collector.Store = broken{err: lost} }, lost.Error()},
		"that was reported as present": {
			func(w *world) { _, _ = w.guard.Store().Has(context.Background(), someFile) }, "",
		},
		"if unused blobs are kept for ever": {func(w *world) { w.collector.Limits.Unused = 0 }, ""},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := oldFile(t)
			tt.change(w)

			_, err := w.collector.Collect(t.Context())
			if !w.has(someFile) {
				t.Error("it was removed")
			}

			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

type notLeading struct {
	Loop
	err error
}

func (l notLeading) Held() error { return l.err }

type broken struct {
	records
	err error
}

func (b broken) Checkpoints(context.Context, store.CheckpointFilter) ([]checkpoint.Checkpoint, error) {
	return nil, b.err
}

// Whoever asks for a blob that is being removed gets the answer when it is gone.
func TestAQuestionWaitsForARemoval(t *testing.T) {
	t.Parallel()
	w := oldFile(t)
	slow := &slowDelete{memory: memory{w}, began: make(chan struct{}), proceed: make(chan struct{})}
	guard := NewGuard(slow, w.now)

	removed := make(chan error, 1)
	go func() {
		_, err := guard.remove(context.Background(), []string{someFile}, w.collector.removal())
		removed <- err
	}()

	<-slow.began

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := guard.Store().Has(ended, someFile); !errors.Is(err, context.Canceled) {
		t.Errorf("asking while it is being removed: %v, want it to wait", err)
	}

	close(slow.proceed)

	if err := <-removed; err != nil {
		t.Fatal(err)
	}

	if has, err := guard.Store().Has(t.Context(), someFile); has || err != nil {
		t.Errorf("it is reported as present after its removal: %v, %v", has, err)
	}
}

type slowDelete struct {
	memory
	began, proceed chan struct{}
}

func (s *slowDelete) Delete(ctx context.Context, name string) error {
	close(s.began)
	<-s.proceed

	return s.memory.Delete(ctx, name)
}

// What was used is protected for at least the time of a sweep and the limit before it, and not for ever.
func TestTheGuardRemembersLongEnough(t *testing.T) {
	t.Parallel()
	w := oldFile(t)
	g, ctx := w.guard, t.Context()
	start := w.now

	if _, err := g.Store().Has(ctx, someFile); err != nil {
		t.Fatal(err)
	}

	for _, after := range []time.Duration{0, unused / 2, unused} {
		g.beginSweep(start.Add(after), unused)

		if removed, err := g.remove(ctx, []string{someFile}, w.collector.removal()); len(removed) > 0 || err != nil {
			t.Fatalf("after %s it was removed (%v)", after, err)
		}
	}

	g.beginSweep(start.Add(3*unused), unused)

	if removed, err := g.remove(ctx, []string{someFile}, w.collector.removal()); len(removed) != 1 || err != nil {
		t.Errorf("it is kept for ever (%v)", err)
	}
}

// A store that can sign stays one that can, and what was signed is not removed.
func TestSignedBlobsAreKept(t *testing.T) {
	t.Parallel()
	w := oldFile(t)
	if _, ok := w.guard.Store().(blob.Signer); ok {
		t.Error("a store that cannot sign appears to")
	}

	guard := NewGuard(signingBlobs{memory{w}}, w.now)
	store, ok := guard.Store().(blob.Signer)
	if !ok {
		t.Fatal("the guard hides that the store can sign")
	}

	if _, err := store.SignPut(t.Context(), someFile, 4, "", time.Minute); err != nil {
		t.Fatal(err)
	}

	removed, err := guard.remove(t.Context(), []string{someFile}, w.collector.removal())
	if len(removed) > 0 || err != nil {
		t.Errorf("removed although it may be put at any time (%v)", err)
	}
}

type signingBlobs struct{ memory }

func (signingBlobs) SignPut(context.Context, string, int64, string, time.Duration) (blob.Request, error) {
	return blob.Request{}, nil
}

func (signingBlobs) SignGet(context.Context, string, time.Duration) (blob.Request, error) {
	return blob.Request{}, nil
}

// A store in a folder stays one, and what was staged or synced is not removed.
func TestStagedBlobsAreKept(t *testing.T) {
	t.Parallel()

	for name, use := range map[string]func(s blob.Local) error{
		"staged": func(s blob.Local) error { return s.Stage(t.Context(), someFile, strings.NewReader("x")) },
		"synced": func(s blob.Local) error { return s.Sync(t.Context(), []string{someFile}) },
	} {
		w := oldFile(t)
		if _, ok := w.guard.Store().(blob.Local); ok {
			t.Error("a store that is not a folder appears to be one")
		}

		guard := NewGuard(folderBlobs{memory{w}}, w.now)
		store, ok := guard.Store().(blob.Local)
		if !ok || store.Folder() != "/blobs" {
			t.Fatal("the guard hides that the store is a folder")
		}

		if err := use(store); err != nil {
			t.Fatal(err)
		}

		removed, err := guard.remove(t.Context(), []string{someFile}, w.collector.removal())
		if len(removed) > 0 || err != nil {
			t.Errorf("%s: removed although it may be referred to at any time (%v)", name, err)
		}
	}
}

type folderBlobs struct{ memory }

func (folderBlobs) Stage(context.Context, string, io.Reader) error { return nil }
func (folderBlobs) Sync(context.Context, []string) error           { return nil }
func (folderBlobs) Folder() string                                 { return "/blobs" }
func (folderBlobs) Sees(string) bool                               { return false }
