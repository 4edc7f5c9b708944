package walls_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// How tunnels behave when there are many, when one side is slow or has ended its part, and when server and agent come
// back.

// TestS21_AHundredAtOnce has a hundred commands in one job at the same time, each with its own input and output.
func TestS21_AHundredAtOnce(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.running(t, "")

	const many = 100
	var all sync.WaitGroup
	tunnels := make([]*api.Tunnel, many)

	for i := range many {
		all.Go(func() {
			var err error
			tunnels[i], err = ada.OpenTunnel(t.Context(), j, api.TunnelStart{
				Kind: api.TunnelExec, Command: []string{"sh", "-c", "cat; echo end-$0", strconv.Itoa(i)},
			})
			if err != nil {
				t.Errorf("tunnel %d: %v", i, err)
			}
		})
	}

	all.Wait()

	if t.Failed() {
		t.FailNow()
	}

	// All of them are open now.
	for i := range many {
		all.Go(func() {
			tunnel := tunnels[i]
			defer func() { _ = tunnel.Close() }()

			sent := strings.Repeat(strconv.Itoa(i)+" ", 100_000/len(strconv.Itoa(i)))
			go func() { _ = tunnel.Copy(t.Context(), api.StreamIn, strings.NewReader(sent)) }()

			var got strings.Builder

			for {
				m, err := tunnel.Receive(t.Context())
				if err != nil {
					t.Errorf("tunnel %d: %v", i, err)
					return
				}

				got.Write(m.Data)

				if m.Control != nil && m.Control.End != nil {
					break
				}
			}

			if want := sent + "end-" + strconv.Itoa(i) + "\n"; got.String() != want {
				t.Errorf("tunnel %d: %d bytes came back of %d", i, got.Len(), len(want))
			}
		})
	}

	all.Wait()

	// More than the limit are refused, and with the reason.
	var open []*api.Tunnel
	var refused error

	for range 200 {
		tunnel, err := ada.OpenTunnel(t.Context(), j, api.TunnelStart{
			Kind: api.TunnelExec, Command: []string{"sleep", "1000"},
		})
		if err != nil {
			refused = err
			break
		}

		open = append(open, tunnel)
	}

	for _, tunnel := range open {
		_ = tunnel.Close()
	}

	var f *fault.Error
	if !errors.As(refused, &f) || f.Code != "too_many_tunnels" || len(open) < many {
		t.Errorf("after %d open tunnels the next is answered with %v", len(open), refused)
	}
}

// TestS21_WhatNobodyReadsWaits has a command print far more than fits anywhere on the way, to a client that does not
// read: the command waits, other sessions do not, and nothing is lost.
func TestS21_WhatNobodyReadsWaits(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.running(t, "")

	// The buffers of the connections on the way may hold some megabytes each.
	const all, most = 256 << 20, 64 << 20

	tunnel, err := ada.OpenTunnel(t.Context(), j, api.TunnelStart{Kind: api.TunnelExec, Command: []string{
		"sh", "-c", "echo $$ > printer; exec dd if=/dev/zero bs=64k count=" + strconv.Itoa(all>>16) + " status=none",
	}})
	must(t, err)

	defer func() { _ = tunnel.Close() }()

	// How much it has printed, as another session sees it.
	printed := func() int {
		t.Helper()
		text := ada.must(t, "exec", string(j), "--", "sh", "-c", "grep ^wchar /proc/$(cat printer)/io")
		n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(text, "wchar:")))
		must(t, err)

		return n
	}

	y.await(t, "the command has begun", func() bool {
		return ada.types(t, "exec", string(j), "--", "test", "-s", "printer").code == 0
	})

	for before, same := -1, 0; same < 5; time.Sleep(100 * time.Millisecond) {
		now := printed()
		if now == before {
			same++
		} else {
			before, same = now, 0
		}

		if now > most {
			t.Fatalf("the command has printed %d bytes that nobody has read", now)
		}
	}

	got := 0

	for {
		m, err := tunnel.Receive(t.Context())
		must(t, err)

		got += len(m.Data)

		if m.Control != nil && m.Control.End != nil {
			break
		}
	}

	if got != all {
		t.Errorf("%d bytes came of %d", got, all)
	}
}

// firstSpeaker is a server that says something, ends its part, and then takes what the other side sends.
const firstSpeaker = `import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(5)
print("port", s.getsockname()[1], flush=True)
while True:
    c = s.accept()[0]
    c.sendall(b"welcome")
    c.shutdown(socket.SHUT_WR)
    got = 0
    while True:
        more = c.recv(65536)
        if not more:
            break
        got += len(more)
    print("heard", got, flush=True)
    c.close()
`

// TestS21_AJobMayEndItsPartOfAConnectionFirst ends the direction from the job while the other one goes on. In the
// other tests of ports it is the client that ends its part first.
func TestS21_AJobMayEndItsPartOfAConnectionFirst(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.running(t, "env:\n  LISTEN: |\n"+indent(firstSpeaker), "/usr/bin/python3 -c \"$LISTEN\" &")
	f := ada.forwards(t, j, ada.portOf(t, j))

	conn := f.dial(t)
	got, err := io.ReadAll(conn)
	must(t, err)

	if string(got) != "welcome" {
		t.Errorf("the job has said %q", got)
	}

	const size = 5 << 20
	_, err = conn.Write(make([]byte, size))
	must(t, err)
	must(t, conn.CloseWrite())

	want := fmt.Sprintf("heard %d\n", size)
	y.await(t, "the job has heard all", func() bool { return strings.Contains(ada.output(t, j), want) })

	f.stop(t)
}

// TestS21_AForwardOutlivesServerAndAgent kills both under a command that forwards a port. Connections that were open
// end, and later ones go through, without anybody doing anything.
func TestS21_AForwardOutlivesServerAndAgent(t *testing.T) {
	t.Parallel()
	y := walled(t)
	ada := y.user(t, "ada")
	j := ada.running(t, "env:\n  LISTEN: |\n"+indent(echoServer), "/usr/bin/python3 -c \"$LISTEN\" ada &")
	f := ada.forwards(t, j, ada.portOf(t, j))

	// One that is open while something is killed. It is there when the job has taken the first of it.
	open := func() *net.TCPConn {
		t.Helper()
		y.await(t, "connections are forwarded", func() bool { return f.talk("hello") == "ada:hello" })

		conn := f.dial(t)
		_, err := conn.Write(make([]byte, 2<<20))
		must(t, err)

		return conn
	}
	ends := func(what string, conn *net.TCPConn) {
		t.Helper()

		if got, _ := io.ReadAll(conn); len(got) > 0 { // it may be reset
			t.Errorf("%s was killed, and %d bytes came of what was open", what, len(got))
		}
	}

	conn := open()
	must(t, y.Server().Kill())
	ends("the server", conn)
	time.Sleep(4 * time.Second) // the command looks every three seconds whether its job still runs
	must(t, y.StartServer())
	must(t, y.AwaitReady(t.Context()))

	conn = open()
	must(t, y.agents["n1"].Kill())
	ends("the agent", conn)

	p, err := y.StartAgent("n1", "", "--isolation", "users")
	must(t, err)
	y.agents["n1"] = p

	_ = open().Close()

	f.stop(t)
}

// portOf waits until a job says on which port it listens.
func (u *user) portOf(t *testing.T, j id.Job) int {
	t.Helper()
	var port int

	u.yard.await(t, "the job listens", func() bool {
		_, rest, _ := strings.Cut(u.output(t, j), "port ")
		number, _, whole := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(number)
		port = n

		return whole && err == nil
	})

	return port
}

// forwarding is a command that forwards a port.
type forwarding struct {
	cmd   *exec.Cmd
	at    string
	notes bytes.Buffer
}

// forwards starts to forward a port of a job.
func (u *user) forwards(t *testing.T, j id.Job, remote int) *forwarding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)

	f := &forwarding{cmd: u.Command(ctx, "forward", string(j), "0:"+strconv.Itoa(remote))}
	f.cmd.Stderr = &f.notes
	out, err := f.cmd.StdoutPipe()
	must(t, err)
	must(t, f.cmd.Start())

	line := make([]byte, 200)
	n, err := out.Read(line)
	must(t, err)

	f.at = strings.Fields(string(line[:n]))[1]

	return f
}

// dial connects to the port on this machine.
func (f *forwarding) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.at)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })

	return conn.(*net.TCPConn)
}

// talk sends a text and returns what comes back; one that is refused is closed.
func (f *forwarding) talk(text string) string {
	conn, err := net.Dial("tcp", f.at)
	if err != nil {
		return ""
	}

	defer func() { _ = conn.Close() }()

	_, _ = io.WriteString(conn, text)
	_ = conn.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(conn)

	return string(got)
}

// stop ends the command as Ctrl-C does.
func (f *forwarding) stop(t *testing.T) {
	t.Helper()
	must(t, f.cmd.Process.Signal(os.Interrupt))

	if err := f.cmd.Wait(); err != nil {
		t.Errorf("forward ended with %v: %s", err, &f.notes)
	}
}

// talks forwards a port of a job, sends a text to it, and returns what came back and what the command wrote about it.
func (u *user) talks(t *testing.T, j id.Job, remote int, text string) (answer, notes string) {
	t.Helper()
	f := u.forwards(t, j, remote)
	got := f.talk(text)
	f.stop(t)

	return got, f.notes.String()
}
