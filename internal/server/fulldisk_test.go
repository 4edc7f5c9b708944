package server

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/diskspace"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
)

func TestAServerWithoutSpaceAnswersReadsAndNamesTheDisk(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 16)
	y := startYard(t, dir, withConfig(func(c *Config) { c.DataDir = dir }))
	c := y.researcher("ada")
	y.submit(c, "run: before")
	awaitReady(t, y)
	empty := smalldisk.Fill(t, dir)

	// It is larger than what is left in the last block of the database's files.
	large := "run: \"true # " + strings.Repeat("x", 100_000) + "\""
	var waiting sync.WaitGroup
	var reply api.SubmitReply
	var err error
	waiting.Go(func() { reply, err = c.Submit(t.Context(), api.SubmitRequest{File: large}, "k") })
	eventually(t, "the loop is stuck", func() bool { return y.loop.Stuck() != "" })

	disk := "no space left on the disk that holds " + dir
	if got := readiness(y); !strings.HasPrefix(got, "503 not ready: ") || !strings.Contains(got, disk) {
		t.Errorf("it says %q", got)
	}

	_, refused := c.Submit(t.Context(), api.SubmitRequest{File: "run: another"}, "")
	wantFault(t, refused, fault.Unavailable, "store_down")

	if !strings.Contains(refused.Error(), disk) {
		t.Errorf("a refused submission does not name the disk: %v", refused)
	}

	if _, _, err := y.srv.Logbook.Append(t.Context(), archive.Log{Run: "j1.1"}, 0, make([]byte, 100_000), false); !diskspace.Full(err) ||
		!strings.Contains(err.Error(), disk) {
		t.Errorf("output: %v", err)
	}

	if err := y.blobs.Put(t.Context(), "files/x", strings.NewReader("content")); !diskspace.Full(err) ||
		!strings.Contains(err.Error(), disk) {
		t.Errorf("a file: %v", err)
	}

	// What needs no space goes on.
	if page, err := c.Jobs(t.Context(), api.JobFilter{}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("the list has %d jobs, %v", len(page.Jobs), err)
	}

	if _, err := c.Nodes(t.Context(), api.Page{}); err != nil {
		t.Errorf("nodes: %v", err)
	}

	if detail, err := c.Job(t.Context(), "j1"); err != nil || detail.State != job.Pending {
		t.Errorf("job: %+v, %v", detail, err)
	}

	metrics := string(y.raw(y.http, http.MethodGet, "/metrics", "", "").body)
	if !strings.Contains(metrics, "\ntrainyard_disk_free_bytes 0\n") {
		t.Errorf("the metrics do not show a full disk:\n%s", metrics)
	}

	// With space it takes up what it was at, and everything that it has acknowledged is there.
	empty()
	waiting.Wait()
	y.must(err)
	awaitReady(t, y)

	if page, err := c.Jobs(t.Context(), api.JobFilter{}); err != nil || len(page.Jobs) != 2 || reply.Jobs[0].ID != "j2" {
		t.Errorf("the list has %d jobs, %v; submitted %+v", len(page.Jobs), err, reply)
	}

	if size, _, err := y.srv.Logbook.Append(t.Context(), archive.Log{Run: "j1.1"}, 0, []byte("hello"), false); size != 5 || err != nil {
		t.Errorf("output: %d bytes, %v", size, err)
	}
}

// With PostgreSQL the store works while the server's own disk is full.
func TestAServerWhoseDataDirectoryIsFullIsNotReady(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 16)
	y := newYard(t, withConfig(func(c *Config) { c.DataDir = dir }))
	awaitReady(t, y)
	empty := smalldisk.Fill(t, dir)
	eventually(t, "it is not ready", func() bool {
		return strings.Contains(readiness(y), "503 not ready: no space left on the disk that holds "+dir)
	})

	y.submit(y.researcher("ada"), "run: accepted all the same")
	empty()
	awaitReady(t, y)
}
