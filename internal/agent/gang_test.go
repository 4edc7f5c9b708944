package agent

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// newProbes returns probes of the ranks of one run, on this machine, and their ports.
func newProbes(t *testing.T, n int) (list []*gangProbe, ports []int) {
	t.Helper()

	for rank := range n {
		p := &gangProbe{run: "uid", rank: rank}
		ctx, cancel := context.WithCancel(t.Context())
		p.cancel = cancel
		p.listen(ctx)

		t.Cleanup(func() {
			cancel()
			p.tasks.Wait()
		})

		list, ports = append(list, p), append(ports, p.found.Load().Port)
	}

	return list, ports
}

func TestProbesFindWhereRanksAnswer(t *testing.T) {
	t.Parallel()
	list, ports := newProbes(t, 3)

	// 127.0.0.1 is this machine, as for the others. Nobody has the addresses of the network for documentation.
	addresses := [][]string{{"192.0.2.1", "127.0.0.1"}, {"127.0.0.1"}, {"127.0.0.2", "127.0.0.1"}}

	var all sync.WaitGroup
	for _, p := range list {
		all.Go(func() { p.ask(t.Context(), addresses, ports, func() {}) })
	}

	all.Wait()

	for rank, p := range list {
		for other, got := range p.found.Load().Reached {
			// Once each rank was reached at one address nobody waits long for the others.
			there := []uint64{2, 1, 3}[other]
			if got&^there != 0 || (got != 0) != (other != rank) {
				t.Errorf("rank %d reached rank %d at %b, which is at %b", rank, other, got, there)
			}
		}
	}
}

// TestAllRanksOfALargeRunAreAnsweredAtOnce: they ask at the same moment, and at all addresses.
func TestAllRanksOfALargeRunAreAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	list, ports := newProbes(t, 1)

	var conns []net.Conn
	for range 200 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])))
		if err != nil {
			t.Fatal(err)
		}

		defer func() { _ = conn.Close() }()

		conns = append(conns, conn)
	}

	for i, conn := range conns {
		if _, err := io.WriteString(conn, list[0].question(0)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}

		if got, err := io.ReadAll(conn); string(got) != list[0].reply(0) {
			t.Fatalf("connection %d: %q, %v", i, got, err)
		}
	}
}

func TestProbesAreNotFooledByOthers(t *testing.T) {
	t.Parallel()
	list, ports := newProbes(t, 2)
	other := &gangProbe{run: "another", rank: 0}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

	if !list[0].reaches(t.Context(), at(ports[1]), 1) {
		t.Error("rank 1 does not answer")
	}

	if list[0].reaches(t.Context(), at(ports[1]), 2) {
		t.Error("rank 1 answers for rank 2")
	}

	if other.reaches(t.Context(), at(ports[1]), 1) {
		t.Error("a rank answers for another run")
	}

	// An echo server is not a rank, whatever it returns.
	echo, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = echo.Close() })

	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}

			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()

	if list[0].reaches(t.Context(), echo.Addr().String(), 1) {
		t.Error("an echo was taken for a rank")
	}
}
