package server

import (
	"context"
	"errors"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
)

// recheck is how often what the caller of a request that lasts may do is looked at, if nothing tells that it changed.
const recheck = 10 * time.Second

// lasting bounds a request that lasts, such as a live feed or a download, by the access of its caller: the context ends
// when their token is revoked or expires, their account is disabled, or they may do less or more than at its beginning.
// The cause of the context says why. stop must be called in the end.
func (s *Server) lasting(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	who := callerOf(parent)
	done := make(chan struct{})

	go func() {
		defer close(done)

		for {
			changed := s.Directory.Changed() // before looking, so that nothing is missed
			left, err := s.stillMay(who)
			if err != nil {
				cancel(err)
				return
			}
			if clock.Wait(ctx, min(left, recheck), changed) == clock.Ended {
				return
			}
		}
	}()

	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// stillMay returns nil while a caller may do what they could when their request began, and for how long at most.
func (s *Server) stillMay(who caller) (time.Duration, error) {
	now := s.Clock.Now()
	present, expires, err := s.Directory.Recheck(who.token, now)
	if err != nil {
		return 0, err
	}

	if !present.Equal(who.Caller) {
		return 0, fault.New(fault.Denied, "access_changed", "what %s may see has changed since the request began", who.User).
			WithRemedy("start it again")
	}

	return expires.Sub(now), nil
}

// endFeed tells the caller of a live feed why it ended, if they did not end it themselves.
func (s *Server) endFeed(ctx context.Context, err error, out *httpapi.Stream, what string) {
	var ended *fault.Error
	switch {
	case errors.As(context.Cause(ctx), &ended):
		s.Log.InfoContext(ctx, "a live feed ended with the access of its caller", "feed", what, "reason", ended.Error())
		out.Send("", "error", httpapi.ToProblem(ended))
	case err != nil && ctx.Err() == nil:
		s.Log.WarnContext(ctx, "a live feed ended", "feed", what, "error", err)
		out.Send("", "error", httpapi.ToProblem(err))
	}
}
