package clock

import (
	"context"
	"time"
)

// Progress returns a context that ends with context.DeadlineExceeded as its cause when moved is not called for d.
// It is for work that may take long but must not stand still. stop must be called in the end.
func Progress(parent context.Context, d time.Duration) (ctx context.Context, moved, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	t := time.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })

	return ctx, func() { t.Reset(d) }, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}
