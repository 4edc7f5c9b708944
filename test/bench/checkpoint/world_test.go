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
	"golang.org/x/sys/unix"

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

	yard      *yardtest.Yard
	processes []*yardtest.Process // the server and the agents
	client    *api.Client
	job       id.Job
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
	w.write(t)

	return w
}

func (w *world) file(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("shard-%d.bin", n))
}

// write makes the first checkpoint.
func (w *world) write(t *testing.T) {
	t.Helper()

	if err := os.Mkdir(w.first, 0o700); err != nil {
		t.Fatal(err)
	}

	for n := range w.files {
		w.writeFile(t, w.file(w.first, n), os.O_CREATE|os.O_EXCL, 0, io.LimitReader(noise(n, 1), w.size))
	}
}

// change makes the second checkpoint of a copy of the first: a tenth of each file changes, in one place, as where most
// of the weights are frozen.
func (w *world) change(t *testing.T, dir string) {
	t.Helper()

	for n := range w.files {
		from := w.size * int64(n+1) / (maxFiles + 2)
		w.writeFile(t, w.file(dir, n), 0, from, io.LimitReader(noise(n, 2), w.size/10))
	}
}

// noise is content that repeats nowhere.
func noise(file int, part byte) io.Reader { return rand.NewChaCha8([32]byte{byte(file), part}) }

func (w *world) writeFile(t *testing.T, path string, flag int, at int64, r io.Reader) {
	t.Helper()

	f, err := os.OpenFile(path, os.O_WRONLY|flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	_, err = io.CopyBuffer(io.NewOffsetWriter(f, at), r, make([]byte, 1<<20))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// warm reads the first checkpoint, so that it is in memory as if a program had just written it.
func (w *world) warm(t *testing.T) {
	t.Helper()

	for n := range w.files {
		f, err := os.Open(w.file(w.first, n))
		if err != nil {
			t.Fatal(err)
		}

		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, f, make([]byte, 1<<20))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// forget lets the page cache forget the first checkpoint. A restore reads what the store has in memory, as cp reads
// what a program has just written; both do not fit into the memory of a small machine together.
func (w *world) forget(t *testing.T) {
	t.Helper()

	for n := range w.files {
		f, err := os.Open(w.file(w.first, n))
		if err != nil {
			t.Fatal(err)
		}

		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
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
	w.warm(t)
	f.upload = w.save(t, ready, dir, 1)
	before := stored()

	settle(t)
	w.forget(t)

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

	restore := w.begin(t)
	dir = w.running(t, 2)
	f.restore = restore()
	w.compare(t, dir)

	ready = filepath.Join(y.Folder, "step-2")
	if err := os.Rename(filepath.Join(dir, filepath.Base(w.first)), ready); err != nil { // room for one is enough
		t.Fatal(err)
	}

	w.change(t, ready)
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

	w.processes = []*yardtest.Process{y.Server()}
	for _, name := range []string{"north", "south"} {
		agent, err := y.StartAgent(name, token)
		if err != nil {
			t.Fatal(err)
		}

		w.processes = append(w.processes, agent)

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
// name, and returns what it took until it was in the catalogue.
func (w *world) save(t *testing.T, ready, dir string, number int) cost {
	t.Helper()
	settle(t)

	end := w.begin(t)
	if err := os.Rename(ready, filepath.Join(dir, filepath.Base(ready))); err != nil {
		t.Fatal(err)
	}

	w.await(t, "a stored checkpoint", func() bool {
		list, err := w.client.Checkpoints(t.Context(), w.job, false)
		return err == nil && len(list.Checkpoints) == number && list.Checkpoints[number-1].State == checkpoint.Stored
	})

	return end()
}

// begin starts to measure; the function it returns ends that.
func (w *world) begin(t *testing.T) func() cost {
	t.Helper()
	begun, before := time.Now(), w.processorTime(t)

	return func() cost {
		c := cost{time.Since(begun), w.processorTime(t) - before}
		t.Logf("%.2f s, %.2f s of a processor", c.time.Seconds(), c.processor.Seconds())

		return c
	}
}

// processorTime is how long the server and the agents have used a processor.
func (w *world) processorTime(t *testing.T) time.Duration {
	t.Helper()

	const tick = time.Second / 100 // the unit of the kernel
	var sum time.Duration

	for _, p := range w.processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		if err != nil {
			t.Fatal(err)
		}

		var user, system time.Duration
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
			t.Fatal(err)
		}

		sum += (user + system) * tick
	}

	return sum
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
