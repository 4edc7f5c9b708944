package checkpoints

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

func restoreOf(in ...api.NewCheckpoint) *job.Restore {
	r := &job.Restore{Checkpoint: "j1.c1", Name: in[0].Name, Step: -1}
	for _, part := range in {
		r.Size += part.Size
		r.Parts = append(r.Parts, job.RestorePart{Manifest: part.Manifest})
	}

	return r
}

// stored saves files as a checkpoint and returns it.
func storedCheckpoint(t *testing.T, y *fakeYard, c *Checkpoints, rank Rank, files map[string]string) *job.Restore {
	t.Helper()
	write(t, rank.Dir, files)
	s := c.Save(rank)
	in := y.awaitEntries(1)[0]
	s.Stop()

	return restoreOf(in)
}

func TestACheckpointIsRestoredOnAnotherNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	files := huggingFace("5", "adam", noise(1, 50<<20))
	files["checkpoint-5/empty"] = ""

	if err := os.MkdirAll(rank.Dir, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink("checkpoint-5", filepath.Join(rank.Dir, "last")); err != nil {
		t.Fatal(err)
	}

	from := storedCheckpoint(t, y, c, rank, files)
	other := newRank(t)
	other.Run = "j1.2"
	var show Restoring

	if err := c.Restore(t.Context(), other, from, &show); err != nil {
		t.Fatal(err)
	}

	want := maps.Clone(files)
	want["last"] = "-> checkpoint-5"
	sameFiles(t, "the directory", contents(t, other.Dir), want)

	if got := show.Progress(); !strings.HasPrefix(got, "restoring checkpoint j1.c1: 50MB of 50MB") {
		t.Errorf("progress %q", got)
	}

	if left, err := os.ReadDir(filepath.Dir(other.Dir)); err != nil || len(left) != 1 {
		t.Errorf("beside the directory: %v, %v", left, err)
	}

	// The run that restored it does not save it again, but saves what it changes.
	s := save(t, c, other)
	write(t, other.Dir, huggingFace("6", "adam", noise(1, 50<<20)))
	all := y.awaitEntries(2)

	if all[1].Name != "checkpoint-6" {
		t.Errorf("the restored checkpoint was saved again: %+v", all[1])
	}

	s.End(time.Now(), true)
	finish(t, y, s)

	if n := len(y.awaitEntries(2)); n != 2 {
		t.Errorf("%d entries, want 2", n)
	}
}

func TestWhatIsThereIsNotDownloadedAndTheRestMovedAside(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	model := noise(1, 40<<20)
	files := huggingFace("5", "adam", model)
	from := storedCheckpoint(t, y, c, rank, files)

	// A later, torn checkpoint, a file that was damaged in the middle, and one of another size.
	copy(model[20<<20:], "damaged")
	write(t, rank.Dir, map[string]string{
		"checkpoint-5/model.safetensors": string(model), "checkpoint-5/optimizer.pt": "adamw",
		"checkpoint-6/model.safetensors": "torn",
	})

	if err := c.Restore(t.Context(), rank, from, &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, rank.Dir), files)

	if y.fetched > 20<<20 {
		t.Errorf("%d bytes downloaded though most was there", y.fetched)
	}

	aside := contents(t, filepath.Join(filepath.Dir(rank.Dir), ".aside-j1"))
	if aside["checkpoint-6/model.safetensors"] != "torn" {
		t.Errorf("moved aside: %v", sizes(aside))
	}

	y.fetched = 0

	if err := c.Restore(t.Context(), rank, from, &Restoring{}); err != nil {
		t.Fatal(err)
	}

	if y.fetched > 10<<10 {
		t.Errorf("%d bytes downloaded though all was there", y.fetched)
	}

	sameFiles(t, "the directory", contents(t, rank.Dir), files)
}

func TestAnInterruptedRestoreIsRepeated(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	files := huggingFace("5", "adam", noise(1, 40<<20))
	from := storedCheckpoint(t, y, c, rank, files)

	// The agent was killed when it had moved the old directory aside.
	if err := os.Rename(rank.Dir, filepath.Join(filepath.Dir(rank.Dir), ".aside-j1")); err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(filepath.Dir(rank.Dir), ".restore-j1"), map[string]string{"checkpoint-5/model.safetensors": "half"})

	if err := c.Restore(t.Context(), rank, from, &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, rank.Dir), files)

	if y.fetched > 10<<10 {
		t.Errorf("%d bytes downloaded though all was there", y.fetched)
	}
}

func TestACorruptCheckpointIsNotRestored(t *testing.T) {
	t.Parallel()

	flip := func(data []byte) []byte {
		data = append([]byte(nil), data...)
		data[len(data)/2] ^= 1

		return data
	}

	tests := map[string]func(y *fakeYard, manifest string){
		"a chunk has another content": func(y *fakeYard, manifest string) {
			y.damage = func(digest string, data []byte) []byte {
				if digest == manifest {
					return data
				}

				return flip(data)
			}
		},
		"the manifest has another content": func(y *fakeYard, manifest string) {
			y.damage = func(digest string, data []byte) []byte {
				if digest != manifest {
					return data
				}

				return flip(data)
			}
		},
		"a chunk is gone": func(y *fakeYard, manifest string) {
			for digest := range y.chunks {
				if digest != manifest {
					delete(y.chunks, digest)
				}
			}
		},
		"the manifest is gone": func(y *fakeYard, manifest string) { delete(y.chunks, manifest) },
	}

	for name, meddle := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			c, rank := newCheckpoints(t, y), newRank(t)
			from := storedCheckpoint(t, y, c, rank, huggingFace("5", "adam", noise(1, 3<<20)))
			meddle(y, from.Parts[0].Manifest)

			other := newRank(t)
			write(t, other.Dir, map[string]string{"mine": "untouched"})

			err := c.Restore(t.Context(), other, from, &Restoring{})
			if !Corrupt(err) || !strings.Contains(err.Error(), "checkpoint j1.c1") {
				t.Errorf("restored: %v", err)
			}

			sameFiles(t, "the directory", contents(t, other.Dir), map[string]string{"mine": "untouched"})
		})
	}
}

func TestAChunkThatArrivesDamagedOnceIsFetchedAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	files := huggingFace("5", "adam", noise(1, 3<<20))
	from := storedCheckpoint(t, y, c, rank, files)
	damaged := map[string]bool{}
	y.damage = func(digest string, data []byte) []byte {
		if damaged[digest] {
			return data
		}

		damaged[digest] = true

		return data[:len(data)-1]
	}

	other := newRank(t)
	if err := c.Restore(t.Context(), other, from, &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, other.Dir), files)
}

func TestARestoreWithoutRoomFailsAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	from := storedCheckpoint(t, y, c, rank, huggingFace("5", "adam", noise(1, 3<<20)))
	c.opt.Free = func(string) (job.Bytes, job.Bytes, error) { return 1 << 20, 1 << 40, nil }

	err := c.Restore(t.Context(), newRank(t), from, &Restoring{})
	if fault.KindOf(err) != fault.OverLimit || Corrupt(err) || !strings.Contains(err.Error(), "3MB needed") {
		t.Errorf("restored: %v", err)
	}
}

func TestARestoreWaitsForTheServerUntilItIsStopped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	from := storedCheckpoint(t, y, c, rank, huggingFace("5", "adam", noise(1, 3<<20)))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	y.before = func(string) error {
		calls++
		if calls == 2 {
			cancel()
		}

		return fault.New(fault.Unavailable, "unreachable", "cannot reach the server")
	}

	if err := c.Restore(ctx, newRank(t), from, &Restoring{}); !strings.Contains(err.Error(), "canceled") || Corrupt(err) {
		t.Errorf("restored: %v", err)
	}
}

func TestTheShardsOfAllRanksAreRestoredTogether(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := newCheckpoints(t, y)
	first, second := newRank(t), newRank(t)
	first.Ranks, second.Ranks, second.Rank = 2, 2, 1
	write(t, first.Dir, map[string]string{"step_7/__0_0.distcp": "a", "step_7/.metadata": "m"})
	write(t, second.Dir, map[string]string{"step_7/__1_0.distcp": "b"})
	save(t, c, first)
	one := y.awaitEntries(1)[0]
	save(t, c, second)
	two := y.awaitEntries(2)[1]

	if one.Ranks != 2 || two.Ranks != 2 || two.Rank != 1 || one.Name != two.Name {
		t.Errorf("entered %+v and %+v", one, two)
	}

	other := newRank(t)
	if err := c.Restore(t.Context(), other, restoreOf(one, two), &Restoring{}); err != nil {
		t.Fatal(err)
	}

	want := map[string]string{"step_7/__0_0.distcp": "a", "step_7/.metadata": "m", "step_7/__1_0.distcp": "b"}
	sameFiles(t, "the directory", contents(t, other.Dir), want)
}
