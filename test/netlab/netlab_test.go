package netlab_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"trainyard/test/netlab"
)

// unavailable is why there are no networks here.
var unavailable error

func TestMain(m *testing.M) {
	code, inside, err := netlab.Enter()
	switch {
	case errors.Is(err, netlab.ErrUnavailable) && os.Getenv("CI") != "true":
		unavailable = err
		code = m.Run()
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	case inside:
		code = m.Run()
	}

	os.Exit(code)
}

// pair makes a network of two hosts, of which the first echoes what it gets on port 7.
func pair(t *testing.T) (server, client *netlab.Host) {
	t.Helper()

	if unavailable != nil {
		t.Skip(unavailable)
	}

	lab, err := netlab.New("server", "client")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})

	server, client = lab.Host("server"), lab.Host("client")

	var listener net.Listener

	err = server.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", server.Address+":7")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() }) // nobody waits for it

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go func() {
				_, _ = io.Copy(conn, conn) // ends with the connection
			}()
		}
	}()

	return server, client
}

// dial connects one host to the other.
func dial(t *testing.T, from, to *netlab.Host) (conn net.Conn, err error) {
	t.Helper()

	dialer := net.Dialer{Timeout: 2 * time.Second}
	err = from.Do(func() (err error) {
		conn, err = dialer.DialContext(t.Context(), "tcp", to.Address+":7")
		return err
	})
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() }) // tests close it too
	}

	return conn, err
}

// echo reports whether what is sent comes back within the time.
func echo(t *testing.T, conn net.Conn, within time.Duration) bool {
	t.Helper()

	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}

	if _, err := conn.Write([]byte("x")); err != nil {
		return false
	}

	_, err := io.ReadFull(conn, make([]byte, 1))

	return err == nil
}

func TestHostsReachEachOther(t *testing.T) {
	server, client := pair(t)

	conn, err := dial(t, client, server)
	if err != nil {
		t.Fatal(err)
	}

	if !echo(t, conn, 10*time.Second) {
		t.Error("what was sent did not come back")
	}

	if _, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:7"); err == nil {
		t.Error("the server's port is open outside its host")
	}
}

func TestBrokenLinks(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []netlab.Rule
	}{
		{"both directions", netlab.Cut()},
		{"what the client receives", []netlab.Rule{netlab.Drop(netlab.In)}},
		{"what the client sends", []netlab.Rule{netlab.Drop(netlab.Out)}},
		{"almost all packets lost at random", netlab.Lose(99)},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, client := pair(t)

			conn, err := dial(t, client, server)
			if err != nil {
				t.Fatal(err)
			}

			if err := client.Break(c.rules...); err != nil {
				t.Fatal(err)
			}

			if echo(t, conn, 300*time.Millisecond) {
				t.Error("what was sent came back over a broken link")
			}

			if err := client.Heal(); err != nil {
				t.Fatal(err)
			}

			// The connection outlives the fault: the kernel sends again what was not received.
			if !echo(t, conn, 30*time.Second) {
				t.Error("what was sent did not come back over the healed link")
			}
		})
	}
}

func TestUnplugged(t *testing.T) {
	server, client := pair(t)

	conn, err := dial(t, client, server)
	if err != nil {
		t.Fatal(err)
	}

	if err := client.Unplug(); err != nil {
		t.Fatal(err)
	}

	if echo(t, conn, 300*time.Millisecond) {
		t.Error("what was sent came back without a link")
	}

	if err := client.Heal(); err != nil {
		t.Fatal(err)
	}

	if !echo(t, conn, 30*time.Second) {
		t.Error("what was sent did not come back over the healed link")
	}
}

func TestBackboneConnectsHostsThatAreCutOtherwise(t *testing.T) {
	if unavailable != nil {
		t.Skip(unavailable)
	}

	lab, err := netlab.New("server", "client")
	if err == nil {
		err = lab.AddBackbone()
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})

	server, client := lab.Host("server"), lab.Host("client")
	if err := client.Break(netlab.CutFrom(server.Address)...); err != nil {
		t.Fatal(err)
	}

	var listener net.Listener
	err = server.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":7")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() }) // nobody waits for it

	reaches := func(address string) bool {
		dialer := net.Dialer{Timeout: time.Second}

		return client.Do(func() error {
			conn, err := dialer.DialContext(t.Context(), "tcp", address+":7")
			if err == nil {
				err = conn.Close()
			}

			return err
		}) == nil
	}

	if !reaches(server.Backbone) {
		t.Error("the backbone does not connect the hosts")
	}

	if reaches(server.Address) {
		t.Error("the link that was cut connects the hosts")
	}
}

func TestReset(t *testing.T) {
	server, client := pair(t)

	conn, err := dial(t, client, server)
	if err != nil {
		t.Fatal(err)
	}

	if err := server.Break(netlab.Reset("7")...); err != nil {
		t.Fatal(err)
	}

	if echo(t, conn, 10*time.Second) {
		t.Error("the connection was not reset")
	}

	if _, err := dial(t, client, server); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection ended with %v, want refused", err)
	}
}

func TestConnections(t *testing.T) {
	server, client := pair(t)

	conn, err := dial(t, client, server)
	if err != nil {
		t.Fatal(err)
	}

	ports, err := client.Connections(netip.MustParseAddrPort(server.Address + ":7"))
	if err != nil {
		t.Fatal(err)
	}

	want := netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
	if len(ports) != 1 || ports[0] != int(want) {
		t.Fatalf("the client has connections from ports %v, want %d", ports, want)
	}

	// Open connections are lost, new ones pass.
	match := fmt.Sprintf("tcp sport %d", want)
	if err := client.Break(netlab.Rule{Direction: netlab.Out, Match: match, Verdict: "drop"}); err != nil {
		t.Fatal(err)
	}

	if echo(t, conn, 300*time.Millisecond) {
		t.Error("what was sent came back over a connection that is dropped")
	}

	fresh, err := dial(t, client, server)
	if err != nil {
		t.Fatal(err)
	}

	if !echo(t, fresh, 10*time.Second) {
		t.Error("what was sent did not come back over a new connection")
	}
}
