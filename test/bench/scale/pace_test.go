package scale

import (
	"context"
	"errors"
	"testing"
	"time"

	"trainyard/internal/clock"
)

func TestPaceEndsWithItsContextAndWithAFailure(t *testing.T) {
	t.Parallel()

	calls := 0
	ctx, cancel := context.WithCancel(t.Context())

	err := Pace(ctx, clock.Wall{}, 1e6, func(context.Context) error {
		calls++
		if calls == 5 {
			cancel()
			return ctx.Err() // as a call that is cut off
		}

		return nil
	})
	if err != nil || calls != 5 {
		t.Errorf("after the end of the context: %d calls, error %v; want 5 and none", calls, err)
	}

	broken := errors.New("broken")
	err = Pace(t.Context(), clock.Wall{}, 1e6, func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("a call that fails: error %v, want %v", err, broken)
	}
}

func TestLatenciesLeaveOutCallsThatFail(t *testing.T) {
	t.Parallel()

	l := NewLatencies(clock.Wall{})
	broken := errors.New("broken")

	if err := l.Of(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := l.Of(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}

	l.Add(time.Second)

	if got := l.All(); len(got) != 2 || got[1] != time.Second {
		t.Errorf("latencies = %v, want two, the second of 1s", got)
	}
}
