package checkpoints

import (
	"context"
	"sync"
)

// group runs functions at the same time until the first fails.
type group struct {
	ctx    context.Context //nolint:containedctx // lives as long as the group
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup
}

func newGroup(ctx context.Context) *group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &group{ctx: ctx, cancel: cancel}
}

// run starts a function.
func (g *group) run(fn func(ctx context.Context) error) {
	g.tasks.Go(func() {
		if err := fn(g.ctx); err != nil {
			g.cancel(err)
		}
	})
}

// wait waits for all and returns the first error.
func (g *group) wait() error {
	g.tasks.Wait()
	err := context.Cause(g.ctx)
	g.cancel(nil)

	return err
}
