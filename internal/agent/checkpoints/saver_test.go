package checkpoints

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
)

// huggingFace is a complete checkpoint with large files.
func huggingFace(step, seed string, model []byte) map[string]string {
	return map[string]string{
		"checkpoint-" + step + "/model.safetensors":  string(model),
		"checkpoint-" + step + "/optimizer.pt":       seed,
		"checkpoint-" + step + "/trainer_state.json": `{"global_step":` + step + `}`,
	}
}

func TestACheckpointIsStoredWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	s := save(t, c, rank)
	files := huggingFace("5", "adam", noise(1, 40<<20))
	write(t, rank.Dir, files)

	in := y.awaitEntries(1)[0]
	if in.Run != "j1.1" || in.UID != "u1" || in.Ranks != 1 || in.Name != "checkpoint-5" || *in.Step != 5 ||
		in.Found != checkpoint.ByHuggingFace || in.Framework != "huggingface" || in.Written.IsZero() ||
		int(in.Size) != 40<<20+len("adam")+len(`{"global_step":5}`) {
		t.Errorf("entered %+v", in)
	}

	sameFiles(t, "the store", y.manifest(in.Manifest), files)

	if done, _ := s.Finished(); done {
		t.Error("finished before the end of the program")
	}

	s.End(time.Now(), true)
	finish(t, y, s)

	if n := len(y.awaitEntries(1)); n != 1 {
		t.Errorf("%d entries of one checkpoint", n)
	}
}

// The end of a rank is held back until its saver is finished: of a short program that must not take a turn of its own.
func TestAShortProgramIsFinishedAtItsEnd(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := newCheckpoints(t, y)
	c.opt.Every = time.Hour // nothing is looked at before the end

	nothing := newRank(t)
	s := save(t, c, nothing)
	s.End(time.Now(), true)

	if done, err := s.Finished(); !done || err != nil {
		t.Errorf("without files: finished %v, %v", done, err)
	}

	if _, err := os.Stat(c.statePath(nothing.Run, nothing.Rank)); !os.IsNotExist(err) {
		t.Errorf("it left a state: %v", err)
	}

	something := newRank(t)
	something.Run = "j2.1"
	write(t, something.Dir, map[string]string{"model.pt": "weights"})

	s = save(t, c, something)
	s.End(time.Now(), true)

	if done, _ := s.Finished(); done {
		t.Error("finished before its file was stored")
	}

	finish(t, y, s)
	y.awaitEntries(1)
}

// Its files are older than the run, as if an earlier one had left them: only the watch tells that they are new here.
func TestWhatIsMovedIntoTheDirectoryBeforeTheFirstLookIsStored(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := newCheckpoints(t, y)
	c.opt.Every = time.Second

	rank := newRank(t)
	rank.Started = time.Now()
	ready := t.TempDir()
	write(t, ready, map[string]string{"step-1/shard-0.bin": "weights"})

	before := rank.Started.Add(-time.Hour)
	err := errors.Join(os.Chtimes(filepath.Join(ready, "step-1/shard-0.bin"), before, before),
		os.MkdirAll(rank.Dir, 0o700))
	if err != nil {
		t.Fatal(err)
	}

	s := save(t, c, rank)
	if err := os.Rename(filepath.Join(ready, "step-1"), filepath.Join(rank.Dir, "step-1")); err != nil {
		t.Fatal(err)
	}

	y.awaitEntries(1)
	s.End(time.Now(), true)
	finish(t, y, s)
}

// finish waits until everything is stored.
func finish(t *testing.T, y *fakeYard, s *Saver) {
	t.Helper()

	if err := awaitFinished(t, y, s); err != nil {
		t.Error(err)
	}
}

// awaitFinished waits until everything is stored, or cannot be, and returns why not.
func awaitFinished(t *testing.T, y *fakeYard, s *Saver) error {
	t.Helper()
	var problem error
	y.await("the saver to finish", func() bool {
		done, err := s.Finished()
		problem = err
		return done
	})

	return problem
}

func TestOnlyWhatIsNewIsUploaded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	save(t, c, rank)
	model := noise(1, 60<<20)
	write(t, rank.Dir, huggingFace("5", "adam", model))
	y.awaitEntries(1)

	before := y.uploaded
	copy(model[30<<20:], noise(2, 1<<20))
	write(t, rank.Dir, huggingFace("6", "adam", model))

	second := y.awaitEntries(2)[1]
	if n := y.uploaded - before; n > 2*maxChunk {
		t.Errorf("%d bytes uploaded of 60 MB of which 1 MB has changed", n)
	}

	sameFiles(t, "the store", y.manifest(second.Manifest), huggingFace("6", "adam", model))
}

func TestAnUploadContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	files := huggingFace("5", "adam", noise(1, 50<<20))
	write(t, rank.Dir, files)

	var puts atomic.Int32
	y.before = func(call string) error {
		if call == "put" && puts.Add(1) > 5 {
			return fault.New(fault.Unavailable, "down", "down")
		}

		return nil
	}

	s := c.Save(rank)
	y.await("some chunks", func() bool { return len(y.chunks) == 5 })
	s.Stop()

	y.mu.Lock()
	stored := y.uploaded
	y.before = nil
	y.mu.Unlock()

	save(t, c, rank)
	in := y.awaitEntries(1)[0]
	sameFiles(t, "the store", y.manifest(in.Manifest), files)

	if all := y.uploaded - int64(len(y.chunks[in.Manifest])); stored == 0 || all > 50<<20+100 {
		t.Errorf("%d bytes uploaded in all for a checkpoint of 50 MB", all)
	}
}

func TestWhatWasSavedIsNotSavedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	write(t, rank.Dir, huggingFace("5", "adam", noise(1, 5<<20)))
	s := c.Save(rank)
	y.awaitEntries(1)
	s.End(time.Now(), true)
	finish(t, y, s)
	s.Stop()

	s = save(t, c, rank)
	if done, err := s.Finished(); !done || err != nil {
		t.Errorf("after a restart: finished %v, %v", done, err)
	}

	if n := len(y.awaitEntries(1)); n != 1 {
		t.Errorf("%d entries", n)
	}
}

func TestACheckpointThatChangesWhileItIsReadIsNotTaken(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	write(t, rank.Dir, huggingFace("5", "adam", noise(1, 40<<20)))

	var meddled atomic.Bool
	y.onMissing = func([]string) {
		if meddled.CompareAndSwap(false, true) {
			write(t, rank.Dir, map[string]string{"checkpoint-5/optimizer.pt": "sgd!"})
		}
	}

	save(t, c, rank)
	in := y.awaitEntries(1)[0]

	if got := y.manifest(in.Manifest)["checkpoint-5/optimizer.pt"]; got != "sgd!" {
		t.Errorf("a torn checkpoint was entered: optimizer %q", got)
	}
}

func TestAFileThatIsReplacedAllTheTimeIsSaved(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	s := save(t, c, rank)
	stop := make(chan struct{})
	done := make(chan struct{})

	go func() {
		defer close(done)

		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}

			text := strings.Repeat(string(rune('a'+i%26)), 100_000)
			_ = os.MkdirAll(rank.Dir, 0o700)
			_ = os.WriteFile(filepath.Join(rank.Dir, "state.tmp"), []byte(text), 0o600)
			_ = os.Rename(filepath.Join(rank.Dir, "state.tmp"), filepath.Join(rank.Dir, "state.json"))
		}
	}()

	all := y.awaitEntries(3)
	close(stop)
	<-done
	s.End(time.Now(), true)
	finish(t, y, s)

	for _, in := range all {
		text := y.manifest(in.Manifest)["state.json"]
		if in.Found != checkpoint.ByRename || len(text) != 100_000 || strings.Trim(text, text[:1]) != "" {
			t.Errorf("entered %+v with %d bytes", in, len(text))
		}
	}

	all = y.awaitEntries(1)
	last, err := os.ReadFile(filepath.Join(rank.Dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}

	if got := y.manifest(all[len(all)-1].Manifest)["state.json"]; got != string(last) {
		t.Error("the last one is not the one that the program left")
	}
}

func TestTheNewestIsSavedFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	gate := make(chan struct{})
	var once atomic.Bool
	y.wait = func(ctx context.Context, call string) {
		if call == "add" && once.CompareAndSwap(false, true) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
	}

	s := save(t, c, rank)
	write(t, rank.Dir, huggingFace("1", "x", nil))
	y.await("the first to be entered", func() bool { return y.calls["add"] == 1 })
	write(t, rank.Dir, huggingFace("2", "x", nil))
	write(t, rank.Dir, huggingFace("3", "x", nil))
	close(gate)
	s.End(time.Now(), true)
	finish(t, y, s)

	var got []string
	for _, in := range y.awaitEntries(2) {
		got = append(got, in.Name)
	}

	if strings.Join(got, " ") != "checkpoint-1 checkpoint-3" {
		t.Errorf("entered %v, want the first and the newest", got)
	}
}

func TestAServerThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()

	for _, call := range []string{"chunks", "put", "add"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			c, rank := newCheckpoints(t, y), newRank(t)
			files := huggingFace("5", "adam", noise(1, 3<<20))
			write(t, rank.Dir, files)

			var failures atomic.Int32
			y.before = func(got string) error {
				if got == call && failures.Add(1) <= 2 {
					return fault.New(fault.Unavailable, "unreachable", "cannot reach the server")
				}

				return nil
			}

			s := save(t, c, rank)
			s.End(time.Now(), true)

			if err := awaitFinished(t, y, s); err != nil {
				t.Error(err)
			}

			sameFiles(t, "the store", y.manifest(y.awaitEntries(1)[0].Manifest), files)
		})
	}
}

func TestWhatTheServerRefusesIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	write(t, rank.Dir, huggingFace("5", "adam", nil))
	y.refuse = func(*api.NewCheckpoint) error {
		return fault.New(fault.Conflict, api.CodeStaleEpoch, "run j1.1 is not the newest of its job")
	}

	s := save(t, c, rank)
	s.End(time.Now(), true)

	if err := awaitFinished(t, y, s); fault.KindOf(err) != fault.Conflict {
		t.Errorf("finished with %v", err)
	}

	if y.calls["add"] != 1 {
		t.Errorf("entered %d times", y.calls["add"])
	}
}

func TestTheEndIsHeldBackOnlyWhileSomethingMoves(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	c.opt.Patience = 100 * time.Millisecond
	write(t, rank.Dir, huggingFace("5", "adam", nil))
	y.before = func(call string) error {
		if call == "put" {
			return fault.New(fault.Unavailable, "blob_store", "the blob store is down")
		}

		return nil
	}

	s := save(t, c, rank)
	y.await("the upload to be shown", func() bool {
		return strings.Contains(s.Progress(), "uploading checkpoint checkpoint-5: ") &&
			strings.HasSuffix(s.Progress(), "; the blob store is down")
	})
	s.End(time.Now(), true)

	if err := awaitFinished(t, y, s); err == nil {
		t.Error("finished without a problem")
	}

	if len(y.entered) != 0 {
		t.Errorf("entered %v", y.entered)
	}
}

func TestTheEndOfTheProgramIsNotWaitedOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	c.opt.Every = time.Hour
	s := save(t, c, rank)

	// After a rename the saver waits whether more follows, for a quarter of an hour here, but not once the program ended.
	write(t, rank.Dir, map[string]string{"tmp-new/state": "5"})
	if err := os.Rename(filepath.Join(rank.Dir, "tmp-new"), filepath.Join(rank.Dir, "step-5")); err != nil {
		t.Fatal(err)
	}

	time.Sleep(50 * time.Millisecond) // so that it most likely waits already
	s.End(time.Now(), true)
	finish(t, y, s)

	if in := y.awaitEntries(1)[0]; in.Name != "step-5" {
		t.Errorf("entered %+v", in)
	}
}

func TestChunksGoToSignedAddresses(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var expired atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		digest := path.Base(r.URL.Path)
		switch {
		case expired.Add(1) <= 2:
			http.Error(w, "expired", http.StatusForbidden)
		case r.Header.Get("X-Checksum") != digest:
			http.Error(w, "header", http.StatusBadRequest)
		case r.Method == http.MethodGet:
			y.mu.Lock()
			defer y.mu.Unlock()

			_, _ = w.Write(y.chunks[digest])
		default:
			data, _ := io.ReadAll(r.Body)
			if int64(len(data)) != r.ContentLength || y.keep(digest, data) != nil {
				http.Error(w, "content", http.StatusBadRequest)
			}
		}
	}))
	t.Cleanup(srv.Close)

	y.sign = func(digest string) (string, map[string]string) {
		return srv.URL + "/" + digest, map[string]string{"X-Checksum": digest}
	}

	c, rank := newCheckpoints(t, y), newRank(t)
	files := huggingFace("5", "adam", noise(1, 20<<20))
	write(t, rank.Dir, files)
	save(t, c, rank)
	in := y.awaitEntries(1)[0]
	sameFiles(t, "the store", y.manifest(in.Manifest), files)

	if y.calls["put"] > 0 {
		t.Error("chunks went through the server")
	}

	expired.Store(0)

	other := newRank(t)
	if err := c.Restore(t.Context(), other, restoreOf(in), &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, other.Dir), files)

	if y.calls["fetch"] > 0 {
		t.Error("chunks came through the server")
	}
}
