package walls_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/executable"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Jobs that people work in, on a node that isolates jobs.

// fakeJupyter stands for Jupyter: it writes its address and its token where Jupyter does, and answers those who know
// the token.
const fakeJupyter = `#!/usr/bin/python3
import http.server, json, os, secrets, sys
token = secrets.token_hex(24)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path == "/?token=" + token
        self.send_response(200 if ok else 403)
        self.end_headers()
        self.wfile.write(b"notebook of " + os.environ["TRAINYARD_JOB_ID"].encode())
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
folder = os.environ["JUPYTER_RUNTIME_DIR"]
os.makedirs(folder, mode=0o700)
with open(folder + "/jpserver-1.json", "w") as f:  # of one that was killed
    json.dump({"port": 1, "token": "stale"}, f)
with open(folder + "/jpserver-2.json", "w") as f:
    json.dump({"port": server.server_port, "token": token}, f)
print(" ".join(sys.argv[1:]), flush=True)
server.serve_forever()
`

// fakeTensorBoard says where it is as TensorBoard does.
const fakeTensorBoard = `#!/usr/bin/python3
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(" ".join(sys.argv[1:]).encode())
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
text = "TensorBoard 2.20.0 at http://localhost:%d/ (Press CTRL+C to quit)" % server.server_port
print(text, file=sys.stderr, flush=True)
server.serve_forever()
`

// toolbox is a working directory with programs in bin, and the path by which a job finds them.
func (u *user) toolbox(t *testing.T, programs map[string]string) (dir, path string) {
	t.Helper()
	bin := filepath.Join(u.Home, "toolbox", "bin")
	must(t, os.MkdirAll(bin, 0o700))

	for name, text := range programs {
		must(t, executable.Write(filepath.Join(bin, name), []byte(text), 0o700))
	}

	return "toolbox", "PATH=bin:/usr/bin:/bin"
}

// newest returns the newest job of a user.
func (u *user) newest(t *testing.T) api.Job {
	t.Helper()
	page, err := u.Jobs(t.Context(), api.JobFilter{Page: api.Page{Limit: 1}})
	must(t, err)

	if len(page.Jobs) == 0 {
		t.Fatal("the job is missing")
	}

	return page.Jobs[0]
}

// processes returns the command lines of a job's processes. Some end while they are read.
func (u *user) processes(t *testing.T, j id.Job) string {
	t.Helper()
	return u.must(t, "exec", string(j), "--", "sh", "-c", "cat /proc/*/cmdline 2>/dev/null; true")
}

func TestAShellInANewJobEndsTheJob(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")

	types := func(script string, args ...string) (string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()

		cmd := ada.Command(ctx, append([]string{"shell", "--cpus", "0.5"}, args...)...)
		cmd.Stdin = strings.NewReader(script)
		out, _ := cmd.Output() // its exit code is looked at

		return string(out), cmd.ProcessState.ExitCode()
	}

	out, code := types("echo in $TRAINYARD_JOB_ID; exit 3\n")
	first := ada.newest(t)

	if out != "in "+string(first.ID)+"\n" || code != 3 {
		t.Errorf("the shell has printed %q and ended with %d", out, code)
	}

	if d := ada.ended(t, first.ID); d.Status != job.StatusCancelled || !strings.Contains(string(d.Spec), `"idle":"30m"`) {
		t.Errorf("the job is %s, with the job file %s", d.Status, d.Spec)
	}

	if _, code := types("exit 0\n", "--keep", "--idle", "2h"); code != 0 {
		t.Errorf("the shell ended with %d", code)
	}

	second := ada.newest(t)
	if second.ID == first.ID || second.State != job.Running {
		t.Errorf("a job that is kept is %s: %s", second.State, second.Reason)
	}

	if got := ada.must(t, "exec", string(second.ID), "--", "echo", "again"); got != "again\n" {
		t.Errorf("what comes back to it prints %q", got)
	}

	r := ada.types(t, "shell", string(second.ID), "--gpus", "1")
	if r.code != 2 || !strings.Contains(r.err, "for a new job") {
		t.Errorf("a flag for a new job with a running one: %s", &r)
	}
}

// served is a command that forwards a port until it is interrupted.
type served struct {
	cmd  *exec.Cmd
	line string // its first line
}

// serves starts a command that forwards a port and waits for its first line.
func (u *user) serves(t *testing.T, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)

	s := &served{cmd: u.Command(ctx, args...)}
	var notes strings.Builder
	s.cmd.Stderr = &notes
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	must(t, s.cmd.Start())

	s.line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = s.cmd.Wait()
		t.Fatalf("trainyard %v: %v\n%s", args, err, &notes)
	}

	return s
}

// url is the address in its first line.
func (s *served) url() string {
	_, address, _ := strings.Cut(strings.TrimSpace(s.line), ": ")
	return address
}

// get reads a page.
func (s *served) get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)

	resp, err := new(http.Client).Do(req)
	must(t, err)

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)
	must(t, err)

	return fmt.Sprintf("%d %s", resp.StatusCode, text)
}

// interrupt ends the command with Ctrl-C.
func (s *served) interrupt(t *testing.T) {
	t.Helper()
	must(t, s.cmd.Process.Signal(os.Interrupt))

	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C the command ended with %v", err)
	}
}

func TestANotebookIsOneCommandAway(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	dir, path := ada.toolbox(t, map[string]string{"jupyter-lab": fakeJupyter})

	s := ada.serves(t, "notebook", "--cpus", "0.5", "--workdir", dir, "--env", path, "--keep")
	j := ada.newest(t).ID

	if got := s.get(t, s.url()); got != "200 notebook of "+string(j) {
		t.Errorf("the notebook at %s answers %q", s.url(), got)
	}

	without, _, _ := strings.Cut(s.url(), "?")
	if got := s.get(t, without); !strings.HasPrefix(got, "403 ") {
		t.Errorf("without the token the notebook answers %q", got)
	}

	s.interrupt(t)

	// It was kept, and one comes back to the same server.
	again := ada.serves(t, "notebook", string(j))
	if got := again.get(t, again.url()); got != "200 notebook of "+string(j) {
		t.Errorf("the notebook at %s answers %q", again.url(), got)
	}

	again.interrupt(t)

	if d, err := ada.Job(t.Context(), j); err != nil || d.State != job.Running {
		t.Errorf("the job that was kept is %s: %v", d.State, err)
	}

	if out := ada.output(t, j); !strings.Contains(out, "--no-browser --ip=127.0.0.1") {
		t.Errorf("Jupyter was started with %q", out)
	}

	// Without --keep, Ctrl-C ends the job.
	s = ada.serves(t, "notebook", "--cpus", "0.5", "--workdir", dir, "--env", path)
	other := ada.newest(t).ID
	s.interrupt(t)

	if d := ada.ended(t, other); d.Status != job.StatusCancelled {
		t.Errorf("the job is %s: %s", d.Status, d.Reason)
	}

	// A job without Jupyter says what is missing.
	r := ada.types(t, "notebook", "--cpus", "0.5", "--env", "PATH=/usr/bin:/bin")
	if r.code == 0 || !strings.Contains(r.err, "Jupyter was not found in the environment of the job") {
		t.Errorf("a notebook without Jupyter: %s", &r)
	}
}

func TestTensorBoardIsOneCommandAway(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	dir, path := ada.toolbox(t, map[string]string{"tensorboard": fakeTensorBoard, "jupyter-lab": fakeJupyter})

	j := id.Job(strings.TrimSpace(ada.must(t, "run", "-q", "-y", "--cpus", "0.5", "--workdir", dir, "--env", path, "--",
		"while :; do sleep 1; done")))
	y.await(t, "the job runs", func() bool { return ada.newest(t).State == job.Running })

	s := ada.serves(t, "tensorboard", string(j), "runs")
	if got := s.get(t, s.url()); got != "200 --logdir runs --host 127.0.0.1 --port 0" {
		t.Errorf("TensorBoard at %s answers %q", s.url(), got)
	}

	s.interrupt(t)

	// Nothing of it is left in the job, which goes on.
	y.await(t, "TensorBoard has ended", func() bool {
		return !strings.Contains(ada.processes(t, j), "--logdir")
	})

	// A notebook beside the program ends with its command, too.
	s = ada.serves(t, "notebook", string(j))
	if got := s.get(t, s.url()); got != "200 notebook of "+string(j) {
		t.Errorf("the notebook at %s answers %q", s.url(), got)
	}

	s.interrupt(t)
	y.await(t, "Jupyter has ended", func() bool {
		return !strings.Contains(ada.processes(t, j), "--no-browser")
	})

	bare := ada.running(t, "env: {PATH: /usr/bin:/bin}\n")
	r := ada.types(t, "tensorboard", string(bare))
	if r.code == 0 || !strings.Contains(r.err, "was not found in the environment") {
		t.Errorf("without TensorBoard: %s", &r)
	}
}

// TestAnIdleJobIsStoppedAndABusyOneIsNot: the shortest time that a job file may give is a minute.
func TestAnIdleJobIsStoppedAndABusyOneIsNot(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")

	const interactive = "interactive: {idle: 1m}\n"
	// Two at a time, so that it has a tenth of a CPU on a machine with much else to do, too.
	busy := ada.submit(t, interactive+script(
		"for n in 1 2; do while :; do timeout 2 sh -c 'while :; do :; done' || true; done & done; wait"))
	idle := ada.running(t, interactive)

	warned := y.audit(t, "job.idle", func(e *api.Event) bool { return e.Job == idle })
	if !strings.Contains(warned.Reason, "it will be stopped at") {
		t.Errorf("the warning is %q", warned.Reason)
	}

	if d, err := ada.Job(t.Context(), idle); err != nil || len(d.Remarks) != 1 {
		t.Errorf("the job has the remarks %q: %v", d.Remarks, err)
	}

	if d := ada.ended(t, idle); d.Status != job.StatusCancelled || d.Reason != "idle for 1m" {
		t.Errorf("the idle job is %s: %s", d.Status, d.Reason)
	}

	if d, err := ada.Job(t.Context(), busy); err != nil || d.State != job.Running {
		t.Errorf("the busy job is %s: %s, %v", d.State, d.Reason, err)
	}
}

// TestAttachPassesOnWhatIsTyped types into the program of an interactive job, detaches, comes back, and has the agent
// killed meanwhile. The input of the program never ends.
func TestAttachPassesOnWhatIsTyped(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.submit(t, "interactive: {idle: 30m}\n"+script(
		"echo ready", `while IFS= read -r line; do echo "<$line>"; done`, "echo the input has ended"))
	y.await(t, "the program has started", func() bool { return strings.Contains(ada.output(t, j), "ready") })

	attach := func() (types func(string), detach func()) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)

		cmd := ada.Command(ctx, "attach", string(j))
		var notes strings.Builder
		cmd.Stderr = &notes
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())

		types = func(text string) {
			_, err := io.WriteString(in, text)
			must(t, err)
		}
		detach = func() {
			must(t, cmd.Process.Signal(os.Interrupt))
			_ = cmd.Wait() // its exit code is that of an interruption

			if !strings.Contains(notes.String(), "keeps running") {
				t.Errorf("it does not say that the job goes on: %s", notes.String())
			}
		}

		return types, detach
	}
	hears := func(line string) {
		t.Helper()
		y.await(t, "the program has heard "+line, func() bool {
			return strings.Contains(ada.output(t, j), "<"+line+">\n")
		})
	}

	types, detach := attach()
	types("hello  world\nback\\slash and $HOME\n")
	hears("hello  world")
	hears(`back\slash and $HOME`)
	detach()

	types, detach = attach()
	types("again\n")
	hears("again")

	must(t, y.agents["n1"].Kill())

	p, err := y.StartAgent("n1", "", "--isolation", "users")
	must(t, err)
	y.agents["n1"] = p
	y.await(t, "input arrives by the next agent", func() bool {
		types("later\n")
		return strings.Contains(ada.output(t, j), "<later>\n")
	})
	detach()

	if d, err := ada.Job(t.Context(), j); err != nil || d.State != job.Running || len(d.Runs) != 1 ||
		strings.Contains(ada.output(t, j), "the input has ended") {
		t.Errorf("the job is %s with %d runs: %v\n%s", d.State, len(d.Runs), err, ada.output(t, j))
	}

	// Nobody else types into it, and a job without interactive reads nothing.
	if r := y.user(t, "bob").types(t, "attach", string(j)); r.code == 0 {
		t.Errorf("bob attached to it: %s", &r)
	}

	k := ada.submit(t, script("cat; echo nothing to read"))
	ada.ended(t, k)

	if out := ada.output(t, k); out != "nothing to read\n" {
		t.Errorf("a job without interactive has printed %q", out)
	}
}
