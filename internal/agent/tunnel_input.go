package agent

import (
	"context"
	"io"
	"slices"
	"sync"

	"trainyard/internal/api"
)

// input is what has come through a tunnel and was not taken by the job yet. The tunnel is always read, however slowly
// the job takes its input, so that its end is noticed; what is stored is bounded, because the client waits until it
// hears what was taken.
type input struct {
	mu      sync.Mutex
	pending []byte
	spare   []byte        // for what comes next; nil while it is written
	ended   bool          // nothing follows
	closed  bool          // nobody wants it any more
	changed chan struct{} // closed at the next change
	done    chan struct{} // closed when all was taken, or can never be
	err     error         // valid then
}

// feed writes what is added to it to a job, beside the caller. If it is drained, what cannot be written is dropped: a
// command that reads no input any more may still write output.
func (s *tunnelServer) feed(ctx context.Context, to io.WriteCloser, drained bool) *input {
	in := &input{changed: make(chan struct{}), done: make(chan struct{})}

	go func() {
		defer close(in.done)
		in.err = in.run(to, drained, func(n int) error { return s.end.Control(ctx, api.TunnelControl{Taken: n}) })
	}()

	return in
}

// add stores more input; none at all is its end. It is false if the client has sent more than it may.
func (in *input) add(data []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()

	if len(in.pending)+len(data) > api.TunnelWindow {
		return false
	}

	in.pending = append(in.pending, data...)
	in.ended = in.ended || len(data) == 0
	in.wake()

	return true
}

// close drops what was not taken.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()

	in.closed = true
	in.wake()
}

// wake tells run of a change. The caller holds in.mu.
func (in *input) wake() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// wait returns when all input was taken, or with the reason why it can never be.
func (in *input) wait() error {
	<-in.done
	return in.err
}

// run writes input to a job until it has ended.
func (in *input) run(to io.WriteCloser, drained bool, tell func(taken int) error) error {
	var failed error
	untold := 0

	for {
		data, closed := in.take()
		if closed || len(data) == 0 {
			if failed == nil {
				failed = to.Close()
			}

			return failed
		}

		for piece := range slices.Chunk(data, api.TunnelChunk) {
			if failed == nil {
				_, failed = to.Write(piece)
			}
			if failed != nil && !drained {
				return failed
			}

			untold += len(piece)
			if untold < api.TunnelTaken {
				continue
			}

			if err := tell(untold); err != nil {
				return err
			}

			untold = 0
		}

		in.reuse(data)
	}
}

// take waits for input and returns all of it; none is its end.
func (in *input) take() (data []byte, closed bool) {
	for {
		in.mu.Lock()
		data, closed = in.pending, in.closed
		over, changed := in.ended || closed, in.changed

		if len(data) > 0 {
			in.pending, in.spare = in.spare[:0], nil
		}

		in.mu.Unlock()

		if len(data) > 0 || over {
			return data, closed
		}

		<-changed
	}
}

// reuse takes back the memory of input that was written.
func (in *input) reuse(data []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()

	in.spare = data
}
