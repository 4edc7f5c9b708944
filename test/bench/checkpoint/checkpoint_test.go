// Package checkpoint_test measures how long it takes to save a checkpoint and to bring it back, in a real yard with two
// nodes on this machine, beside cp and a plain upload to S3 of the same files.
//
// checkpoint_test.go has the measurement, world_test.go the yard and the files. make bench-checkpoint runs it with
// 10 GB; without -size it is a test with little data that nothing is lost on the way and that only what changed is
// uploaded again.
package checkpoint_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"trainyard/internal/blob/blobtest"
	"trainyard/internal/blob/s3"
	"trainyard/internal/job"
	"trainyard/test/bench/report"
	"trainyard/test/yardtest"
)

var (
	sizeFlag = flag.String("size", "", "size of the checkpoint, 10GB for the measurement; 256MB if left out")
	outFlag  = flag.String("out", "", "write the figures to `file`")
)

// maxSecondPct is how much of a checkpoint may be uploaded again if a tenth of it has changed.
const maxSecondPct = 15

// figures are what one store was measured to do.
type figures struct {
	upload, restore, second cost
	secondBytes             int64
}

// cost is how long something took, and how long it used a processor: that of cp, or of the server and the agents.
type cost struct{ time, processor time.Duration }

func TestCheckpoints(t *testing.T) {
	size, err := job.ParseBytes(cmp.Or(*sizeFlag, "256MB"))
	if err != nil {
		t.Fatal(err)
	}

	origin, err := report.Begin(t.Context(), *outFlag, "checkpoint of "+size.Short(), time.Now())
	if err != nil {
		t.Fatal(err)
	}

	w := newWorld(t, int64(size))
	load := loadAverage(t)
	plain, durable := w.copyFiles(t)

	folder := w.measure(t, &yardtest.Yard{}, func() int64 { return below(t, w.serverBlobs()) })

	// The disk is not equally fast all the time.
	plainAfter, durableAfter := w.copyFiles(t)
	plain, durable = mean(plain, plainAfter), mean(durable, durableAfter)

	put := w.putPlainly(t)

	server := blobtest.StartServer(t, "versitygw")
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()

	bucket := server.NewBucket(t)
	object := w.measure(t, &yardtest.Yard{
		Flags: []string{"--blobs", s3.Scheme + bucket, "--s3-endpoint", server.URL, "--s3-path-style", "yes"},
		Env: []string{
			"AWS_ACCESS_KEY_ID=" + blobtest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + blobtest.SecretKey,
			"AWS_REGION=" + blobtest.Region,
		},
	}, func() int64 { return inBucket(t, server, bucket) })

	load = max(load, loadAverage(t))
	share := func(fast, slow cost) float64 { return 100 * fast.time.Seconds() / slow.time.Seconds() }
	bytesPct := func(f figures) float64 { return 100 * float64(f.secondBytes) / float64(size) }

	for name, pct := range map[string]float64{"a folder": bytesPct(folder), "S3": bytesPct(object)} {
		if pct > maxSecondPct || pct <= 0 {
			t.Errorf("%s: %.1f %% of the second checkpoint were uploaded, in which a tenth has changed", name, pct)
		}
	}

	t.Log("\n" + table(int64(size), []row{
		{"cp, in memory", plain},
		{"cp, on disk", durable},
		{"save, server's folder", folder.upload},
		{"restore, server's folder", folder.restore},
		{"save with a tenth changed", folder.second},
		{"plain upload, S3", put},
		{"save, S3", object.upload},
		{"restore, S3", object.restore},
		{"save with a tenth changed, S3", object.second},
	}))

	r := report.Report{Origin: origin, Figures: map[string]float64{
		"size_bytes":             float64(size),
		"load":                   load,
		"cp_s":                   durable.time.Seconds(),
		"cp_cpu_s":               durable.processor.Seconds(),
		"cp_in_memory_s":         plain.time.Seconds(),
		"upload_s":               folder.upload.time.Seconds(),
		"upload_cpu_s":           folder.upload.processor.Seconds(),
		"restore_s":              folder.restore.time.Seconds(),
		"restore_cpu_s":          folder.restore.processor.Seconds(),
		"second_s":               folder.second.time.Seconds(),
		"upload_vs_cp_pct":       share(durable, folder.upload),
		"restore_vs_cp_pct":      share(durable, folder.restore),
		"second_bytes_pct":       bytesPct(folder),
		"s3_plain_s":             put.time.Seconds(),
		"s3_upload_s":            object.upload.time.Seconds(),
		"s3_restore_s":           object.restore.time.Seconds(),
		"s3_upload_vs_plain_pct": share(put, object.upload),
		"s3_second_bytes_pct":    bytesPct(object),
	}}

	for _, name := range []string{"upload_vs_cp_pct", "restore_vs_cp_pct", "second_bytes_pct", "s3_upload_vs_plain_pct"} {
		t.Logf("%s: %.1f", name, r.Figures[name])
	}

	if *outFlag != "" && !t.Failed() {
		if err := r.Save(*outFlag); err != nil {
			t.Fatal(err)
		}
	}
}

// row is one line of the table.
type row struct {
	what string
	cost cost
}

// table shows how long each took.
func table(size int64, rows []row) string {
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "WHAT\tSECONDS\tMB/S\tPROCESSOR SECONDS") // a strings.Builder does not fail

	for _, r := range rows {
		_, _ = fmt.Fprintf(tw, "%s\t%.2f\t%.0f\t%.2f\n", r.what, r.cost.time.Seconds(),
			float64(size)/1e6/r.cost.time.Seconds(), r.cost.processor.Seconds())
	}

	_ = tw.Flush()

	return text.String()
}

func mean(a, b cost) cost { return cost{(a.time + b.time) / 2, (a.processor + b.processor) / 2} }

// loadAverage is how many processes of the machine wanted a processor or the disk during the last minute.
func loadAverage(t *testing.T) float64 {
	t.Helper()

	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}

	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		t.Fatal(err)
	}

	return load
}

// settle writes to disk what others have left in memory, so that it does not count for who comes next.
func settle(t *testing.T) {
	t.Helper()
	run(t, "sync")
}

// run runs a program and returns how long it used a processor.
func run(t *testing.T, args ...string) time.Duration {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}

	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// copyFiles copies the checkpoint with cp and returns how long that took, and how long until all of it was on disk, as
// a checkpoint that is in the catalogue is.
func (w *world) copyFiles(t *testing.T) (plain, durable cost) {
	t.Helper()
	target := filepath.Join(w.folder, "copy")
	w.warm(t)
	settle(t)

	begun := time.Now()
	plain.processor = run(t, "cp", "--reflink=never", "-r", w.first, target)
	plain.time = time.Since(begun)

	files, err := filepath.Glob(filepath.Join(target, "*"))
	if err != nil {
		t.Fatal(err)
	}

	durable.processor = plain.processor + run(t, append([]string{"sync"}, files...)...)
	durable.time = time.Since(begun)
	t.Logf("cp: %.2f s, with sync %.2f s", plain.time.Seconds(), durable.time.Seconds())

	if err := os.RemoveAll(target); err != nil {
		t.Fatal(err)
	}

	return plain, durable
}

// putPlainly uploads the files of the checkpoint to a bucket, as one object each. The server is one of its own, which
// goes with all it has: on a busy machine versitygw has files again some time after they were deleted.
func (w *world) putPlainly(t *testing.T) cost {
	t.Helper()

	server := blobtest.StartServer(t, "versitygw")
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()

	store, err := s3.New(s3.Config{
		Bucket: server.NewBucket(t), Endpoint: server.URL, PathStyle: true, Region: blobtest.Region,
		Credentials: credentials.NewStaticCredentialsProvider(blobtest.AccessKey, blobtest.SecretKey, ""),
	})
	if err != nil {
		t.Fatal(err)
	}

	w.warm(t)
	settle(t)

	var before, after syscall.Rusage
	begun, err := time.Now(), syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	if err != nil {
		t.Fatal(err)
	}

	var uploads sync.WaitGroup
	for n := range w.files {
		uploads.Go(func() {
			if err := putFile(t.Context(), store, w.file(w.first, n)); err != nil {
				t.Error(err)
			}
		})
	}

	uploads.Wait()

	took := cost{time: time.Since(begun)}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}

	t.Logf("plain upload: %.2f s", took.time.Seconds())
	took.processor = time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())

	return took
}

func putFile(ctx context.Context, store *s3.Store, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}

	defer func() { _ = f.Close() }()

	return store.Put(ctx, filepath.Base(path), f)
}
