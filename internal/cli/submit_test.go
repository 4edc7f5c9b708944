package cli

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/jobfile"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// depot is a yard that takes submissions and files.
type depot struct {
	*yard
	files  map[string][]byte
	keys   []string
	before int // submissions that are answered with 503
}

func newDepot(t *testing.T) *depot {
	t.Helper()
	d := &depot{yard: newYard(t), files: map[string][]byte{}}
	var mu sync.Mutex
	d.mux.HandleFunc("POST /api/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()

		var in api.SubmitRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Errorf("submission: %v", err)
		}

		if in.DryRun {
			reply(w, http.StatusOK, api.SubmitReply{Plan: []api.PlannedJob{
				{Name: "train", Resources: "1 CPU", Fits: []id.Node{"box1", "box2"}, FitCount: 2, Why: &api.Why{
					Blocker: "none", Start: new(time.Unix(0, 0)), Sentence: "starts on box1 now; needs 2 GB of memory: j1 like it ran out there",
				}},
				{Resources: "8× H100", Why: &api.Why{Blocker: "no_fit", Sentence: "No node has 8 H100."}},
			}})

			return
		}

		d.keys = append(d.keys, r.Header.Get("Idempotency-Key"))
		if d.before > 0 {
			d.before--
			reply(w, http.StatusServiceUnavailable, api.Problem{Detail: "the store is busy", Kind: "unavailable", Code: "busy"})
			return
		}

		reply(w, http.StatusCreated, api.SubmitReply{Notes: []string{"budget is not acted on yet"}, Jobs: []api.Job{
			{ID: "j1", Name: "train", State: job.Pending, Status: job.StatusPending, Reason: "queued"},
		}})
	})

	d.mux.HandleFunc("POST /api/v1/files/missing", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()

		var in api.MissingRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Errorf("missing: %v", err)
		}

		out := api.MissingReply{Digests: []string{}}
		for _, digest := range in.Digests {
			if _, ok := d.files[digest]; !ok {
				out.Digests = append(out.Digests, digest)
			}
		}

		reply(w, http.StatusOK, out)
	})

	d.mux.HandleFunc("PUT /api/v1/files/{digest}", func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)

		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(body)
			if err != nil {
				t.Errorf("upload: %v", err)
				return
			}

			body = unpacked
		}

		content, err := io.ReadAll(body)
		sum := sha256.Sum256(content)
		if digest := r.PathValue("digest"); err != nil || hex.EncodeToString(sum[:]) != digest {
			t.Errorf("upload of %s: %d bytes of another digest (%v)", digest, len(content), err)
		}

		mu.Lock()
		defer mu.Unlock()

		d.files[r.PathValue("digest")] = content
		w.WriteHeader(http.StatusNoContent)
	})

	return d
}

func (d *depot) request(t *testing.T) api.SubmitRequest {
	t.Helper()
	body, _ := d.sent("POST /api/v1/jobs")

	var in api.SubmitRequest
	if err := json.Unmarshal(body, &in); err != nil {
		t.Fatal(err)
	}

	return in
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}

	return path
}

func TestSubmitShipsTheWorkdirOnceAndHandsTheFileIn(t *testing.T) {
	t.Parallel()
	d, p, dir := newDepot(t), newPerson(t), t.TempDir()
	p.at(t, d.yard)
	p.vars["SEED"] = "7"
	text := "name: train # a comment\nworkdir: code\nrun: python train.py\nenv: {SEED: null}\n"
	path := write(t, dir, "job.yaml", text)
	write(t, dir, "code/train.py", "print('hello')\n")
	write(t, dir, "code/data/big.txt", strings.Repeat("all work and no play\n", 1000))

	if code := p.types(t.Context(), "submit", path, "-q"); code != exit.OK || p.stdout.String() != "j1\n" {
		t.Fatalf("exit code %d: %q %s", code, p.stdout, p.stderr)
	}

	in := d.request(t)
	if in.File != text || in.Env["SEED"] != "7" || in.DryRun {
		t.Errorf("sent %+v", in)
	}

	var manifest api.Manifest
	if err := json.Unmarshal(d.files[in.Workdir], &manifest); err != nil {
		t.Fatalf("the manifest %s is not there: %v", in.Workdir, err)
	}

	for _, f := range manifest.Files {
		if want, err := os.ReadFile(filepath.Join(dir, "code", f.Path)); err != nil || !bytes.Equal(want, d.files[f.Digest]) {
			t.Errorf("%s was not shipped as it is (%v)", f.Path, err)
		}
	}

	puts := func() (list []string) {
		for _, c := range d.called() {
			if strings.HasPrefix(c, "PUT ") {
				list = append(list, c)
			}
		}

		return list
	}

	if got := puts(); len(got) != 3 || !strings.HasSuffix(got[2], in.Workdir) {
		t.Errorf("uploads %v, want two files and then the manifest", got)
	}

	write(t, dir, "code/train.py", "print('changed')\n")

	if code := p.types(t.Context(), "submit", path, "-q"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	if got := puts(); len(got) != 5 {
		t.Errorf("uploads %v, want one more file and one more manifest", got)
	}

	if len(d.keys) != 2 || d.keys[0] == d.keys[1] {
		t.Errorf("two submissions have the keys %v", d.keys)
	}

	if !strings.Contains(p.stderr.String(), "note: budget is not acted on yet") {
		t.Errorf("the note is lost: %s", p.stderr)
	}
}

func TestSubmitIsRepeatedUnderTheSameKey(t *testing.T) {
	t.Parallel()
	d, p := newDepot(t), newPerson(t)
	p.at(t, d.yard)
	d.before = 1

	path := write(t, t.TempDir(), "job.yaml", "run: hostname\n")
	if code := p.types(t.Context(), "submit", path, "-d"); code != exit.OK || p.stdout.String() != "Submitted j1 train\n" {
		t.Fatalf("exit code %d: %q %s", code, p.stdout, p.stderr)
	}

	if len(d.keys) != 2 || d.keys[0] == "" || d.keys[0] != d.keys[1] {
		t.Errorf("keys %q, want the same twice", d.keys)
	}
}

func TestSubmitFlagsChangeTheJobs(t *testing.T) {
	t.Parallel()
	d, p := newDepot(t), newPerson(t)
	p.at(t, d.yard)
	p.vars["HOST_VALUE"] = "from host"
	dir := t.TempDir()
	path := write(t, dir, "job.yaml", "name: old\nrun: hostname\nenv: {A: '1', B: null}\n")
	vars := write(t, dir, "vars", "# comment\nexport B=\"two\"\nC=3\n")
	code := p.types(
		t.Context(),
		"submit",
		path,
		"-q",
		"-n",
		"new",
		"--priority",
		"5",
		"--retry",
		"2",
		"--env-file",
		vars,
		"--env",
		"C=4",
		"--env",
		"HOST_VALUE",
	)

	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	in := d.request(t)
	file, err := jobfile.Check([]byte(in.File), now)
	if err != nil {
		t.Fatalf("sent %q: %v", in.File, err)
	}

	s := file.Jobs[0].Spec

	want := map[string]string{"A": "1", "B": "two", "C": "4", "HOST_VALUE": "from host"}
	if diff := cmp.Diff(want, s.Env); diff != "" || s.Name != "new" || s.Priority != 5 || s.Retry != 2 {
		t.Errorf("sent %q: %s", in.File, diff)
	}
}

func TestSubmitShowsThePlanAndAsksOnATerminal(t *testing.T) {
	t.Parallel()

	for answer, submits := range map[string]bool{"y\n": true, "\n": true, "n\n": false, "what\n": false} {
		d, p := newDepot(t), newPerson(t)
		p.at(t, d.yard)
		p.terminal, p.env.Stdin = true, strings.NewReader(answer)
		path := write(t, t.TempDir(), "job.yaml", "run: hostname\n")
		code := p.types(t.Context(), "submit", path, "-d", "--no-color")
		if (code == exit.OK) != submits || (len(d.keys) == 1) != submits {
			t.Errorf("%q: exit code %d, submissions %v: %s", answer, code, d.keys, p.stderr)
		}

		for _, want := range []string{"2 nodes: box1,box2  now", "no node now         No node has 8 H100.", "Submit 2 jobs? [Y/n]"} {
			if !strings.Contains(p.stderr.String(), want) {
				t.Errorf("stderr lacks %q: %s", want, p.stderr)
			}
		}
	}

	d, p := newDepot(t), newPerson(t)
	p.at(t, d.yard)
	p.terminal = true

	path := write(t, t.TempDir(), "job.yaml", "run: hostname\n")
	if code := p.types(t.Context(), "submit", path, "-d", "-y"); code != exit.OK ||
		strings.Contains(p.stderr.String(), "[Y/n]") {
		t.Errorf("-y: exit code %d: %s", code, p.stderr)
	}
}

func TestDryRunSubmitsNothing(t *testing.T) {
	t.Parallel()
	d, p := newDepot(t), newPerson(t)
	p.at(t, d.yard)

	path := write(t, t.TempDir(), "job.yaml", "workdir: .\nrun: hostname\n")
	if code := p.types(t.Context(), "submit", path, "--dry-run"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	golden(t, "dry-run", p.stdout.String())

	if len(d.keys) != 0 || len(d.files) != 0 {
		t.Errorf("a dry run left %v and %d files", d.keys, len(d.files))
	}
}

func TestMistakesOfTheFileAreAllToldBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	d, p := newDepot(t), newPerson(t)
	p.at(t, d.yard)

	path := write(t, t.TempDir(), "job.yaml", "run: hostname\nretries: 3\nresources:\n  memory: lots\n")
	if code := p.types(t.Context(), "submit", path); code != exit.Refused {
		t.Errorf("exit code %d", code)
	}

	text := p.stderr.String()
	if !strings.Contains(text, "error: line 2, column 1: retries: ") ||
		!strings.Contains(text, "error: line 4, column 11: resources.memory: ") {
		t.Errorf("stderr: %s", text)
	}

	if calls := d.called(); len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}

	p.stderr = newBuffer()
	p.env.Stderr = p.stderr
	if code := p.types(t.Context(), "submit", path, "-o", "json"); code != exit.Refused {
		t.Errorf("exit code %d", code)
	}

	var doc exit.Document
	if err := json.Unmarshal([]byte(p.stderr.String()), &doc); err != nil || len(doc.Errors) != 2 ||
		doc.Errors[0].Line != 2 ||
		doc.ExitCode != exit.Refused {
		t.Errorf("stderr: %s (%v)", p.stderr, err)
	}
}

func TestOneFileHasOneWorkdir(t *testing.T) {
	t.Parallel()
	p := newPerson(t)

	path := write(
		t,
		t.TempDir(),
		"job.yaml",
		"name: a\nrun: a\nworkdir: x\n---\nname: b\nrun: b\nworkdir: ./x\n---\nname: c\nrun: c\nworkdir: y\n",
	)

	if code := p.types(t.Context(), "validate", path); code != exit.Refused ||
		!strings.Contains(p.stdout.String(), ":9:1: workdir: the jobs of one file share") {
		t.Errorf("exit code %d: %s", code, p.stdout)
	}
}

func TestRunWritesAJobFile(t *testing.T) {
	t.Parallel()
	d, p := newDepot(t), newPerson(t)
	p.at(t, d.yard)

	code := p.types(
		t.Context(),
		"run",
		"-q",
		"--gpus",
		"1..8",
		"--gpu",
		"A100:80GB, H100",
		"--cpus",
		"4",
		"--memory",
		"32GB",
		"--nodes",
		"2",
		"-n",
		"quick",
		"--setup",
		"true",
		"--max-duration",
		"6h",
		"--place",
		"local",
		"--priority",
		"3",
		"--env",
		"LR=0.1",
		"--",
		"python",
		"train.py",
		"--name",
		"it's $HOME",
		"-o",
		"",
	)

	if code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	golden(t, "run-file", d.request(t).File)

	if code := p.types(t.Context(), "run", "--cpus", "many", "--", "true"); code != exit.Refused ||
		!strings.Contains(p.stderr.String(), "error: resources.cpus: ") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	if code := p.types(t.Context(), "run"); code != exit.Usage {
		t.Errorf("run of nothing: exit code %d", code)
	}
}

func TestValidateTellsAllFiles(t *testing.T) {
	t.Parallel()
	p, dir := newPerson(t), t.TempDir()
	write(
		t,
		dir,
		"good.yaml",
		"name: a\nrun: hostname\nenv: {HOME: null}\nresources: {gpus: 1..2}\n---\nname: b\nrun: date\nneeds: [a]\n",
	)

	write(t, dir, "bad.yaml", "run: hostname\nretries: 3\n")

	args := []string{
		"validate",
		filepath.Join(dir, "good.yaml"),
		filepath.Join(dir, "bad.yaml"),
		filepath.Join(dir, "none.yaml"),
	}

	if code := p.types(t.Context(), args...); code != exit.Refused {
		t.Errorf("exit code %d", code)
	}

	if code := p.types(t.Context(), append(args, "-o", "json")...); code != exit.Refused {
		t.Errorf("exit code %d", code)
	}

	golden(t, "validate", strings.ReplaceAll(p.stdout.String(), dir+"/", ""))

	p.env.Stdin = strings.NewReader("run: hostname\n")
	if code := p.types(t.Context(), "validate", "-"); code != exit.OK {
		t.Errorf("standard input: exit code %d", code)
	}
}

// The options of a pipeline's jobs were blocks without names (newcomer 15).
func TestTheOptionsOfSeveralJobsHaveTheirNames(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	option := api.Option{What: "box1", Class: "local", Unpriced: true, Basis: "your expect", Verdict: "chosen"}
	plan := []api.PlannedJob{
		{Name: "prepare", FitCount: 1, Fits: []id.Node{"box1"}, Options: []api.Option{option}},
		{FitCount: 1, Fits: []id.Node{"box1"}, Options: []api.Option{option}},
		{Name: "evaluate", FitCount: 1, Fits: []id.Node{"box1"}, Why: &api.Why{Blocker: "needs", Sentence: "starts after train"}},
	}
	y.mux.HandleFunc("POST /api/v1/jobs", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, api.SubmitReply{Plan: plan})
	})

	path := write(t, t.TempDir(), "job.yaml", "run: hostname\n")
	p := newPerson(t).at(t, y)

	if code := p.types(t.Context(), "submit", path, "--dry-run"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	for _, want := range []string{"\nOptions for prepare (", "\nOptions for #2 (", "starts after train"} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("the plan lacks %q:\n%s", want, p.stdout)
		}
	}

	if strings.Contains(p.stdout.String(), "$0.00") {
		t.Errorf("nodes without a price look free:\n%s", p.stdout)
	}

	plan = plan[:1]
	p = newPerson(t).at(t, y)

	if code := p.types(t.Context(), "submit", path, "--dry-run"); code != exit.OK ||
		!strings.Contains(p.stdout.String(), "\nOptions (") {
		t.Errorf("a single job: exit code %d:\n%s", code, p.stdout)
	}
}

func TestInitWritesAJobFileForTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "train.py", "import torch\nmodel.cuda()\n")
	file := filepath.Join(dir, "job.yaml")

	p := newPerson(t)
	p.terminal = true

	if code := p.types(t.Context(), "init", file); code != exit.OK ||
		p.stdout.String() != "Wrote "+file+": runs python3 train.py with 1 GPU.\n" ||
		!strings.Contains(p.stderr.String(), "trainyard submit "+file+" --dry-run") {
		t.Errorf("exit code %d: %s%s", code, p.stdout, p.stderr)
	}

	p = newPerson(t)
	if code := p.types(t.Context(), "validate", file); code != exit.OK {
		t.Errorf("what it wrote is not valid: exit code %d: %s%s", code, p.stdout, p.stderr)
	}

	write(t, dir, "job.yaml", "mine")
	p = newPerson(t)

	if code := p.types(t.Context(), "init", file); code != exit.Refused || !strings.Contains(p.stderr.String(), "already exists") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file that was there is %q, %v", text, err)
	}
}

func TestInitWritesATemplate(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "job.yaml")
	p := newPerson(t)

	if code := p.types(t.Context(), "init", file, "--template", "torchrun"); code != exit.OK ||
		p.stdout.String() != "Wrote "+file+": all GPUs of one node, with torchrun.\n" {
		t.Errorf("exit code %d: %s%s", code, p.stdout, p.stderr)
	}

	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "run: torchrun --standalone") {
		t.Errorf("the file is %q, %v", text, err)
	}

	p = newPerson(t)
	if code := p.types(t.Context(), "init", "other.yaml", "--template", "none"); code == exit.OK ||
		!strings.Contains(p.stderr.String(), "template none not found") || !strings.Contains(p.stderr.String(), "gpu, torchrun,") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}
