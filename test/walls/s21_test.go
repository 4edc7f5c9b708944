package walls_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/test/yardtest"
)

// running submits a job that runs until it is stopped, and waits until it has printed ready.
func (u *user) running(t *testing.T, head string, lines ...string) id.Job {
	t.Helper()
	j := u.submit(t, head+script(append(lines, "echo ready; while :; do sleep 0.1; done")...))
	u.yard.await(t, fmt.Sprintf("job %s runs", j), func() bool { return strings.Contains(u.output(t, j), "ready") })

	return j
}

// walled is a yard with a node that isolates jobs.
func walled(t *testing.T) *yard {
	t.Helper()
	needRoot(t)
	y := newYard(t)
	y.rootAgent(t, "n1", "--isolation", "users")

	return y
}

// TestS21_ACommandRunsInsideTheWallsOfItsJob compares what a command in a job has with what its program has.
func TestS21_ACommandRunsInsideTheWallsOfItsJob(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")

	look := "id -u; id -G; pwd; umask; grep processes /proc/self/limits; " +
		"echo $HOME $TRAINYARD_JOB_ID $CUDA_VISIBLE_DEVICES $GOLD;" +
		"for n in pid mnt ipc net uts user; do readlink /proc/self/ns/$n; done; cat /proc/self/cgroup;" +
		"grep -E 'NoNewPrivs|Seccomp:|Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status; ls -d /proc/1/fd/* 2>&1 | head -n1"
	j := ada.running(t, "env: {GOLD: nugget}\n", "sleep 1", look, "echo end")

	program, _, _ := strings.Cut(ada.output(t, j), "end\n")
	if got := ada.must(t, "exec", string(j), "--", "sh", "-c", look); got != program || !strings.Contains(got, "nugget") {
		t.Errorf("the program has\n%s\nand a command in its job\n%s", program, got)
	}

	// Its exit code, its streams and its signals are its own.
	r := ada.types(t, "exec", string(j), "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if r.code != 7 || r.out != "out\n" || r.err != "err\n" {
		t.Errorf("a command that fails: %s", &r)
	}

	if r := ada.types(t, "exec", string(j), "--", "sh", "-c", "kill -TERM $$"); r.code != 128+int(syscall.SIGTERM) {
		t.Errorf("a command that a signal ends: %s", &r)
	}

	if r := ada.types(t, "exec", string(j), "--", "no-such-command"); r.code != 127 {
		t.Errorf("a command that is not there: %s", &r)
	}

	// Two megabytes go in and come back, and the end of the input is noticed.
	cmd := ada.Command(t.Context(), "exec", string(j), "--", "sh", "-c", "cat; echo over")
	sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<17)
	cmd.Stdin = bytes.NewReader(sent)

	got, err := cmd.Output()
	must(t, err)

	if want := string(sent) + "over\n"; string(got) != want {
		t.Errorf("%d bytes came back of %d", len(got), len(want))
	}

	// Who, what and how it ended is recorded, not what was said.
	closed := y.audit(t, "access.tunnel", func(e *api.Event) bool { return strings.Contains(e.Reason, "exit code 7") })
	if closed.Actor != "ada" || closed.Job != j || !strings.Contains(closed.Reason, `a command ("sh") in rank 0`) ||
		strings.Contains(closed.Reason, "echo") {
		t.Errorf("the record has %+v", closed)
	}
}

// TestS21_NobodyEntersTheJobsOfOthers tries it as another researcher, as an admin and with a token that only reads.
func TestS21_NobodyEntersTheJobsOfOthers(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada, bob := y.user(t, "ada"), y.user(t, "bob")
	open := ada.running(t, "")
	secret := ada.running(t, "env: {GOLD: nugget}\n")

	for _, args := range [][]string{
		{"exec", string(open), "--", "id"}, {"shell", string(open)}, {"cp", string(open) + ":.", "."},
		{"forward", string(open), "8000"},
	} {
		if r := bob.types(t, args...); r.code != 102 || !strings.Contains(r.err, "not found") {
			t.Errorf("bob: trainyard %v: %s", args, &r)
		}
	}

	if r := y.admin.types(t, "exec", string(open), "--", "id", "-u"); r.code != 0 || strings.TrimSpace(r.out) == "0" {
		t.Errorf("an admin enters a job: %s", &r)
	}

	if r := y.admin.types(t, "exec", string(secret), "--", "env"); r.code != 106 || strings.Contains(r.out, "nugget") ||
		!strings.Contains(r.err, "only ada can enter job") {
		t.Errorf("an admin enters a job with env: %s", &r)
	}

	y.audit(t, "access.tunnel", func(e *api.Event) bool { return e.Actor == "admin" && e.Job == open && e.Owner == "ada" })
	y.audit(t, "access.refused", func(e *api.Event) bool {
		return strings.Contains(e.Reason, "/api/v1/jobs/{job}/tunnel")
	})

	// The end of a tunnel is for the node that it was asked of.
	h := y.steal(t, "n1")
	if a := h.asNode(t, "GET", "/agent/v1/tunnels/x", nil); a.status < 400 {
		t.Errorf("a tunnel that nobody asked for: %s", &a)
	}
}

// TestS21_JobsWithoutWallsAreNotEntered tries it on a node whose jobs run as its agent.
func TestS21_JobsWithoutWallsAreNotEntered(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "n1")
	ada := y.user(t, "ada")
	j := ada.running(t, "")

	for _, args := range [][]string{{"exec", string(j), "--", "id"}, {"cp", string(j) + ":.", "."}} {
		if r := ada.types(t, args...); r.code != 104 || !strings.Contains(r.err, "without walls") {
			t.Errorf("trainyard %v: %s", args, &r)
		}
	}
}

// TestS21_AShellHasATerminal uses a shell as a person does.
func TestS21_AShellHasATerminal(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.running(t, "")

	screen, program, err := yardtest.Terminal()
	must(t, err)

	defer func() { _ = screen.Close() }()

	resize := func(columns, rows uint16) {
		must(t, unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}))
	}
	resize(91, 33)

	cmd := ada.Command(t.Context(), "shell", string(j))
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, cmd.Start())
	must(t, program.Close())

	var mu sync.Mutex
	var shown bytes.Buffer

	go func() {
		buf := make([]byte, 4096)

		for {
			n, err := screen.Read(buf)
			mu.Lock()
			shown.Write(buf[:n])
			mu.Unlock()

			if err != nil {
				return
			}
		}
	}()

	says := func(text string) {
		t.Helper()
		y.await(t, fmt.Sprintf("the shell says %q", text), func() bool {
			mu.Lock()
			defer mu.Unlock()

			return strings.Contains(shown.String(), text)
		})
	}
	types := func(text string) {
		t.Helper()

		_, err := io.WriteString(screen, text)
		must(t, err)
	}

	says(string(j) + ":")
	types("stty size; echo term-$TERM; [ -t 0 ] && [ -t 2 ] && echo on-a-$((1+1))-tty\r")
	says("33 91")
	says("term-xterm")
	says("on-a-2-tty")

	resize(120, 40)
	must(t, cmd.Process.Signal(syscall.SIGWINCH))
	y.await(t, "the shell has the new size", func() bool {
		types("stty size\r")
		time.Sleep(50 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()

		return strings.Contains(shown.String(), "40 120")
	})

	// Ctrl-C ends the command, not the shell, and nobody else may open the terminal.
	types("stat -c owner-%u-%a $(tty); echo sleeping-$((1+1)); sleep 1000\r")
	says("sleeping-2")
	says("-600")

	// A shell ignores a Ctrl-C that comes while it starts the command, so a person presses it again.
	y.await(t, "the shell is back after Ctrl-C", func() bool {
		types("\x03echo awake-$((2+2))\r")
		time.Sleep(50 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()

		return strings.Contains(shown.String(), "awake-4")
	})

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	y.await(t, "the shell has ended", func() bool {
		_, _ = io.WriteString(screen, "exit 9\r") // fails once it has
		time.Sleep(50 * time.Millisecond)

		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})

	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Errorf("the shell ended with %v:\n%s", err, shown.String())
	}
}

// echoServer listens on a free port, and sends back what it gets once the other side has ended its part.
const echoServer = `import socket, sys, threading
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(200)
print("port", s.getsockname()[1], flush=True)
def answer(c):
    got = b""
    while True:
        more = c.recv(65536)
        if not more:
            break
        got += more
    c.sendall(sys.argv[1].encode() + b":" + got)
    c.close()
while True:
    threading.Thread(target=answer, args=(s.accept()[0],)).start()
`

func indent(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString("    " + line)
	}

	return out.String()
}

// TestS21_APortIsThatOfTheJobAlone forwards ports of a job, and tries to reach those of others.
func TestS21_APortIsThatOfTheJobAlone(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada, bob := y.user(t, "ada"), y.user(t, "bob")

	listen := func(name string) string {
		return "/usr/bin/python3 -c \"$LISTEN\" " + name + " &"
	}
	env := "env:\n  LISTEN: |\n" + indent(echoServer)
	mine, theirs := ada.running(t, env, listen("ada")), bob.running(t, env, listen("bob"))

	talk := func(j id.Job, remote int, text string) (string, string) { return ada.talks(t, j, remote, text) }
	large := strings.Repeat("x", 3<<20)
	if got, notes := talk(mine, ada.portOf(t, mine), large); got != "ada:"+large {
		t.Errorf("%d bytes came back: %s", len(got), notes)
	}

	_, server, err := net.SplitHostPort(y.Address)
	must(t, err)

	serverPort, err := strconv.Atoi(server)
	must(t, err)

	for what, number := range map[string]int{
		"another tenant's job": bob.portOf(t, theirs), "the server": serverPort, "nothing": 1,
	} {
		got, notes := talk(mine, number, "GET / HTTP/1.0\r\n\r\n")
		if got != "" || !strings.Contains(notes, "no process of run "+string(mine)) {
			t.Errorf("a port of %s answers %q, and the command says %q", what, got, notes)
		}
	}
}

// TestS21_ACopyStaysInTheWorkingDirectory copies files in both directions, and tries to get out.
func TestS21_ACopyStaysInTheWorkingDirectory(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.running(t, "",
		"mkdir -p out/deep; echo one > out/a; echo two > out/deep/b; ln -s a out/link; ln -s /etc/passwd out/evil",
		"ln -s /etc etc; ln -s ../.. up; mkfifo out/pipe; echo gold > $HOME/gold")
	home := ada.Home

	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(home, name))
		must(t, err)

		return string(text)
	}

	r := ada.types(t, "cp", string(j)+":out", "got")
	if r.code != 0 || read("got/a") != "one\n" || read("got/deep/b") != "two\n" || read("got/link") != "one\n" {
		t.Errorf("a folder: %s", &r)
	}

	if _, err := os.Lstat(filepath.Join(home, "got/evil")); err == nil || !strings.Contains(r.err, "evil") {
		t.Errorf("a link that leads out was copied, or not spoken of: %s", &r)
	}

	ada.must(t, "cp", string(j)+":out/a", "got/")
	ada.must(t, "cp", string(j)+":out/a", "renamed")

	if read("renamed") != "one\n" || read("got/a") != "one\n" {
		t.Error("a file does not have the name that it was given")
	}

	must(t, os.MkdirAll(filepath.Join(home, "in/sub"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, "in/sub/x"), bytes.Repeat([]byte("y"), 5<<20), 0o600))
	ada.must(t, "cp", "in", string(j)+":there")

	got := ada.must(t, "exec", string(j), "--", "sh", "-c", "wc -c < there/sub/x; stat -c %u there/sub/x; id -u")
	if words := strings.Fields(got); len(words) != 3 || words[0] != "5242880" || words[1] != words[2] {
		t.Errorf("the job got %q", got)
	}

	for _, path := range []string{"/etc/passwd", "../../launch.json", "etc/passwd", "up/launch.json", "../home/gold"} {
		if r := ada.types(t, "cp", string(j)+":"+path, "stolen"); r.code != 104 {
			t.Errorf("get %s: %s", path, &r)
		}

		if r := ada.types(t, "cp", "in/sub/x", string(j)+":"+path); r.code != 104 {
			t.Errorf("put %s: %s", path, &r)
		}
	}

	if _, err := os.Lstat(filepath.Join(home, "stolen")); err == nil {
		t.Error("something was copied from outside of the working directory")
	}
}

// visited is how many processes on the machine belong to visitors of the yard's jobs.
func visited(t *testing.T, mark string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	must(t, err)

	n := 0
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(text, []byte(mark)) {
			n++
		}
	}

	return n
}

// TestS21_NothingIsLeftOfASession ends sessions in every way that there is: by its client, by revoking the token, with
// the job, and by killing the agent and the server.
func TestS21_NothingIsLeftOfASession(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")

	// One that leaves processes behind in other sessions, which ignore what they can.
	const stubborn = `trap "" HUP INT TERM; setsid sh -c 'trap "" HUP INT TERM; echo up; sleep 10000; sleep 10000' & wait`

	begin := func(j id.Job, mark string) (*exec.Cmd, *bytes.Buffer) {
		cmd := ada.Command(t.Context(), "exec", string(j), "--", "env", "MARK="+mark, "sh", "-c", stubborn)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())

		if _, err := out.Read(make([]byte, 10)); err != nil {
			t.Fatalf("%s: %v: %s", mark, err, &said)
		}

		if visited(t, "MARK="+mark) < 2 {
			t.Fatalf("%s does not run", mark)
		}

		return cmd, &said
	}
	gone := func(mark string) {
		t.Helper()
		y.await(t, "nothing is left of "+mark, func() bool { return visited(t, "MARK="+mark) == 0 })
	}

	j := ada.running(t, "")

	cmd, _ := begin(j, "left-client")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	gone("left-client")

	cmd, said := begin(j, "left-agent")
	must(t, y.agents["n1"].Kill())

	const lost = "the connection to the agent of node n1 was lost"
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), lost) {
		t.Errorf("the agent was killed: %v: %s", err, said)
	}

	gone("left-agent")

	p, err := y.StartAgent("n1", "", "--isolation", "users")
	must(t, err)
	y.agents["n1"] = p
	y.await(t, "the next agent lets people in", func() bool {
		r := ada.types(t, "exec", string(j), "--", "true")
		return r.code == 0
	})

	cmd, said = begin(j, "left-server")
	must(t, y.Server().Kill())

	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "the connection to the server was lost") {
		t.Errorf("the server was killed: %v: %s", err, said)
	}

	gone("left-server")
	must(t, y.StartServer())
	must(t, y.AwaitReady(t.Context()))
	y.await(t, "the next server lets people in", func() bool {
		r := ada.types(t, "exec", string(j), "--", "true")
		return r.code == 0
	})

	cmd, said = begin(j, "left-job")
	ada.must(t, "kill", "--yes", string(j))

	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "was ended: the run is being stopped") {
		t.Errorf("the job was killed: %v: %s", err, said)
	}

	gone("left-job")

	if r := ada.types(t, "exec", string(j), "--", "true"); r.code != 104 || !strings.Contains(r.err, "does not run") {
		t.Errorf("a job that has ended: %s", &r)
	}

	k := ada.running(t, "")
	cmd, said = begin(k, "left-token")
	must(t, y.admin.RevokeToken(t.Context(), ada.token))

	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "revoked") {
		t.Errorf("the token was revoked: %v: %s", err, said)
	}

	gone("left-token")
}
