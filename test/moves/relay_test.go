package moves_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// relay is the network between the server and the nodes: it can be cut, and it can be slow.
type relay struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	cut   bool
	delay time.Duration // before each piece that is passed on
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r := &relay{listener: l, target: target, conns: map[net.Conn]bool{}}
	go r.serve()

	t.Cleanup(func() {
		_ = l.Close()
		r.set(true, 0)
	})

	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

// set cuts the network or restores it, and says how slow it is.
func (r *relay) set(cut bool, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.delay = cut, delay

	if cut {
		for c := range r.conns {
			_ = c.Close()
		}

		clear(r.conns)
	}
}

func (r *relay) serve() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}

		go r.pass(near)
	}
}

// pass passes a connection on, unless the network is cut.
func (r *relay) pass(near net.Conn) {
	defer func() { _ = near.Close() }()

	far, err := new(net.Dialer).DialContext(context.Background(), "tcp", r.target)
	if err != nil {
		return
	}

	defer func() { _ = far.Close() }()

	r.mu.Lock()
	cut := r.cut
	if !cut {
		r.conns[near], r.conns[far] = true, true
	}
	r.mu.Unlock()

	if cut {
		return
	}

	var both sync.WaitGroup
	both.Go(func() { r.copy(far, near) })
	both.Go(func() { r.copy(near, far) })
	both.Wait()

	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, near)
	delete(r.conns, far)
}

// copy passes on what comes until one side ends.
func (r *relay) copy(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 16<<10)

	for {
		n, err := from.Read(buffer)

		r.mu.Lock()
		delay := r.delay
		r.mu.Unlock()
		time.Sleep(delay)

		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}

		if err != nil {
			return
		}
	}
}
