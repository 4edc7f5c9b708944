package checkpoints

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/checkpoint"
)

// write makes files, with their directories, all of the same time and in the order of their names: trainer_state.json
// comes last, as Hugging Face writes it.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	now := time.Now()

	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path+".tmp", []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := os.Chtimes(path+".tmp", now, now); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = root.Close() })

	return root
}

// find looks twice at a directory, a second apart, and says what is complete: name, how it was found and step.
func find(t *testing.T, f *finder, dir string, end *ending) []string {
	t.Helper()
	root := openRoot(t, dir)
	now := time.Now()

	var units []unit
	for i := range 2 {
		seen, err := scan(root)
		if err != nil {
			t.Fatal(err)
		}

		units = f.look(seen, now.Add(time.Duration(i)*time.Second), end)
	}

	var got []string
	for _, u := range units {
		got = append(got, fmt.Sprintf("%s %s %d", u.name, u.found, u.step))
	}

	return got
}

func newFinder() *finder { return &finder{rest: 10 * time.Second, ranks: 1} }

func markerText(t *testing.T, files map[string]int64) string {
	t.Helper()
	step, value := int64(70), 0.25
	text, err := json.Marshal(marker{Step: &step, Metric: "loss", Value: &value, World: 4, Framework: "pytorch", Files: files})
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func TestCompleteCheckpointsAreFound(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		files  map[string]string
		finder finder
		end    *ending
		want   string
	}{
		"a snapshot": {
			files: map[string]string{"snapshot-2/snapshot.json": "{}", "snapshot-2/criu/core-300.img": "1234"},
			want:  "snapshot-2 snapshot -1",
		},
		"a directory with the marker of the SDK": {
			files: map[string]string{"s70/w.pt": "1234", "s70/.trainyard-checkpoint.json": markerText(t, map[string]int64{"w.pt": 4})},
			want:  "s70 marker 70",
		},
		"a file with the marker of the SDK": {
			files: map[string]string{"w.pt": "1234", "w.pt.trainyard-checkpoint.json": markerText(t, map[string]int64{"w.pt": 4})},
			want:  "w.pt marker 70",
		},
		"a marker whose file is being written again": {
			files: map[string]string{"s70/w.pt": "12", "s70/.trainyard-checkpoint.json": markerText(t, map[string]int64{"w.pt": 4})},
		},
		"Hugging Face": {
			files: map[string]string{"checkpoint-500/model.safetensors": "x", "checkpoint-500/trainer_state.json": `{"global_step":500}`},
			want:  "checkpoint-500 huggingface 500",
		},
		"Hugging Face, deeper": {
			files: map[string]string{"out/checkpoint-5/model.safetensors": "x", "out/checkpoint-5/trainer_state.json": `{"global_step":5}`},
			want:  "out/checkpoint-5 huggingface 5",
		},
		"Hugging Face, half written and the program gone": {
			files: map[string]string{"checkpoint-500/model.safetensors": "x"},
			end:   &ending{clean: true},
		},
		"Lightning": {
			files: map[string]string{"epoch=3-step=400.ckpt": "x", "epoch=2-step=300.ckpt": "y"},
			want:  "epoch=2-step=300.ckpt lightning 300, epoch=3-step=400.ckpt lightning 400",
		},
		"torch.distributed.checkpoint": {
			files: map[string]string{"step_100/__0_0.distcp": "x", "step_100/.metadata": "m"},
			want:  "step_100 dcp 100",
		},
		"torch.distributed.checkpoint without its metadata": {
			files: map[string]string{"step_100/__0_0.distcp": "x"},
		},
		"plain files that were just written": {
			files: map[string]string{"model.pt": "x", "optimizer.pt": "y"},
		},
		"plain files of a program that ended well": {
			files: map[string]string{"model.pt": "x", "optimizer.pt": "y"},
			end:   &ending{clean: true},
			want:  ". rest -1",
		},
		"plain files of a program that was killed": {
			files: map[string]string{"model.pt": "x", "optimizer.pt": "y"},
			end:   &ending{at: time.Now()},
		},
		"plain files written long before the program was killed": {
			files: map[string]string{"model.pt": "x", "optimizer.pt": "y"},
			end:   &ending{at: time.Now().Add(time.Hour)},
			want:  ". rest -1",
		},
		"plain files that an earlier run left": {
			files:  map[string]string{"model.pt": "x"},
			finder: finder{started: time.Now().Add(time.Hour)},
			end:    &ending{clean: true},
		},
		"a file that was renamed to its name": {
			files:  map[string]string{"state.json": "{}"},
			finder: finder{renamed: map[string]bool{"state.json": true}},
			want:   "state.json rename -1",
		},
		"two files that were renamed to their names": {
			files:  map[string]string{"a.pt": "1", "b.pt": "2"},
			finder: finder{renamed: map[string]bool{"a.pt": true, "b.pt": true}},
			want:   ". rename -1",
		},
		"two files of which one is still written": {
			files:  map[string]string{"a.pt": "1", "b.pt": "2"},
			finder: finder{renamed: map[string]bool{"a.pt": true}},
		},
		"temporary names": {
			files: map[string]string{"a.pt.tmp": "1", "tmp-checkpoint-5/b": "2", "c.log": "3"},
			end:   &ending{clean: true},
		},
		"a rank that is not the first, unsharded": {
			files:  map[string]string{"checkpoint-5/model.safetensors": "x", "checkpoint-5/trainer_state.json": `{"global_step":5}`},
			finder: finder{rank: 1, ranks: 2},
		},
		"the shards of another rank": {
			files:  map[string]string{"step_100/__1_0.distcp": "x"},
			finder: finder{rank: 1, ranks: 2},
			end:    &ending{clean: true},
			want:   "step_100 dcp 100",
		},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, tt.files)
			f := tt.finder
			f.rest = 10 * time.Second
			f.ranks = max(f.ranks, 1)

			if got := strings.Join(find(t, &f, dir, tt.end), ", "); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPlainFilesAreCompleteWhenTheyStopChanging(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := openRoot(t, dir)
	f := newFinder()
	now := time.Now()

	look := func(after time.Duration) int {
		seen, err := scan(root)
		if err != nil {
			t.Fatal(err)
		}

		return len(f.look(seen, now.Add(after), nil))
	}

	write(t, dir, map[string]string{"model.pt": "1"})

	if got := look(0); got != 0 {
		t.Errorf("at once: %d checkpoints, want none", got)
	}

	write(t, dir, map[string]string{"model.pt": "12"})

	for _, step := range []struct {
		after time.Duration
		want  int
	}{{8 * time.Second, 0}, {17 * time.Second, 0}, {18 * time.Second, 1}} {
		if got := look(step.after); got != step.want {
			t.Errorf("after %v: %d checkpoints, want %d", step.after, got, step.want)
		}
	}

	open, err := os.OpenFile(filepath.Join(dir, "model.pt"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	if got := look(30 * time.Second); got != 0 {
		t.Error("a file that is open for writing counts as complete")
	}

	if err := open.Close(); err != nil {
		t.Fatal(err)
	}

	if got := look(31 * time.Second); got != 1 {
		t.Error("a file that was closed does not count as complete")
	}
}

func TestWhatLiesBesideACheckpointGoesWithIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := func(step int) string {
		return fmt.Sprintf(`{"global_step":%d,"log_history":[{"step":%d,"eval_loss":0.5}]}`, step, step)
	}
	write(t, dir, map[string]string{
		"checkpoint-1/model.safetensors": "a", "checkpoint-1/trainer_state.json": state(1),
		"checkpoint-2/model.safetensors": "b", "checkpoint-2/trainer_state.json": state(2),
		"latest": "checkpoint-2\n", "tokenizer.json": "{}", "train.log": "line",
	})

	if err := os.Symlink("checkpoint-1", filepath.Join(dir, "best")); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "outside")); err != nil {
		t.Fatal(err)
	}

	f := newFinder()
	find(t, f, dir, nil)
	seen, err := scan(openRoot(t, dir))
	if err != nil {
		t.Fatal(err)
	}

	units := f.look(seen, time.Now().Add(time.Minute), nil)
	if len(units) != 2 {
		t.Fatalf("%d checkpoints, want 2", len(units))
	}

	for i, want := range []string{"best tokenizer.json", "latest tokenizer.json"} {
		var got []string
		for _, g := range units[i].beside {
			got = append(got, g.path)
		}

		if strings.Join(got, " ") != want {
			t.Errorf("beside %s: %v, want %s", units[i].name, got, want)
		}
	}

	if u := units[1]; u.metric != "eval_loss" || u.value == nil || *u.value != 0.5 || u.found != checkpoint.ByHuggingFace {
		t.Errorf("metric %s of %+v", u.metric, u)
	}
}

func TestTheWatchSeesRenames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := newWatch(dir)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = w.close() })

	write(t, dir, map[string]string{"a": "1"})
	<-w.wake

	if names := w.names(); !names["a"] || len(names) != 1 {
		t.Errorf("renamed: %v", names)
	}

	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("22"), 0o600); err != nil {
		t.Fatal(err)
	}

	for w.names()["a"] { // until the event arrives
		time.Sleep(time.Millisecond)
	}
}
