package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"trainyard/internal/api"
	"trainyard/internal/blob/blobtest"
	"trainyard/internal/checkpoint"
	"trainyard/internal/id"
	"trainyard/test/yardtest"
)

// maxFiles is how many files a checkpoint has at most. A small one has fewer, of which the chunks around what has
// changed would be too large a part otherwise.
const maxFiles = 8

// world is the checkpoint that is measured and the yard that has it now. Everything is below one folder, on one disk.
type world struct {
	folder string
	files  int
	size   int64  // of a file
	first  string // directory of the checkpoint

	yard   *yardtest.Yard
	client *api.Client
	job    id.Job
}

func newWorld(t *testing.T, size int64) *world {
	t.Helper()

	folder, err := yardtest.NewFolder("trainyard-bench-checkpoint-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})

	if err := yardtest.Build(folder, "trainyard/cmd/trainyard"); err != nil {
		t.Fatal(err)
	}

	w := &world{folder: folder, files: int(min(max(size>>30, 1), maxFiles)), first: filepath.Join(folder, "step-1")}
	w.size = size / int64(w.files)
	w.write(t, w.first, false)

	return w
}

func (w *world) file(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("shard-%d.bin", n))
}

// write makes a checkpoint. Of each file of the second one a tenth has changed, in one place, as where most of the
// weights are frozen.
func (w *world) write(t *testing.T, dir string, second bool) {
	t.Helper()

	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	for n := range w.files {
		noise := func(part byte) io.Reader { return rand.NewChaCha8([32]byte{byte(n), part}) }
		content := noise(1)

		if second {
			from := w.size * int64(n+1) / (maxFiles + 2)
			content = &skipping{r: content, other: noise(2), from: from, to: from + w.size/10}
		}

		w.writeFile(t, w.file(dir, n), io.LimitReader(content, w.size))
	}
}

func (w *world) writeFile(t *testing.T, path string, r io.Reader) {
	t.Helper()

	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	_, err = io.CopyBuffer(f, r, make([]byte, 1<<20))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// skipping reads r, and between two offsets another reader instead.
type skipping struct {
	r, other     io.Reader
	at, from, to int64
}

func (s *skipping) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)

	first, last := max(s.from, s.at)-s.at, min(s.to, s.at+int64(n))-s.at
	if first < last {
		if _, err := io.ReadFull(s.other, p[first:last]); err != nil {
			return 0, err
		}
	}

	s.at += int64(n)

	return n, err
}

// measure opens a yard with two nodes and a job, and lets the job save the first checkpoint on one node, continue from
// it on the other and save the second there. stored returns how many bytes the store has.
func (w *world) measure(t *testing.T, y *yardtest.Yard, stored func() int64) figures {
	t.Helper()
	w.open(t, y)
	defer w.close(t)

	var f figures
	dir := w.running(t, 1)
	ready := filepath.Join(y.Folder, "step-1")
	run(t, "cp", "-r", "--link", w.first, ready) // it is needed again
	f.upload = w.save(t, ready, dir, 1)
	before := stored()

	d, err := w.client.Job(t.Context(), w.job)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := w.client.DrainNode(t.Context(), d.Runs[0].Ranks[0].Node); err != nil {
		t.Fatal(err)
	}

	w.await(t, "the second run", func() bool {
		d, err := w.client.Job(t.Context(), w.job)
		return err == nil && len(d.Runs) == 2
	})

	begun := time.Now()
	dir = w.running(t, 2)
	f.restore = time.Since(begun)
	w.compare(t, dir)

	ready = filepath.Join(y.Folder, "step-2")
	w.write(t, ready, true)
	f.second = w.save(t, ready, dir, 2)
	f.secondBytes = stored() - before

	return f
}

// open starts a yard and submits the job. Each of its runs says where its checkpoint directory is, and waits.
func (w *world) open(t *testing.T, y *yardtest.Yard) {
	t.Helper()
	w.yard = y
	y.Binary, y.Folder = filepath.Join(w.folder, "trainyard"), filepath.Join(w.folder, "yard")

	err := os.Mkdir(y.Folder, 0o700)
	if err == nil {
		err = y.Open(t.Context())
	}
	if err == nil {
		err = y.LogIn(t.Context())
	}
	if err == nil {
		w.client, err = y.Client(y.Admin())
	}
	if err != nil {
		t.Fatal(err)
	}

	token, err := y.JoinToken(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"north", "south"} {
		if _, err := y.StartAgent(name, token); err != nil {
			t.Fatal(err)
		}
		if err := y.AwaitAgent(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}

	line := fmt.Sprintf(`cd %s && printf %%s "$TRAINYARD_CHECKPOINT_DIR" > new && mv new run-$TRAINYARD_EPOCH`, y.Folder)
	reply, err := w.client.Submit(t.Context(), api.SubmitRequest{
		File: "run: |\n  " + line + "\n  exec sleep infinity\nresources: {cpus: 0.1}\ngrace: 5s\n",
	}, "")
	if err != nil {
		t.Fatal(err)
	}

	w.job = reply.Jobs[0].ID
}

// close ends a yard and removes all it had. What the job was given is made anew by the next one.
func (w *world) close(t *testing.T) {
	t.Helper()
	w.client.Close()

	for _, log := range []string{w.yard.ServerLog(), w.yard.AgentLog("north"), w.yard.AgentLog("south")} {
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(log), yardtest.Tail(log, 20))
		}
	}

	if err := yardtest.KillAll(w.yard.Folder); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(w.yard.Folder); err != nil {
		t.Error(err)
	}
}

// running waits for a run of the job and returns its checkpoint directory.
func (w *world) running(t *testing.T, run int) string {
	t.Helper()

	var dir []byte
	w.await(t, fmt.Sprintf("run %d", run), func() (ok bool) {
		var err error
		dir, err = os.ReadFile(filepath.Join(w.yard.Folder, fmt.Sprintf("run-%d", run)))
		return err == nil
	})

	return string(dir)
}

// save moves a checkpoint into the directory of the running job, as a program does that has written it under another
// name, and returns how long it took until it was in the catalogue.
func (w *world) save(t *testing.T, ready, dir string, number int) time.Duration {
	t.Helper()
	settle(t)

	begun := time.Now()
	if err := os.Rename(ready, filepath.Join(dir, filepath.Base(ready))); err != nil {
		t.Fatal(err)
	}

	w.await(t, "a stored checkpoint", func() bool {
		list, err := w.client.Checkpoints(t.Context(), w.job, false)
		return err == nil && len(list.Checkpoints) == number && list.Checkpoints[number-1].State == checkpoint.Stored
	})

	return time.Since(begun)
}

// compare fails unless a restored directory has the first checkpoint, in files of its own.
func (w *world) compare(t *testing.T, dir string) {
	t.Helper()

	for n := range w.files {
		original := w.file(w.first, n)
		restored := w.file(filepath.Join(dir, filepath.Base(w.first)), n)

		a, err := os.Stat(original)
		b, restoredErr := os.Stat(restored)
		if err := errors.Join(err, restoredErr); err != nil || os.SameFile(a, b) {
			t.Fatalf("%s was not copied: %v", restored, err)
		}

		run(t, "cmp", original, restored)
	}
}

// await waits for a condition. A large checkpoint takes long on a slow disk.
func (w *world) await(t *testing.T, what string, met func() bool) {
	t.Helper()

	for end := time.Now().Add(time.Hour); !met(); time.Sleep(20 * time.Millisecond) {
		if t.Context().Err() != nil || time.Now().After(end) {
			t.Fatalf("%s: waited in vain", what)
		}
	}
}

// serverBlobs is where the server keeps chunks without an object store.
func (w *world) serverBlobs() string {
	return filepath.Join(w.yard.Folder, "server", "blobs", "chunks")
}

// below returns the size of all files below a folder.
func below(t *testing.T, folder string) int64 {
	t.Helper()

	var sum int64
	err := filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return sum
}

// inBucket returns the size of all chunks in a bucket.
func inBucket(t *testing.T, server *blobtest.Server, bucket string) int64 {
	t.Helper()

	var sum int64
	pages := sdk.NewListObjectsV2Paginator(server.Client(), &sdk.ListObjectsV2Input{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		for i := range page.Contents {
			if strings.Contains(*page.Contents[i].Key, "chunks/") {
				sum += *page.Contents[i].Size
			}
		}
	}

	return sum
}

func TestASecondCheckpointDiffersInATenth(t *testing.T) {
	t.Parallel()
	all := bytes.Repeat([]byte{1}, 1000)
	got, err := io.ReadAll(&skipping{
		r: bytes.NewReader(all), other: bytes.NewReader(bytes.Repeat([]byte{2}, 1000)), from: 300, to: 400,
	})

	if err != nil || len(got) != 1000 || bytes.Count(got, []byte{2}) != 100 || bytes.IndexByte(got, 2) != 300 {
		t.Errorf("%d bytes, %d changed, %v", len(got), bytes.Count(got, []byte{2}), err)
	}
}
