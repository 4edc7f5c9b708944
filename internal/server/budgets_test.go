package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/diskspace"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/retention"
	"trainyard/internal/server/content"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// A researcher with a token that may only read had the server search 20 MB of output with (.*x){100}y for a minute.
func TestAnExpensiveSearchIsDoneInParts(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.srv.searches.steps = 1_000_000
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)

	frames := make([]string, 100)
	for i := range frames {
		frames[i] = fmt.Sprintf("o:%s %d\n", strings.Repeat("x", 500), i)
	}

	n.upload(run, 0, 0, output(t, frames...), true)
	n.ends(run, 0, 0)

	f := api.LogFilter{Grep: `(.*x){50} \d*7$`, Page: api.Page{Limit: 500}}
	found, pages, empty := 0, 0, 0

	for ended := false; !ended; pages++ {
		page, err := c.Logs(t.Context(), j, f)
		y.must(err)

		found += len(page.Lines)
		if len(page.Lines) == 0 {
			empty++
		}

		f.Cursor, ended = page.Next, page.Ended
	}

	if found != 10 || pages < 5 || empty == 0 {
		t.Errorf("%d lines in %d pages, %d of them empty", found, pages, empty)
	}

	// Who follows gets all of it too, in one go.
	follow := watch(t, c, j, api.LogFilter{Grep: f.Grep})
	if lines := follow.end(); len(lines) != 10 {
		t.Errorf("%d lines for who follows", len(lines))
	}

	_, err := c.Logs(t.Context(), j, api.LogFilter{Grep: `(.*x){400}y`})
	wantFault(t, err, fault.Invalid, "bad_pattern")

	if !strings.Contains(err.Error(), "too expensive") {
		t.Errorf("it says %v", err)
	}
}

func TestSearchesTakeTurns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)
	n.upload(run, 0, 0, output(t, "o:loss 1\n", "o:other\n"), false)

	var ends []func()
	for range searchesEach {
		end, err := y.srv.searches.mine.Take("ada")
		y.must(err)

		ends = append(ends, end)
	}

	for _, f := range []api.LogFilter{{Grep: "loss"}, {Stream: "stdout"}, {Tail: 1}} {
		_, err := c.Logs(t.Context(), j, f)
		wantFault(t, err, fault.OverLimit, api.CodeTooManySearches)
	}

	// Reading page by page is not a search, and those of others have nothing to do with it.
	if page, err := c.Logs(t.Context(), j, api.LogFilter{}); err != nil || len(page.Lines) != 2 {
		t.Errorf("read without a search: %+v, %v", page, err)
	}

	if page, err := y.admin().Logs(t.Context(), j, api.LogFilter{Grep: "loss"}); err != nil || len(page.Lines) != 1 {
		t.Errorf("a search by someone else: %+v, %v", page, err)
	}

	ends[0]()

	if page, err := c.Logs(t.Context(), j, api.LogFilter{Grep: "loss"}); err != nil || len(page.Lines) != 1 {
		t.Errorf("a search after another has ended: %+v, %v", page, err)
	}

	// Every search gives its turn back.
	if len(y.srv.searches.turns) != searchesAtAll {
		t.Errorf("%d turns are left", len(y.srv.searches.turns))
	}
}

// 200 000 waiting jobs with commands of 250 KB were tens of gigabytes of memory.
func TestTheTextOfUnfinishedJobsIsBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t, withYard(func(c *yardmaster.Config) { c.MaxJobText, c.MaxAllJobText = 1000, 1500 }))
	ada, bob := y.researcher("ada"), y.researcher("bob")
	file := func(n int) api.SubmitRequest {
		return api.SubmitRequest{File: "run: " + strings.Repeat("x", n/2) + "\nenv: {A: " + strings.Repeat("y", n/2-1) + "}"}
	}

	first, err := ada.Submit(t.Context(), file(600), "")
	y.must(err)

	_, err = ada.Submit(t.Context(), file(402), "")
	wantFault(t, err, fault.OverLimit, "too_much_job_text")

	if !strings.Contains(err.Error(), "unfinished jobs of ada would have 1002 B, the limit is 1000 B") {
		t.Errorf("it says %v", err)
	}

	_, err = ada.Submit(t.Context(), file(400), "")
	y.must(err)

	_, err = bob.Submit(t.Context(), file(502), "")
	wantFault(t, err, fault.OverLimit, "too_much_job_text")

	if !strings.Contains(err.Error(), "of all unfinished jobs") {
		t.Errorf("it says %v", err)
	}

	// What has ended does not count.
	_, err = ada.CancelJob(t.Context(), first.Jobs[0].ID)
	y.must(err)

	_, err = bob.Submit(t.Context(), file(502), "")
	y.must(err)
}

func TestTheTextOfJobsCountsAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limit := withYard(func(c *yardmaster.Config) { c.MaxJobText = 1000 })

	t.Run("before", func(t *testing.T) { //nolint:paralleltest // the server is stopped before it starts again
		y := startYard(t, dir, limit)
		y.submit(y.researcher("ada"), "run: "+strings.Repeat("x", 900))
	})

	y := startYard(t, dir, limit)
	_, err := y.researcher("ada").Submit(t.Context(), api.SubmitRequest{File: "run: " + strings.Repeat("x", 101)}, "")
	wantFault(t, err, fault.OverLimit, "too_much_job_text")
}

// open opens a live feed and returns how to leave it.
func (y *yard) open(path, token string) (leave func()) {
	y.t.Helper()
	ctx, cancel := context.WithCancel(y.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, y.url+path, nil)
	y.must(err)
	req.Header.Set("Authorization", "Bearer "+token)

	resp, err := y.http.Do(req)
	y.must(err)

	if resp.StatusCode != http.StatusOK {
		y.t.Fatalf("%s: %s", path, resp.Status)
	}

	return func() {
		cancel()

		_ = resp.Body.Close()
	}
}

func TestLiveFeedsOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.MaxStreams = 2 }))
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	j := y.submit(y.client(token), "run: a")[0].ID
	logs, events := "/api/v1/jobs/"+string(j)+"/logs/follow", "/api/v1/events/follow"
	first, second := y.open(logs, token), y.open(events, token)

	for _, path := range []string{logs, events} {
		got := y.raw(y.http, http.MethodGet, path, token, "")
		if text := says(&got.p); text != "429 too_many_streams: too many live feeds at the same time: ada has 2, the limit is 2" {
			t.Errorf("%s: %s", path, text)
		}
	}

	y.open(events, y.token("bob", tenant.Researcher, tenant.ScopeRead))()
	first()
	second()

	eventually(t, "there is room again", func() bool {
		return y.raw(y.http, http.MethodGet, events, token, "").status == http.StatusOK
	})
}

func TestUploadsAtTheSameTimeAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.MaxUploads = 1 }))
	ada, bob := y.researcher("ada"), y.researcher("bob")
	done, err := y.srv.uploads.Take("ada")
	y.must(err)

	put := func(c *api.Client) error { return c.PutFile(t.Context(), digestOf("x"), "", strings.NewReader("x")) }
	wantFault(t, put(ada), fault.OverLimit, api.CodeTooManyUploads)
	y.must(put(bob))
	done()
	y.must(put(ada))
	y.must(put(ada))
}

// What a user has uploaded is bounded, however many uploads are under way.
func TestUploadedFilesOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.MaxUploaded, c.AllUploaded = 1000, 1500 }))
	ada, bob := y.researcher("ada"), y.researcher("bob")
	put := func(c *api.Client, name string, n int) error {
		text := name + strings.Repeat("x", n-1)
		return c.PutFile(t.Context(), digestOf(text), "", strings.NewReader(text))
	}

	y.must(put(ada, "a", 600))
	err := put(ada, "b", 401)
	wantFault(t, err, fault.OverLimit, content.CodeQuota)

	if !strings.Contains(err.Error(), "the uploaded files of ada have 600B, and the limit is 1000B") {
		t.Errorf("it says %v", err)
	}

	// What is under way counts as it is read; of an upload that fails nothing is left.
	under, err := y.srv.quota.Upload(t.Context(), "ada", strings.NewReader(strings.Repeat("y", 300)), -1)
	y.must(err)
	_, err = io.Copy(io.Discard, under)
	y.must(err)
	wantFault(t, put(ada, "c", 101), fault.OverLimit, content.CodeQuota)

	second, err := y.srv.quota.Upload(t.Context(), "ada", strings.NewReader(strings.Repeat("z", 101)), -1)
	y.must(err)
	_, err = io.Copy(io.Discard, second)
	wantFault(t, err, fault.OverLimit, content.CodeQuota)
	second.End(false)
	under.End(false)
	y.must(put(ada, "d", 400))

	// All users together have less than each of them might.
	y.must(put(bob, "e", 500))
	err = put(bob, "f", 1)
	wantFault(t, err, fault.OverLimit, content.CodeQuota)

	if !strings.Contains(err.Error(), "of all users") {
		t.Errorf("it says %v", err)
	}

	// What is removed makes room.
	y.pruned(retention.Limits{Unused: 24 * time.Hour})
	y.must(put(ada, "g", 1000))
}

// Uploads filled the disk, and after that nothing could be changed any more.
func TestUploadsLeaveRoomForTheDatabase(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 48)
	y := startYard(t, dir, withConfig(func(c *Config) {
		c.DataDir = dir
		c.Reserve = &diskspace.Reserve{Bytes: 24 << 20, Dirs: []string{dir}}
	}))
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)

	var refused error
	for i := 0; refused == nil && i < 100; i++ {
		text := fmt.Sprint(i) + strings.Repeat("x", 900_000)
		refused = c.PutFile(t.Context(), digestOf(text), "", strings.NewReader(text))
	}

	wantFault(t, refused, fault.Unavailable, diskspace.CodeFull)

	if want := "the server accepts no uploads: the disk that holds " + dir; !strings.Contains(refused.Error(), want) {
		t.Errorf("it says %v, want %q", refused, want)
	}

	_, err := n.UploadLog(t.Context(), run, "", 0, 0, output(t, "o:hello\n"), false)
	wantFault(t, err, fault.Unavailable, diskspace.CodeFull)
	_, err = n.Chunks(t.Context(), api.ChunksRequest{
		Run: run, Chunks: []api.CheckpointChunk{{Digest: digestOf("chunk"), Size: 5}},
	})
	wantFault(t, err, fault.Unavailable, diskspace.CodeFull)
	wantFault(t, n.PutChunk(t.Context(), run, digestOf("chunk"), []byte("chunk")), fault.Unavailable, diskspace.CodeFull)

	// All that needs the database alone goes on.
	y.submit(c, "run: another")
	y.token("carol", tenant.Researcher, tenant.ScopeRead)
	n.ends(run, 0, 0)

	if detail, err := c.Job(t.Context(), j); err != nil || detail.State != job.Succeeded {
		t.Errorf("the job is %v, %v", detail.State, err)
	}

	awaitReady(t, y)

	// As the room gets scarcer new jobs are refused too, and what happens to those that are here is still recorded.
	empty := smalldisk.FillTo(t, dir, 8<<20)
	_, err = c.Submit(t.Context(), api.SubmitRequest{File: "run: more"}, "")
	wantFault(t, err, fault.Unavailable, diskspace.CodeFull)

	_, err = c.CancelJob(t.Context(), id.Job("j2"))
	y.must(err)
	empty()
	y.submit(c, "run: more")
}

func TestTheDescriptionOfTheAPIIsMadeOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	for _, path := range []string{"/api/v1/openapi.yaml", "/api/v1/jobfile.schema.json"} {
		first := y.raw(y.http, http.MethodGet, path, "", "")
		tag := first.header.Get("ETag")
		if first.status != http.StatusOK || tag == "" || len(first.body) < 1000 {
			t.Fatalf("%s: %d with %d bytes, tag %q", path, first.status, len(first.body), tag)
		}

		again := y.raw(y.http, http.MethodGet, path, "", "", "If-None-Match: "+tag)
		if again.status != http.StatusNotModified || len(again.body) != 0 {
			t.Errorf("%s: %d with %d bytes for who has it", path, again.status, len(again.body))
		}
	}

	// Each answer is made of the same bytes.
	first, err := y.srv.openAPI()
	y.must(err)

	again, err := y.srv.openAPI()
	y.must(err)

	if &first.text[0] != &again.text[0] {
		t.Error("it is made anew for each answer")
	}
}

func TestStrangersAndNodesAreLimitedToo(t *testing.T) {
	t.Parallel()

	for name, path := range map[string]string{
		"the description":   "/api/v1/openapi.yaml",
		"the schema":        "/api/v1/jobfile.schema.json",
		"metrics":           "/metrics",
		"the front page":    "/",
		"no path":           "/nowhere",
		"a missing token":   "/api/v1/jobs",
		"no certificate":    "/agent/v1/assignments",
		"a file of a node":  "/agent/v1/files/" + digestOf("x"),
		"server's settings": "/api/v1/info",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, withConfig(func(c *Config) { c.Rate, c.Burst = 0.001, 3 }))

			for range 3 {
				if got := y.raw(y.http, http.MethodGet, path, "", ""); got.status == http.StatusTooManyRequests {
					t.Fatal("the burst is not let through")
				}
			}

			if got := y.raw(y.http, http.MethodGet, path, "", ""); got.p.Code != "too_often" {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}

	y := newYard(t, withConfig(func(c *Config) { c.Rate, c.Burst = 0.001, 3 }))
	good := y.token("ada", tenant.Researcher, tenant.ScopeRead)

	for range 4 {
		y.raw(y.http, http.MethodGet, "/api/v1/whoami", "tya_guess_ed", "")
	}

	if got := y.raw(y.http, http.MethodGet, "/api/v1/whoami", "tya_guess_ed", ""); got.p.Code != "too_often" {
		t.Errorf("who guesses tokens: %s", got.body)
	}

	if got := y.raw(y.http, http.MethodGet, "/api/v1/whoami", good, ""); got.status != http.StatusOK {
		t.Errorf("who has a token at the same address: %d", got.status)
	}
}

func TestANodeThatAsksTooOftenIsToldSo(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.Rate, c.Burst = 0.001, 3 }))
	busy := y.join("n1")

	for range 3 {
		busy.tell()
	}

	_, err := busy.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b"})
	wantFault(t, err, fault.OverLimit, "too_often")
}

func TestMetricsAreServedElsewhere(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.HideMetrics = true }))

	if got := y.raw(y.http, http.MethodGet, "/metrics", "", ""); got.status != http.StatusNotFound {
		t.Errorf("%d", got.status)
	}
}

// Eight reports at once took all connections to the store, and submissions took seconds.
func TestReportsTakeTurns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")

	var ends []func()
	for range reportsEach {
		end, err := y.srv.reports.mine.Take("ada")
		y.must(err)

		ends = append(ends, end)
	}

	ask := func(c *api.Client) map[string]error {
		_, usage := c.Usage(t.Context(), api.UsageQuery{})
		_, report := c.UsageReport(t.Context(), api.UsageQuery{})
		_, savings := c.Savings(t.Context(), api.UsageQuery{})

		return map[string]error{"usage": usage, "report": report, "savings": savings}
	}

	for name, err := range ask(c) {
		if err == nil {
			t.Errorf("%s: one too many was answered", name)
			continue
		}

		wantFault(t, err, fault.OverLimit, api.CodeTooManyReports)
	}

	for name, err := range ask(y.admin()) {
		if err != nil {
			t.Errorf("%s of someone else: %v", name, err)
		}
	}

	ends[0]()

	for name, err := range ask(c) {
		if err != nil {
			t.Errorf("%s after another has ended: %v", name, err)
		}
	}

	if len(y.srv.reports.turns) != reportsAtAll { // every report gives its turn back
		t.Errorf("%d turns are left", len(y.srv.reports.turns))
	}
}
