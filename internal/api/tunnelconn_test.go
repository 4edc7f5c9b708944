package api

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// written is a connection that keeps what is written to it, write by write.
type written struct {
	net.Conn

	pieces []int
	all    bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.pieces = append(w.pieces, len(p))
	return w.all.Write(p)
}

func TestWritesAreGatheredWhileAConnectionIsHeld(t *testing.T) {
	t.Parallel()
	to := &written{}
	c := &gatherConn{Conn: to}

	write := func(n int) {
		t.Helper()

		if got, err := c.Write(bytes.Repeat([]byte("x"), n)); got != n || err != nil {
			t.Fatalf("%d bytes of %d were written: %v", got, n, err)
		}
	}

	write(10)
	c.hold()

	for range 5 {
		write(4096)
	}

	write(1)

	if err := c.release(false); err != nil {
		t.Fatal(err)
	}

	write(20)

	want := []int{10, gatherSize, 4096 + 1, 20}
	if len(to.pieces) != len(want) || to.all.Len() != 10+5*4096+1+20 {
		t.Fatalf("it was written in pieces of %v, not %v", to.pieces, want)
	}

	for i := range want {
		if to.pieces[i] != want[i] {
			t.Errorf("it was written in pieces of %v, not %v", to.pieces, want)
		}
	}
}

// What somebody else has left there is written with the next write, also if it is not held any more.
func TestNothingStaysInAConnectionThatIsNotHeld(t *testing.T) {
	t.Parallel()
	to := &written{}
	c := &gatherConn{Conn: to}

	c.hold()
	_, _ = c.Write([]byte("one "))
	_ = c.release(true) // of somebody whose message was given up
	_, _ = c.Write([]byte("two"))

	if to.all.String() != "one two" {
		t.Errorf("%q was written", to.all.String())
	}
}

// Every message arrives, whatever its size and whoever else sends at the same time.
func TestMessagesOfAllSizesArrive(t *testing.T) {
	t.Parallel()

	// The other end sends back what it gets.
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}

		end := NewTunnel(conn)
		defer func() { _ = end.Close() }()

		for {
			m, err := end.Receive(context.Background())
			if err != nil || end.Pass(context.Background(), m) != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)

	client := NewClient(server.URL, "", server.Client().Transport.(*http.Transport).TLSClientConfig)
	t.Cleanup(client.Close)

	tunnel, err := client.AnswerTunnel(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = tunnel.Close() })

	if tunnel.gather == nil {
		t.Fatal("the connection does not gather what is written")
	}

	var sizes []int
	for base := 0; base <= TunnelChunk; base += 4096 {
		for off := -16; off <= 16; off++ {
			if n := base + off; n > 0 && n <= TunnelChunk {
				sizes = append(sizes, n)
			}
		}
	}

	// One size after the other, each of which comes back before the next: nothing of it may be left behind.
	for _, n := range sizes {
		data := append([]byte{StreamOut}, bytes.Repeat([]byte{byte(n)}, n)...)
		if err := tunnel.write(t.Context(), websocket.MessageBinary, data); err != nil {
			t.Fatal(err)
		}

		m, err := tunnel.Receive(t.Context())
		if err != nil || !bytes.Equal(m.raw, data) {
			t.Fatalf("of %d bytes %d came back: %v", n, len(m.Data), err)
		}
	}

	var senders sync.WaitGroup
	const each = 200

	for i := range 4 {
		senders.Go(func() {
			for k := range each {
				data := append([]byte{StreamOut}, bytes.Repeat([]byte{byte(i)}, 1+k*97)...)
				if err := tunnel.write(t.Context(), websocket.MessageBinary, data); err != nil {
					t.Error(err)
				}
			}
		})
	}

	for range 4 * each {
		m, err := tunnel.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if bytes.Count(m.Data, m.Data[:1]) != len(m.Data) {
			t.Error("messages were mixed up")
		}
	}

	senders.Wait()
}
