package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"trainyard/internal/blob/blobtest"
	"trainyard/internal/cloud/cloudtest"
	"trainyard/internal/job"
	"trainyard/test/yardtest"
)

// bucketYard is a yard whose blobs are in a bucket, behind a proxy that can take it away.
type bucketYard struct {
	*yard
	server *blobtest.Server
	proxy  *cloudtest.Proxy
	bucket string
}

func newBucketYard(t *testing.T) *bucketYard {
	t.Helper()
	y := &bucketYard{server: blobtest.StartServer(t, "versitygw")}
	t.Cleanup(func() {
		if err := y.server.Stop(); err != nil {
			t.Error(err)
		}
	})

	y.proxy, y.bucket = cloudtest.NewProxy(t, y.server.URL), y.server.NewBucket(t)
	y.yard = openYard(t, &yardtest.Yard{
		Flags: []string{"--blobs", "s3://" + y.bucket + "/lab", "--s3-endpoint", y.proxy.URL, "--s3-path-style", "yes"},
		Env: []string{
			"AWS_ACCESS_KEY_ID=" + blobtest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + blobtest.SecretKey,
			"AWS_REGION=" + blobtest.Region,
		},
	})

	return y
}

// keys lists what the bucket has below a prefix.
func (y *bucketYard) keys(t *testing.T, prefix string) []string {
	t.Helper()
	page, err := y.server.Client().ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &y.bucket, Prefix: &prefix})
	if err != nil {
		t.Fatal(err)
	}

	var keys []string
	for _, o := range page.Contents {
		keys = append(keys, *o.Key)
	}

	return keys
}

func TestAYardKeepsItsBlobsInABucket(t *testing.T) {
	t.Parallel()
	y := newBucketYard(t)
	y.join(t, []string{"north"})

	folder := filepath.Join(y.Home, "work")
	for name, text := range map[string]string{
		"job.yaml": "workdir: .\nrun: cat text.txt\nresources: {cpus: 0.1}\n", "text.txt": "shipped\n",
	} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	submit := func() string {
		t.Helper()
		return strings.TrimSpace(y.succeed(t, "submit", "-y", "-q", filepath.Join(folder, "job.yaml")).out)
	}

	first := submit()
	y.awaitState(t, first, job.Succeeded)
	y.await(t, "its output is archived", func() bool { return len(y.keys(t, "lab/logs/")) == 1 })

	if n := len(y.keys(t, "lab/files/")); n != 3 { // two files and the list of them
		t.Errorf("the bucket has %d files, want 3", n)
	}

	if _, err := os.Stat(filepath.Join(y.data(), "blobs")); !os.IsNotExist(err) {
		t.Errorf("there is a folder for blobs (%v)", err)
	}

	// The bucket is away: what runs goes on and can be followed, and what needs it says so.
	gate := filepath.Join(y.Folder, "gate")
	running := y.submit(t, script("echo begin", "while ! test -e "+gate+"; do sleep 0.05; done", "echo end"))
	y.awaitOutput(t, running, "begin")
	back := y.proxy.While(cloudtest.Any, cloudtest.Cut)

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	y.awaitState(t, running, job.Succeeded)
	y.awaitOutput(t, running, "end")

	if r := y.run(t, "logs", first); r.code == 0 || !strings.Contains(r.err, "blob store") {
		t.Errorf("logs of an archived job while the bucket is away: %s", r)
	}

	back()
	y.await(t, "the output of the second job is archived", func() bool { return len(y.keys(t, "lab/logs/")) == 2 })

	// A server that is started again finds everything there.
	y.stop(t)
	y.start(t)

	for id, want := range map[string]string{first: "shipped\n", running: "begin\nend\n", submit(): "shipped\n"} {
		y.awaitState(t, id, job.Succeeded)
		y.awaitOutput(t, id, want)

		if out := y.succeed(t, "logs", id).out; out != want {
			t.Errorf("job %s printed %q, want %q", id, out, want)
		}
	}

	if n := len(y.keys(t, "lab/files/")); n != 3 {
		t.Errorf("the bucket has %d files after the same was submitted again, want 3", n)
	}
}

func TestABucketThatCannotBeUsedIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	y := newBucketYard(t)
	y.stop(t)

	// The same server with a bucket that is not there.
	for i, flag := range y.Flags {
		y.Flags[i] = strings.ReplaceAll(flag, y.bucket, "another")
	}

	if err := y.StartServer(); err != nil {
		t.Fatal(err)
	}

	if code, err := y.Server().Wait(patience); err != nil || code == 0 {
		t.Fatalf("the server ended with code %d (%v), want it to refuse", code, err)
	}

	if log := yardtest.Tail(y.ServerLog(), 3); !strings.Contains(log, "cannot use the bucket another") ||
		!strings.Contains(log, "--blobs") {
		t.Errorf("the log ends with %q", log)
	}
}
