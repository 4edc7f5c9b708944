package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

const (
	// pollLog is how often a rank's output is looked at: it bounds how late a
	// line arrives.
	pollLog = 50 * time.Millisecond
	// maxUploads is how many uploads are under way at a time.
	maxUploads = 16
	// uploadTimeout bounds one upload; one that takes longer is sent again.
	uploadTimeout = time.Minute
	// silentPatience is how long a rank without output waits until the server has taken its end from a report. After
	// that its empty log is uploaded as any other, which also finds out whether the server knows the run at all.
	silentPatience = 5 * time.Second
)

// logUploader delivers the output of one rank, in order. The server says how far it
// is; nothing is remembered here, so nothing can disagree.
type logUploader struct {
	agent     *Agent
	key       key
	ended     chan struct{} // closed when the output is complete
	endOnce   sync.Once
	silent    bool          // there is none; set before ended is closed
	heard     chan struct{} // closed when the server has taken from a report that there is none
	heardOnce sync.Once
	uid       id.UID
	delivered atomic.Bool // the server has all of it, or wants none
	unknown   atomic.Bool // the run is one that the server does not know
	cancel    context.CancelFunc
	done      chan struct{}

	log    io.ReadCloser // open at offset, nil if it is not open
	offset int64
}

// updateUploaders begins to deliver the output of new ranks and tells the others
// which have ended.
func (a *Agent) updateUploaders(ctx context.Context, list []rundir.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, st := range list {
		k := key{st.Run, st.Rank}
		s, ok := a.uploaders[k]
		if !ok {
			own, cancel := context.WithCancel(ctx) //nolint:gosec // the uploader has it
			s = &logUploader{
				agent: a, key: k, uid: st.UID, ended: make(chan struct{}), heard: make(chan struct{}), cancel: cancel,
				done: make(chan struct{}),
			}
			a.uploaders[k] = s

			go func() {
				defer close(s.done)

				s.run(own)
			}()
		}

		if st.State == job.RunEnded {
			s.endOnce.Do(func() {
				s.silent = st.Silent
				close(s.ended)
			})
		}
	}
}

// noteSilent notes which ranks the server now knows to have printed nothing. Only ranks that are assigned are
// reported as such, so these are runs that it knows.
func (a *Agent) noteSilent(ranks []api.RankReport) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for i := range ranks {
		if s := a.uploaders[key{ranks[i].Run, ranks[i].Rank}]; s != nil && ranks[i].Silent {
			s.heardOnce.Do(func() { close(s.heard) })
		}
	}
}

// stopUploaders ends all deliveries; the next agent goes on with them.
func (a *Agent) stopUploaders() {
	a.mu.Lock()
	all := make([]*logUploader, 0, len(a.uploaders))
	for _, s := range a.uploaders {
		all = append(all, s)
	}

	a.mu.Unlock()

	for _, s := range all {
		s.cancel()
		<-s.done
	}
}

// run sends the output as it grows, to its end.
func (s *logUploader) run(ctx context.Context) {
	defer s.close()

	buf := make([]byte, 4<<10) // it grows with what there is

	for failures := 0; ctx.Err() == nil; {
		// Asked before reading: what is read after the end is the whole rest.
		complete := s.hasEnded()
		data, err := s.read(&buf)
		var final, moved bool

		if err == nil {
			final = complete && len(data) < api.MaxLogChunk // up to the end of the file
			if len(data) == 0 && !final {
				pause(ctx, pollLog, s.ended)
				continue
			}

			if final && s.reportedSilent(ctx) {
				s.delivered.Store(true)
				notify(s.agent.reconcileSoon)

				return
			}

			moved, err = s.upload(ctx, data, final)
		}

		if ctx.Err() != nil {
			return
		}

		s.agent.noteProblem(fmt.Sprintf("log upload of %s rank %d", s.key.run, s.key.rank), err)

		switch {
		case err == nil && s.delivered.Load():
			notify(s.agent.reconcileSoon)
			return
		case err == nil && moved:
			failures = 0
		default:
			failures++
			s.close() // what is read next begins at the offset
			clock.Sleep(ctx, job.Backoff(failures, minRetryWait, maxRetryWait))
		}
	}
}

// reportedSilent waits until the server has taken from a report that the rank has printed nothing, and reports whether
// it has.
func (s *logUploader) reportedSilent(ctx context.Context) bool {
	if !s.silent || !s.agent.takesSilent.Load() {
		return false
	}

	pause(ctx, silentPatience, s.heard)

	select {
	case <-s.heard:
		return true
	default:
		return false
	}
}

func (s *logUploader) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// read returns what there is from the offset on, up to one upload. The buffer
// grows with what there is.
func (s *logUploader) read(buf *[]byte) ([]byte, error) {
	if s.log == nil {
		log, size, err := s.agent.rt.OpenLog(s.key.run, s.key.rank, s.offset)
		if err != nil {
			return nil, err
		}

		s.log = log
		if s.offset > size {
			// A power cut took the end that was already delivered.
			s.agent.log.Warn(
				"server has more output than the node",
				"run",
				s.key.run,
				"rank",
				s.key.rank,
				"server",
				s.offset,
				"node",
				size,
			)
		}
	}

	n := 0
	for {
		m, err := s.log.Read((*buf)[n:])
		n += m
		if errors.Is(err, io.EOF) || err == nil && m == 0 {
			return (*buf)[:n], nil
		}
		if err != nil {
			return nil, err
		}
		if n == api.MaxLogChunk {
			return (*buf)[:n], nil
		}

		if n == len(*buf) {
			*buf = append(*buf, make([]byte, min(n, api.MaxLogChunk-n))...)
		}
	}
}

// upload uploads data at the offset and goes to where the server says it is. It
// reports whether the server moved.
func (s *logUploader) upload(ctx context.Context, data []byte, final bool) (moved bool, err error) {
	select {
	case s.agent.uploads <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}

	defer func() { <-s.agent.uploads }()

	call, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()

	reply, err := s.agent.client.Load().UploadLog(call, s.key.run, s.uid, s.key.rank, s.offset, data, final)

	var f *fault.Error
	if errors.As(err, &f) && (f.Kind == fault.NotFound || f.Code == api.CodeOtherRun) {
		s.agent.log.Warn("run unknown to the server, its output stays here", "run", s.key.run, "rank", s.key.rank)
		s.unknown.Store(true)
		s.delivered.Store(true)

		return true, nil
	}

	if err != nil {
		return false, err
	}
	if reply.Offset < 0 {
		return false, fmt.Errorf("server returned invalid offset %d", reply.Offset)
	}

	end := s.offset + int64(len(data))
	if reply.Offset == end {
		s.agent.metrics.logBytes.Add(float64(len(data)))
		s.offset = end
		// A server of an earlier version does not say whether it has taken an end that came with data: it is sent once
		// more, alone.
		s.delivered.Store(final && (reply.Ended || len(data) == 0))

		return true, nil
	}

	moved = reply.Offset != s.offset
	s.offset = reply.Offset
	s.close()

	return moved, nil
}

// close closes the log; the next read opens it at the offset.
func (s *logUploader) close() {
	if s.log != nil {
		_ = s.log.Close() // it was only read
		s.log = nil
	}
}
