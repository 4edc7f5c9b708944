package agent

import (
	"context"
	"io"
	"sync"

	"trainyard/internal/api"
)

// input is what has come through a tunnel and was not taken by the job yet. The tunnel is always read, however slowly
// the job takes its input, so that its end is noticed; what is stored is bounded, because the client waits until it
// hears what was taken.
type input struct {
	mu      sync.Mutex
	pending []byte
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
		data, ended, closed := in.take()
		if closed || ended && len(data) == 0 {
			if failed == nil {
				failed = to.Close()
			}

			return failed
		}

		if failed == nil {
			_, failed = to.Write(data)
		}
		if failed != nil && !drained {
			return failed
		}

		untold += len(data)
		if untold < api.TunnelTaken {
			continue
		}

		if err := tell(untold); err != nil {
			return err
		}

		untold = 0
	}
}

// take waits for input and returns all of it, as far as it goes into one piece.
func (in *input) take() (data []byte, ended, closed bool) {
	for {
		in.mu.Lock()
		data, ended, closed = in.pending, in.ended, in.closed
		changed := in.changed

		if len(data) > api.TunnelChunk {
			data, in.pending = data[:api.TunnelChunk], data[api.TunnelChunk:]
		} else {
			in.pending = nil
		}

		in.mu.Unlock()

		if len(data) > 0 || ended || closed {
			return data, ended, closed
		}

		<-changed
	}
}
