package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/retention"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

// outputManifest is a manifest of files of one chunk each.
func outputManifest(files ...api.CheckpointFile) string {
	for i := range files {
		f := &files[i]
		if f.Link == "" {
			f.Chunks = []api.CheckpointChunk{{Digest: digestOf(f.Path), Size: int64(len(f.Path))}}
			f.Size = int64(len(f.Path))
		}
	}

	text, err := json.Marshal(api.CheckpointManifest{Files: files})
	if err != nil {
		panic(err)
	}

	return string(text)
}

// leaves uploads output files whose content is their path, and enters them.
func (n *node) leaves(run id.Run, uid id.UID, names ...string) error {
	n.y.t.Helper()

	var files []api.CheckpointFile
	for _, name := range names {
		n.y.must(n.PutChunk(n.y.t.Context(), run, digestOf(name), []byte(name)))
		files = append(files, api.CheckpointFile{Path: name, Mode: 0o644})
	}

	return n.enters(run, uid, outputManifest(files...))
}

func (n *node) enters(run id.Run, uid id.UID, manifest string) error {
	n.y.t.Helper()
	n.y.must(n.PutChunk(n.y.t.Context(), run, digestOf(manifest), []byte(manifest)))

	return n.AddOutputs(n.y.t.Context(), api.NewOutputs{
		Run: run, UID: uid, Manifest: digestOf(manifest), Notes: []string{"x: not found"},
	})
}

// pathsOf returns the names of the output files of rank 0 of a run, and reads each.
func pathsOf(t *testing.T, c *api.Client, run id.Run) []string {
	t.Helper()

	files, err := c.OutputFiles(t.Context(), run, 0)
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, f := range files.Files {
		names = append(names, f.Path)

		body, err := c.OutputChunk(t.Context(), run, 0, f.Chunks[0].Digest)
		if err != nil {
			t.Fatal(err)
		}

		text, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || string(text) != f.Path {
			t.Errorf("%s has the content %q (%v)", f.Path, text, err)
		}
	}

	return names
}

func TestOutputFilesAreListedAndFetched(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()

	j := y.submit(ada, "run: x\noutputs: [a, \"runs/**\"]")[0].ID
	run := id.NewRun(j, 1)
	launch := n.assigned(run).Launch

	if diff := cmp.Diff([]string{"a", "runs/**"}, launch.Outputs); diff != "" {
		t.Errorf("the launch has (-want +got):\n%s", diff)
	}

	// The chunks must be there first.
	y.must(n.AddOutputs(t.Context(), api.NewOutputs{Run: run, UID: launch.UID, Bytes: 5}))
	wantFault(t, n.enters(run, launch.UID, outputManifest(api.CheckpointFile{Path: "a"})), fault.Conflict, "chunk_missing")
	y.must(n.leaves(run, launch.UID, "a", "b"))

	if diff := cmp.Diff([]string{"a", "b"}, pathsOf(t, ada, run)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	// What is entered later is added to it, and replaces files of the same path.
	y.must(n.leaves(run, launch.UID, "b", "c/d"))

	if diff := cmp.Diff([]string{"a", "b", "c/d"}, pathsOf(t, ada, run)); diff != "" {
		t.Errorf("files after more were entered (-want +got):\n%s", diff)
	}

	want := []api.OutputSet{{Run: run, Node: "n", Files: 3, Bytes: 5, Notes: []string{"x: not found"}}}
	list, err := ada.Outputs(t.Context(), j)
	y.must(err)

	detail, err := ada.Job(t.Context(), j)
	y.must(err)

	for what, got := range map[string][]api.OutputSet{"the list": list.Outputs, "the job": detail.Outputs} {
		for i := range got {
			got[i].Kept = time.Time{}
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestAnOutputFileIsDownloadedAsAWhole(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()

	j := y.submit(ada, "run: x\noutputs: [runs]")[0].ID
	run := id.NewRun(j, 1)
	launch := n.assigned(run).Launch

	const name = "runs/größe \"1\".html"
	file := api.CheckpointFile{Path: name, Mode: 0o644}

	for _, piece := range []string{"one, ", "two"} {
		y.must(n.PutChunk(t.Context(), run, digestOf(piece), []byte(piece)))
		file.Chunks = append(file.Chunks, api.CheckpointChunk{Digest: digestOf(piece), Size: int64(len(piece))})
		file.Size += int64(len(piece))
	}

	text, err := json.Marshal(api.CheckpointManifest{Files: []api.CheckpointFile{file}})
	y.must(err)
	y.must(n.enters(run, launch.UID, string(text)))

	get := func(user id.User, path string) reply {
		token := y.token(user, tenant.Researcher, tenant.ScopeRead)

		return y.raw(y.http, http.MethodGet, fmt.Sprintf("/api/v1/jobs/%s/outputs/%s/0/file?path=%s", j, run,
			url.QueryEscape(path)), token, "")
	}

	got := get("ada", name)
	if got.status != http.StatusOK || string(got.body) != "one, two" {
		t.Errorf("the file is %q (%d)", got.body, got.status)
	}

	// A browser must not show it as a page of the server.
	kind, params, err := mime.ParseMediaType(got.header.Get("Content-Disposition"))
	if err != nil || kind != "attachment" || params["filename"] != "größe \"1\".html" {
		t.Errorf("it is sent as %s %v (%v)", kind, params, err)
	}

	if got := get("ada", "runs"); got.p.Code != "file_not_found" {
		t.Errorf("a folder: %+v", got.p)
	}
	if got := get("bob", name); got.p.Code != "job_not_found" {
		t.Errorf("another user: %+v", got.p)
	}
}

func TestOutputFilesBelongToTheirJob(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	n, other := y.join("n"), y.join("other")
	n.listen()
	j, run := n.started(ada)
	uid := n.assigned(run).Launch.UID

	wantFault(t, other.AddOutputs(t.Context(), api.NewOutputs{Run: run, UID: uid}), fault.Denied, "not_your_run")
	wantFault(t, n.AddOutputs(t.Context(), api.NewOutputs{Run: run, UID: "other"}), fault.Conflict, api.CodeStaleEpoch)
	wantFault(t, n.AddOutputs(t.Context(), api.NewOutputs{Run: run, UID: uid, Rank: 1}), fault.Denied, "not_your_run")

	// No manifest makes a link that leads out of the folder of whoever fetches it.
	for _, bad := range []api.CheckpointFile{
		{Path: "l", Link: "/etc/passwd"}, {Path: "l", Link: "../x"}, {Path: "a/l", Link: "../../x"}, {Path: "../l", Link: "x"},
	} {
		wantFault(t, n.enters(run, uid, outputManifest(bad)), fault.Invalid, "bad_manifest")
	}

	_, err := ada.OutputFiles(t.Context(), run, 0)
	wantFault(t, err, fault.NotFound, "outputs_not_found")
	y.must(n.leaves(run, uid, "a"))

	// A chunk of the yard is nothing to whoever knows its digest.
	secret := "of a checkpoint"
	y.must(y.blobs.Put(t.Context(), httpapi.ChunkBlob(digestOf(secret)), strings.NewReader(secret)))
	_, err = ada.OutputChunk(t.Context(), run, 0, digestOf(secret))
	wantFault(t, err, fault.NotFound, "chunk_not_found")

	_, err = bob.Outputs(t.Context(), j)
	wantFault(t, err, fault.NotFound, "job_not_found")
	_, err = bob.OutputFiles(t.Context(), run, 0)
	wantFault(t, err, fault.NotFound, "job_not_found")
	_, err = bob.OutputChunk(t.Context(), run, 0, digestOf("a"))
	wantFault(t, err, fault.NotFound, "job_not_found")

	// Nor does a job of one's own open the run of another.
	mine := y.submit(bob, "run: x")[0].ID
	_, err = bob.OutputChunk(t.Context(), id.Run(fmt.Sprintf("%s.1", mine)), 0, digestOf("a"))
	wantFault(t, err, fault.NotFound, "outputs_not_found")
	_, err = bob.AskOutputs(t.Context(), mine, api.AskOutputs{Run: run, Patterns: []string{"a"}})
	wantFault(t, err, fault.NotFound, "run_not_found")

	token := y.token("bob", tenant.Researcher, tenant.ScopeSubmit)
	for _, path := range []string{"", "/chunks/" + digestOf("a")} {
		got := y.raw(y.http, http.MethodGet, fmt.Sprintf("/api/v1/jobs/%s/outputs/%s/0%s", mine, run, path), token, "")
		if got.status != http.StatusNotFound || got.p.Code != "run_not_found" {
			t.Errorf("a run of another job, %q: %d %s", path, got.status, got.body)
		}
	}
}

func TestOutputFilesAreKeptAsLongAsTheyShouldBe(t *testing.T) {
	t.Parallel()
	limits := retention.Limits{Unused: 24 * time.Hour, Files: 120 * time.Hour, UserFiles: 20}
	y := newYard(t, withConfig(func(c *Config) { c.Limits = limits }))
	ada := y.researcher("ada")
	n := y.join("n")
	n.listen()

	// left is a job that has ended and left a file.
	left := func(name string) (id.Job, id.Run) {
		j, run := n.started(ada)
		uid := n.assigned(run).Launch.UID
		y.must(n.leaves(run, uid, name))

		wantFault(t, n.leaves(run, uid, strings.Repeat("x", 21)), fault.Conflict, "output_files_quota")
		err := n.AddOutputs(t.Context(), api.NewOutputs{Run: run, UID: uid, Bytes: 21})
		wantFault(t, err, fault.Conflict, "output_files_quota")

		n.ends(run, 0, 0)

		return j, run
	}

	j, run := left("first-file")
	y.clock.advance(time.Minute)
	left("second-file!")

	// Together they are more than a user may have: those of the job that ended first go.
	y.pruned(limits)
	y.wantBlobs(true, httpapi.ChunkBlob(digestOf("second-file!")))
	y.wantBlobs(false, httpapi.ChunkBlob(digestOf("first-file")))

	ada = y.researcher("ada")
	list, err := ada.Outputs(t.Context(), j)
	y.must(err)

	if why := list.Outputs[0].Removed; !strings.Contains(why, "the output files of ended jobs of ada take more than") {
		t.Errorf("removed because %q", why)
	}

	_, err = ada.OutputFiles(t.Context(), run, 0)
	wantFault(t, err, fault.NotFound, "outputs_removed")

	y.pruned(limits)
	y.wantBlobs(true, httpapi.ChunkBlob(digestOf("second-file!")))
	y.pruned(limits)
	y.wantBlobs(false, httpapi.ChunkBlob(digestOf("second-file!")))
}

// answers returns the request of a person for files, as the node gets it.
func (n *node) answers(list bool) api.OutputsRequest {
	n.y.t.Helper()
	got := n.await(func(a api.Assignments) bool {
		return slices.ContainsFunc(a.Outputs, func(q api.OutputsRequest) bool { return q.List == list })
	})

	return got.Outputs[slices.IndexFunc(got.Outputs, func(q api.OutputsRequest) bool { return q.List == list })]
}

// Agents dial out only: what a person wants goes down with the assignments, also if these have not changed.
func TestANodeIsAskedForFiles(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	n := y.join("n")
	n.listen()
	j, run := n.started(ada)
	uid := n.assigned(run).Launch.UID

	type result struct {
		reply api.AskedOutputs
		err   error
	}

	ask := func(in api.AskOutputs) <-chan result {
		done := make(chan result, 1)

		go func() {
			reply, err := ada.AskOutputs(t.Context(), j, in)
			done <- result{reply, err}
		}()

		return done
	}

	asked := ask(api.AskOutputs{Patterns: []string{"a", "b/**"}, List: true})
	q := n.answers(true)

	if diff := cmp.Diff(api.OutputsRequest{ID: q.ID, Run: run, Patterns: []string{"a", "b/**"}, List: true}, q); diff != "" {
		t.Errorf("the node was asked (-want +got):\n%s", diff)
	}

	y.must(n.AddOutputs(t.Context(), api.NewOutputs{
		Run: run, UID: uid, Request: q.ID, Found: []api.OutputFile{{Path: "a", Size: 5}}, Notes: []string{"b/**: not found"},
	}))

	got := <-asked
	y.must(got.err)
	want := api.AskedOutputs{
		Done: true, Problems: []string{"rank 0 on node n: b/**: not found"},
		Found: []api.FoundFile{{Run: run, OutputFile: api.OutputFile{Path: "a", Size: 5}}},
	}
	if diff := cmp.Diff(want, got.reply); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}

	// Files that are kept are the answer; that there is room for them is not.
	y.must(n.leaves(run, uid, "named"))

	asked = ask(api.AskOutputs{Patterns: []string{"a"}})
	q = n.answers(false)
	y.must(n.AddOutputs(t.Context(), api.NewOutputs{Run: run, UID: uid, Request: q.ID, Bytes: 1}))
	y.must(n.PutChunk(t.Context(), run, digestOf("a"), []byte("a")))

	manifest := outputManifest(api.CheckpointFile{Path: "a"})
	y.must(n.PutChunk(t.Context(), run, digestOf(manifest), []byte(manifest)))
	y.must(n.AddOutputs(t.Context(), api.NewOutputs{
		Run: run, UID: uid, Request: q.ID, Manifest: digestOf(manifest), Notes: []string{"l left out"},
	}))

	got = <-asked
	y.must(got.err)

	if diff := cmp.Diff(api.AskedOutputs{Done: true, Problems: []string{"rank 0 on node n: l left out"}}, got.reply); diff != "" {
		t.Errorf("asked for files (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]string{"a", "named"}, pathsOf(t, ada, run)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	// What was left out for one request is not said of the output files from then on.
	kept, err := ada.Outputs(t.Context(), j)
	y.must(err)

	if diff := cmp.Diff([]string{"x: not found"}, kept.Outputs[0].Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}

	_, err = bob.AskOutputs(t.Context(), j, api.AskOutputs{Patterns: []string{"a"}})
	wantFault(t, err, fault.NotFound, "job_not_found")
	_, err = ada.AskOutputs(t.Context(), j, api.AskOutputs{Patterns: []string{"../a"}})
	wantFault(t, err, fault.Invalid, "bad_pattern")
	_, err = ada.AskOutputs(t.Context(), j, api.AskOutputs{Patterns: []string{"a"}, Rank: new(1)})
	wantFault(t, err, fault.NotFound, "rank_not_found")

	// An agent of an earlier version does not know requests.
	_, err = n.Report(t.Context(), api.Report{Capability: 11, Boot: "b", Seq: 99})
	y.must(err)

	late := <-ask(api.AskOutputs{Patterns: []string{"a"}})
	y.must(late.err)

	if len(late.reply.Problems) != 1 || !strings.Contains(late.reply.Problems[0], "earlier version") {
		t.Errorf("%+v", late.reply)
	}
}
