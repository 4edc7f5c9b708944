package checkpoints

import (
	"os"
	"path/filepath"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/blob"
)

func openFolder(t *testing.T, root string) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}

	return d
}

// meet lets an agent meet the server's folder with a first small checkpoint, which still goes through the server.
func meet(t *testing.T, y *fakeYard, c *Checkpoints) {
	t.Helper()

	first := newRank(t)
	first.Run = "j0.1"
	write(t, first.Dir, huggingFace("1", "sgd", nil))
	s := c.Save(first)
	y.awaitEntries(1)
	s.Stop()
}

// unsynced returns the files of chunks in a folder that a power cut may take away.
func unsynced(t *testing.T, root string) []string {
	t.Helper()

	names, err := filepath.Glob(filepath.Join(root, ".unfinished", "*", "blob-*"))
	if err != nil {
		t.Error(err)
	}

	return names
}

func (y *fakeYard) called(call string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.calls[call]
}

func TestOnOneMachineChunksDoNotTravelThroughTheServer(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.folder = openFolder(t, t.TempDir())
	c, rank := newCheckpoints(t, y), newRank(t)
	meet(t, y, c)
	puts := y.called("put")

	files := huggingFace("5", "adam", noise(1, 50<<20))
	write(t, rank.Dir, files)
	s := c.Save(rank)
	in := y.awaitEntries(2)[1]
	s.Stop()
	sameFiles(t, "the store", y.manifest(in.Manifest), files)

	if n := y.called("put"); n != puts {
		t.Errorf("%d chunks went through the server", n-puts)
	}

	other := newRank(t)
	other.Run = "j1.2"
	fetches := y.called("fetch")

	if err := c.Restore(t.Context(), other, restoreOf(in), &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, other.Dir), files)

	if n := y.called("fetch"); n > fetches+1 { // the manifest
		t.Errorf("%d chunks came through the server", n-fetches)
	}
}

// What a checkpoint consists of has its name in the folder, which it gets when it is synced, before it is catalogued.
func TestWhatIsCataloguedIsOnDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	y := newYard(t)
	y.folder = openFolder(t, root)
	c, rank := newCheckpoints(t, y), newRank(t)
	meet(t, y, c)

	left := -1
	y.mu.Lock()
	y.refuse = func(*api.NewCheckpoint) error {
		left = len(unsynced(t, root))
		return nil
	}
	y.mu.Unlock()

	write(t, rank.Dir, huggingFace("5", "adam", noise(1, 20<<20)))
	s := c.Save(rank)
	y.awaitEntries(2)
	s.Stop()

	y.mu.Lock()
	defer y.mu.Unlock()

	if left != 0 {
		t.Errorf("%d chunks of a checkpoint in the catalogue may be lost in a power cut", left)
	}
}

// A server that starts again removes what was not finished: it is uploaded again.
func TestAServerThatStartsDuringAnUploadGetsEverything(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	y := newYard(t)
	y.folder = openFolder(t, root)
	c, rank := newCheckpoints(t, y), newRank(t)
	meet(t, y, c)

	started := false
	y.mu.Lock()
	y.onMissing = func([]string) {
		y.mu.Lock()
		defer y.mu.Unlock()

		if len(unsynced(t, root)) > 0 && !started {
			started = true
			y.folder = openFolder(t, root)
		}
	}
	y.mu.Unlock()

	files := huggingFace("5", "adam", noise(1, 100<<20))
	write(t, rank.Dir, files)
	s := c.Save(rank)
	in := y.awaitEntries(2)[1]
	s.Stop()
	sameFiles(t, "the store", y.manifest(in.Manifest), files)

	if !started {
		t.Error("the server did not start again")
	}
}

// Another server has a folder of the same path on its own machine.
func TestAFolderThatIsNotTheServersIsNotUsed(t *testing.T) {
	t.Parallel()
	here := t.TempDir()
	openFolder(t, here)

	y := newYard(t)
	c, rank := newCheckpoints(t, y), newRank(t)
	files := huggingFace("5", "adam", noise(1, 50<<20))
	write(t, rank.Dir, files)

	y.elsewhere = here
	s := c.Save(rank)
	in := y.awaitEntries(1)[0]
	s.Stop()
	sameFiles(t, "the store", y.manifest(in.Manifest), files)

	var left []string
	err := filepath.WalkDir(here, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, name)
		}

		return err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("in the other folder: %v, %v", left, err)
	}
}

// A chunk in the folder that is not what it is called is not restored.
func TestADamagedFileInTheFolderIsNotRestored(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	y := newYard(t)
	y.folder = openFolder(t, root)
	c, rank := newCheckpoints(t, y), newRank(t)
	meet(t, y, c)

	files := huggingFace("5", "adam", noise(1, 20<<20))
	write(t, rank.Dir, files)
	s := c.Save(rank)
	in := y.awaitEntries(2)[1]
	s.Stop()
	y.manifest(in.Manifest)

	names, err := filepath.Glob(filepath.Join(root, "chunks", "*"))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		data[len(data)/2]++

		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// The server still has it as it was, and is asked for it.
	other := newRank(t)
	other.Run = "j1.2"

	if err := c.Restore(t.Context(), other, restoreOf(in), &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, other.Dir), files)
}
