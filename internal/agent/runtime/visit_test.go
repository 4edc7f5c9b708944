package runtime

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/visitor"
	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// visit starts a visitor that must be let in.
func (y *yard) visit(run id.Run, v Visit) Visitor {
	y.t.Helper()
	v.Shared = true

	g, err := y.Visit(context.Background(), run, 0, v)
	if err != nil {
		y.t.Fatal(err)
	}

	y.t.Cleanup(func() { _ = g.Close() }) // most are closed already

	return g
}

// says reads the output of a visitor to its end.
func says(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func TestAVisitorSharesTheSurroundingsOfTheProgram(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		look := "pwd; id -u; echo $GOLD; readlink /proc/self/ns/pid /proc/self/ns/mnt; cat /proc/self/cgroup"
		hold, ready := pipe(t), pipe(t)
		run := y.start(api.Launch{
			Owner: "ada", OwnerNumber: 1, LogLimit: 1 << 20,
			Env:     map[string]string{"GOLD": "nugget", "READY": ready, "HOLD": hold},
			Command: "sleep 0.5; { " + look + "; } > seen; echo > $READY; read x < $HOLD",
		})
		receive(t, ready)

		compare := "{ " + look + "; } | diff - seen && echo same; cat; exit 3"
		g := y.visit(run, Visit{ID: t.Name(), Command: []string{"sh", "-c", compare}})

		_, err := io.WriteString(g.Input(), "typed")
		if err == nil {
			err = g.Input().Close()
		}

		if err != nil {
			t.Fatal(err)
		}

		if got, errs := says(t, g.Output()), says(t, g.Errors()); got != "same\ntyped" || errs != "" {
			t.Errorf("it says %q and %q", got, errs)
		}

		if end := <-g.Ended(); end.Status>>8 != 3 || end.Reason != "" {
			t.Errorf("it ended with %+v", end)
		}

		release(t, hold)
		check(t, y.end(run), 0, "", "", false, "")
	})
}

// What a visitor leaves ends with it, with its agent, and with the program: the run is not held up by a shell that
// ignores signals.
func TestNothingIsLeftOfAVisitor(t *testing.T) {
	t.Parallel()
	const stubborn = `trap "" HUP INT TERM; setsid sh -c 'trap "" HUP INT TERM; echo $$; exec sleep 10000' & wait`

	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		run := y.start(api.Launch{Owner: "ada", OwnerNumber: 1, Command: "sleep 10000", Grace: job.Duration(1 << 40)})
		y.await(run, job.RunRunning)

		begin := func(name string) Visitor {
			g := y.visit(run, Visit{ID: t.Name() + name, Command: []string{"sh", "-c", stubborn}})
			if _, err := g.Output().Read(make([]byte, 20)); err != nil {
				t.Fatal(err)
			}

			return g
		}

		g := begin("closed")
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}

		awaitGone(t, t.Name()+"closed")

		g = begin("stopped")
		if err := y.Stop(run, 0, job.StopTerm); err != nil {
			t.Fatal(err)
		}

		if end := <-g.Ended(); !strings.Contains(end.Reason, "stopped on request") {
			t.Errorf("it ended with %+v", end)
		}

		y.end(run)
		awaitGone(t, t.Name()+"stopped")

		_, err := y.Visit(t.Context(), run, 0, Visit{ID: "late", Shared: true})
		wantFault(t, err, "not_running")
	})
}

// awaitGone waits until no process of a visitor is left.
func awaitGone(t *testing.T, name string) {
	t.Helper()

	for {
		all, err := process.All()
		if err != nil {
			t.Fatal(err)
		}

		left := false
		for _, p := range all {
			left = left || process.HasEnv(p.PID, visitor.Var+"="+name)
		}

		if !left {
			return
		}

		time.Sleep(5 * time.Millisecond)
	}
}

func wantFault(t *testing.T, err error, code string) {
	t.Helper()

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("the answer is %v, not %s", err, code)
	}
}

func TestAVisitorCanHaveATerminal(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		run := y.start(api.Launch{Owner: "ada", OwnerNumber: 1, Command: "sleep 10000"})
		y.await(run, job.RunRunning)

		g := y.visit(run, Visit{ID: t.Name(), Size: &WindowSize{Columns: 77, Rows: 22}, Env: []string{"TERM=xterm"}})
		line := "exec sh -c 'stty size; echo $TERM; echo sleeping-$((1+1)); exec sleep 10000'\n"
		if _, err := io.WriteString(g.Input(), line); err != nil {
			t.Fatal(err)
		}

		seen := ""
		for buf := make([]byte, 100); !strings.Contains(seen, "22 77\r\nxterm\r\nsleeping-2\r\n"); {
			n, err := g.Output().Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, seen)
			}

			seen += string(buf[:n])
		}

		if g.Errors() != nil {
			t.Error("a terminal has errors of its own")
		}

		// The keys of a terminal are signals for what runs in it.
		if _, err := g.Input().Write([]byte{3}); err != nil {
			t.Fatal(err)
		}

		says(t, g.Output())

		if end := <-g.Ended(); end.Status&0x7f != 2 {
			t.Errorf("it ended with %+v", end)
		}
	})
}

// A process that hides, in a session of its own and with no environment, ends with the job; the visitor ends before.
func TestAVisitorEndsAlthoughSomethingHides(t *testing.T) {
	t.Parallel()
	y := newYard(t, isolated(t))
	run := y.start(api.Launch{Owner: "ada", OwnerNumber: 1, Command: "sleep 10000"})
	y.await(run, job.RunRunning)

	g := y.visit(run, Visit{ID: t.Name(), Command: []string{
		"sh", "-c", "(env -i setsid sh -c 'sleep 10000; :' &); sleep 0.2; echo gone",
	}})
	if end := <-g.Ended(); end.Status != 0 {
		t.Errorf("it ended with %+v", end)
	}

	if got := says(t, g.Output()); got != "gone\n" {
		t.Errorf("it says %q", got)
	}

	if err := y.Stop(run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	y.end(run)
}

func TestWithoutWallsNobodyIsLetIn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	run := y.script("sleep 10000")
	y.await(run, job.RunRunning)

	_, err := y.Visit(t.Context(), run, 0, Visit{ID: "v"})
	wantFault(t, err, "not_isolated")
	_, err = y.DialPort(t.Context(), run, 0, 80, false)
	wantFault(t, err, "not_isolated")
}

// A port counts as that of a rank only if one of its processes has the socket.
func TestOnlyThePortsOfARankAreDialled(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		command := `exec /usr/bin/python3 -c '
import socket
s = socket.socket(); s.bind(("", 0)); s.listen()
open("port", "w").write(str(s.getsockname()[1])); open("ready", "w").close()
while True: s.accept()[0].sendall(b"hello")'`
		run := y.start(api.Launch{Owner: "ada", OwnerNumber: 1, LogLimit: 1 << 20, Command: command})
		other := y.start(api.Launch{Owner: "bob", OwnerNumber: 2, Command: "sleep 10000"})
		y.await(run, job.RunRunning)
		y.await(other, job.RunRunning)

		port := 0
		for port == 0 {
			if _, err := os.Stat(y.runDir(run) + "/work/ready"); err != nil {
				time.Sleep(5 * time.Millisecond)
				continue
			}

			text, err := os.ReadFile(y.runDir(run) + "/work/port")
			if err != nil {
				t.Fatal(err)
			}

			port, err = strconv.Atoi(string(text))
			if err != nil {
				t.Fatal(err)
			}
		}

		conn, err := y.DialPort(t.Context(), run, 0, port, true)
		if err != nil {
			t.Fatal(err)
		}

		if got := says(t, io.LimitReader(conn, 5)); got != "hello" {
			t.Errorf("it says %q", got)
		}

		_ = conn.Close()

		_, err = y.DialPort(t.Context(), other, 0, port, true)
		wantFault(t, err, "port_closed")

		// A port of this process, which plays the agent.
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}

		defer func() { _ = l.Close() }()

		tcp, _ := l.Addr().(*net.TCPAddr)
		_, err = y.DialPort(t.Context(), run, 0, tcp.Port, true)
		wantFault(t, err, "port_closed")
	})
}

func TestListeners(t *testing.T) {
	t.Parallel()

	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 x 100
   1: 00000000:1F90 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 222 1 x 100
   2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 333 1 x 100
   3: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0  1000 0 444 1 x 100
   4: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0  1000 0 555 1 x 100
   5: odd
`
	var got []string
	for _, l := range parseListeners(table, 8080) {
		got = append(got, l.inode+" "+l.at.String()+" "+l.address().String())
	}

	want := "111 127.0.0.1:8080 127.0.0.1:8080, 444 [::1]:8080 [::1]:8080, 555 [::]:8080 [::1]:8080"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
}
