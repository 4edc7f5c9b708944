package server

import (
	"context"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/clock"
	"trainyard/internal/server/stream"
)

// streaming marks an operation as a live feed in the description.
func streaming(op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Server-sent events; each item's id is the cursor to go on after it.",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}},
	}}
	return op
}

// followBatch is how many lines are sent between two looks at the caller.
const followBatch = 500

func (s *Server) followLogs(ctx context.Context, in *logInput) (*huma.StreamResponse, error) {
	r, err := s.openLogs(ctx, in)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		req, w := humago.Unwrap(hc)
		out := stream.New(w)
		if err := s.sendLogs(req.Context(), r, out); err != nil && req.Context().Err() == nil {
			s.Log.WarnContext(req.Context(), "following logs ended", "job", r.job.ID, "error", err)
			out.Send("", "error", toProblem(err))
		}
	}}, nil
}

// sendLogs sends lines as they come, and the job whenever its state changes.
func (s *Server) sendLogs(ctx context.Context, r *logReader, out *stream.Stream) error {
	seen := r.job.Seq
	r.marking = true
	if !out.Send("", "state", toJob(&r.job)) {
		return nil
	}
	defer s.Feed.Leave(r.job.ID)
	for {
		feed, lost := s.Feed.OfJob(r.job.ID), s.roster.waitLost() // before looking, so that nothing is missed
		if err := r.refresh(ctx); err != nil {
			return err
		}
		lines, wait, done, err := r.next(ctx, followBatch)
		if err != nil {
			return err
		}
		for i := range lines {
			if !out.Send(r.marks[i], "", lines[i]) {
				return nil
			}
		}
		if r.job.Seq != seen {
			seen = r.job.Seq
			if !out.Send("", "state", toJob(&r.job)) {
				return nil
			}
		}
		if done {
			out.Send("", "end", toJob(&r.job))
			return nil
		}
		if len(lines) >= followBatch {
			continue
		}
		if !s.waitAny(ctx, out, append(slices.Clone(wait), feed, lost)) {
			return nil
		}
	}
}

// keepAlive is how often something is sent on a quiet stream, so that proxies leave it open.
const keepAlive = 10 * time.Second

// waitAny waits until one of the channels is closed. It returns false when the caller is gone.
func (s *Server) waitAny(ctx context.Context, out *stream.Stream, channels []<-chan struct{}) bool {
	woken := make(chan struct{}, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	for _, c := range channels {
		go func() {
			select {
			case <-c:
				select {
				case woken <- struct{}{}:
				default:
				}
			case <-waiting.Done():
			}
		}()
	}
	for {
		switch clock.Wait(ctx, keepAlive, woken) {
		case clock.Woken:
			return true
		case clock.Ended:
			return false
		case clock.Passed:
			if !out.Comment() {
				return false
			}
		}
	}
}
