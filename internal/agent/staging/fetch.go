package staging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"trainyard/internal/dataset"
	"trainyard/internal/job"
)

// fetch is the download or copy of one dataset. All ranks that need the dataset wait for the same
// fetch.
type fetch struct {
	located
	dir    string // directory of the cache entry
	done   chan struct{}
	err    error // valid once done is closed
	cancel context.CancelFunc
	users  int  // ranks that wait for it; guarded by Cache.mu
	dying  bool // the last waiting rank has left, so no other may join; guarded by Cache.mu

	got      atomic.Int64
	total    atomic.Int64 // bytes; 0 if unknown
	reserved atomic.Int64 // bytes for which there is room
	trouble  atomic.Pointer[string]
}

// words describes the progress of the fetch for people.
func (f *fetch) words() string {
	text := fmt.Sprintf("fetching dataset %s: %s so far", f.ref.Name, job.Bytes(f.got.Load()).Short())
	if total := f.total.Load(); total > 0 {
		text = fmt.Sprintf(
			"fetching dataset %s: %s of %s",
			f.ref.Name,
			job.Bytes(min(f.got.Load(), total)).Short(),
			job.Bytes(total).Short(),
		)
	}

	if why := f.trouble.Load(); why != nil {
		text += "; " + *why
	}

	return text
}

// bring waits until a dataset is in the cache, and starts a fetch unless one is already under way.
func (c *Cache) bring(ctx context.Context, h *hold, p located) error {
	for {
		c.mu.Lock()

		if e := c.entries[p.key]; e != nil {
			c.touch(e)
			c.mu.Unlock()
			return nil
		}

		f := c.fetches[p.key]
		if f == nil {
			f = c.begin(p)
		}

		joined := !f.dying
		if joined {
			f.users++
			h.waits = f
		}

		c.mu.Unlock()

		select {
		case <-f.done:
		case <-ctx.Done():
		}

		if joined {
			return c.leave(ctx, h, f)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// leave is called by each waiting rank when the fetch has ended or the rank stops waiting. The last
// rank to leave an unfinished fetch cancels it.
func (c *Cache) leave(ctx context.Context, h *hold, f *fetch) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	h.waits = nil

	f.users--
	select {
	case <-f.done:
		return f.err
	default:
	}

	if f.users == 0 {
		f.dying = true
		f.cancel()
	}

	return ctx.Err()
}

// begin starts a fetch. The caller holds c.mu.
func (c *Cache) begin(p located) *fetch {
	ctx, cancel := context.WithCancel(c.ctx)
	f := &fetch{located: p, dir: filepath.Join(c.opt.Dir, p.key), done: make(chan struct{}), cancel: cancel}
	c.fetches[p.key] = f
	c.tasks.Go(func() {
		defer cancel()

		e, err := c.obtain(ctx, f)
		c.mu.Lock()
		delete(c.fetches, p.key)

		f.err = err
		if err == nil {
			c.entries[p.key] = e
		}

		close(f.done)
		c.mu.Unlock()

		if err == nil {
			c.opt.Log.Info("dataset fetched", "dataset", p.ref.Name, "size", e.Size)
		} else if ctx.Err() == nil {
			c.opt.Log.Warn("dataset cannot be fetched", "dataset", p.ref.Name, "error", err)
		}

		c.opt.Changed()
	})

	return f
}

// obtain fetches a dataset into its entry.
func (c *Cache) obtain(ctx context.Context, f *fetch) (*entry, error) {
	//nolint:gosec // programs that run as other users may read it
	if err := os.MkdirAll(filepath.Join(f.dir, partDir, contentDir), 0o755); err != nil {
		return nil, failed(f.ref.Name, "%v", err)
	}

	var err error
	if f.src.Kind == dataset.SourceFile {
		err = c.copyFrom(ctx, f)
	} else {
		err = c.download(ctx, f)
	}

	if err != nil {
		return nil, err
	}

	e, err := c.finish(f.located, job.Bytes(f.got.Load()))
	if err != nil {
		return nil, failed(f.ref.Name, "%v", err)
	}

	return e, nil
}

// target returns the path of the file or directory that is being fetched.
func (f *fetch) target() string { return filepath.Join(f.dir, partDir, contentDir, f.base) }

// from names the source as it may be shown to people: without credentials.
func (f *fetch) from() string { return dataset.Redacted(f.src.At) }

// discard deletes the bytes fetched so far.
func (f *fetch) discard() error {
	f.got.Store(0)
	return errors.Join(os.RemoveAll(f.target()), os.RemoveAll(filepath.Join(f.dir, fromFile)))
}

// slack is the fraction by which the size of the data may differ from the registered size, because
// people register rounded sizes.
const slack = 0.1

// sized compares the size that the source reports with the registered size, and returns a fault if
// they differ by more than slack.
func (f *fetch) sized(size int64) error {
	want := float64(f.ref.Size)
	if want == 0 || float64(size) <= want*(1+slack) && float64(size) >= want*(1-slack) {
		return nil
	}

	return failed(
		f.ref.Name,
		"registered size is %s but %s has %s",
		f.ref.Size.Short(),
		f.from(),
		job.Bytes(size).Short(),
	).
		WithRemedy("correct its size or its source")
}
