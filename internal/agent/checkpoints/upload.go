package checkpoints

import (
	"context"
	"sync"
	"time"

	"trainyard/internal/clock"
)

// Upload is an upload of files of a rank in the background, of its checkpoints (Saver) or of its output files (Keeper).
// The end of the rank is held back for it, until it has finished or has stood still for too long.
type Upload struct {
	opt    *Options
	cancel context.CancelFunc
	gone   chan struct{} // closed when it has stopped

	mu       sync.Mutex
	held     time.Time // since when the end of the rank is held back without progress; zero if it is not
	progress *transfer // of what is being uploaded, nil if nothing is
	finished bool      // everything is stored, or cannot be
	problem  error     // why it cannot be
}

// begin lets run do the upload in the background.
func (u *Upload) begin(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel, u.gone = cancel, make(chan struct{})

	go func() {
		defer close(u.gone)

		run(ctx)
	}()
}

// Finished reports whether everything is stored or cannot be, and why not.
func (u *Upload) Finished() (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.finished, u.problem
}

// Progress describes what is being uploaded, "" if nothing is.
func (u *Upload) Progress() string {
	u.mu.Lock()
	defer u.mu.Unlock()

	if u.progress == nil {
		return ""
	}

	return u.progress.words()
}

// Stop ends the upload; another one continues, and uploads only what is missing.
func (u *Upload) Stop() {
	u.cancel()
	<-u.gone
}

// settle records that nothing more will be uploaded.
func (u *Upload) settle(problem error) {
	u.mu.Lock()
	u.finished, u.problem = true, problem
	u.mu.Unlock()
	u.opt.Changed()
}

// show makes visible what is being uploaded, nil if nothing is.
func (u *Upload) show(progress *transfer) {
	u.mu.Lock()
	u.progress = progress
	u.mu.Unlock()
	u.opt.Changed()
}

// stuck reports whether the end of the rank has been held back for too long without progress.
func (u *Upload) stuck() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.held.IsZero() && u.opt.Clock.Now().Sub(u.held) > u.opt.Patience
}

// moved records when something was uploaded last.
func (u *Upload) moved(at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()

	if !u.held.IsZero() && at.After(u.held) {
		u.held = at
	}
}

// bounded ends what is being uploaded when the upload is stuck.
func (u *Upload) bounded(ctx context.Context, progress *transfer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup

	watching.Go(func() {
		for clock.Sleep(ctx, u.opt.Every) {
			u.moved(progress.lastMoved())
			u.opt.Changed()

			if u.stuck() {
				cancel()
			}
		}
	})

	return ctx, func() {
		cancel()
		watching.Wait()
	}
}
