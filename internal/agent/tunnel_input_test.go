package agent

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"trainyard/internal/api"
)

// taker is the input of a command.
type taker struct {
	bytes.Buffer
	fail   error         // of every write
	block  chan struct{} // writes wait until it is closed; nil if they do not
	closed bool
}

func (t *taker) Write(data []byte) (int, error) {
	if t.block != nil {
		<-t.block
	}

	if t.fail != nil {
		return 0, t.fail
	}

	return t.Buffer.Write(data)
}

func (t *taker) Close() error {
	t.closed = true
	return nil
}

// fed runs an input, and returns how its end is awaited and what was said to be taken.
func fed(to io.WriteCloser, drained bool) (in *input, wait func() error, said *int) {
	in = &input{changed: make(chan struct{}), done: make(chan struct{})}
	said = new(int)

	go func() {
		defer close(in.done)
		in.err = in.run(to, drained, func(n int) error {
			*said += n
			return nil
		})
	}()

	return in, in.wait, said
}

func TestInputIsTakenInOrderAndAcknowledged(t *testing.T) {
	t.Parallel()
	to := &taker{}
	in, wait, said := fed(to, true)
	chunk := bytes.Repeat([]byte("0123456789abcdef"), api.TunnelTaken/16)
	want := []byte{}

	for range 4 {
		want = append(want, chunk...)
		if !in.add(chunk) {
			t.Fatal("less than a window was refused")
		}
	}

	in.add(nil)

	if err := wait(); err != nil || !to.closed || !bytes.Equal(to.Bytes(), want) || *said != len(want) {
		t.Errorf("%v; closed: %v; %d bytes of %d taken, %d said", err, to.closed, to.Len(), len(want), *said)
	}
}

func TestInputIsBounded(t *testing.T) {
	t.Parallel()
	to := &taker{block: make(chan struct{})}
	in, wait, _ := fed(to, true)
	chunk := make([]byte, api.TunnelChunk)
	added := 0

	for in.add(chunk) {
		added += len(chunk)
	}

	// What is being written, and a window.
	if most := 2 * api.TunnelWindow; added > most {
		t.Errorf("%d bytes are stored, the most is %d", added, most)
	}

	close(to.block)
	in.close()

	if err := wait(); err != nil {
		t.Error(err)
	}
}

// A command that reads no input any more does not keep its client from sending; a connection that is gone ends.
func TestInputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")

	in, wait, said := fed(&taker{fail: broken}, true)
	for range 20 {
		for !in.add(make([]byte, api.TunnelTaken)) {
			continue
		}
	}

	in.add(nil)

	if err := wait(); !errors.Is(err, broken) || *said != 20*api.TunnelTaken {
		t.Errorf("%v; %d bytes said to be taken", err, *said)
	}

	in, wait, _ = fed(&taker{fail: broken}, false)
	in.add([]byte("x"))

	if err := wait(); !errors.Is(err, broken) {
		t.Errorf("it ended with %v", err)
	}
}
