package collector

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"iter"
	"sync"
	"time"

	"trainyard/internal/blob"
)

// Guard is a blob store that remembers which blobs it lately gave out, reported as present, took or allowed others to
// put. Such a blob may be about to be referred to: whoever was answered that it is there does not upload it again. The
// collector removes blobs through the guard, which refuses those.
type Guard struct {
	blobs blob.Store
	seed  maphash.Seed

	mu       sync.Mutex
	began    time.Time             // when newer was begun
	newer    set                   // names that were used since
	older    set                   // names that were used before
	removing map[key]chan struct{} // closed when the blob is gone
}

// key stands for the name of a blob. Two names with the same key are taken for one, and then one of them may be kept
// for nothing; a blob that is used is never missed.
type key uint64

type set map[key]struct{}

func (s set) has(k key) bool {
	_, ok := s[k]
	return ok
}

// NewGuard guards the blobs of a store.
func NewGuard(blobs blob.Store, now time.Time) *Guard {
	return &Guard{
		blobs: blobs, seed: maphash.MakeSeed(), began: now,
		newer: set{}, older: set{}, removing: map[key]chan struct{}{},
	}
}

// Store returns the guarded store. It can sign requests if the store can, and is local if the store is.
func (g *Guard) Store() blob.Store {
	switch store := g.blobs.(type) {
	case blob.Signer:
		return &signing{guarded{g}, store}
	case blob.Local:
		return &local{guarded{g}, store}
	default:
		return guarded{g}
	}
}

func (g *Guard) key(name string) key { return key(maphash.String(g.seed, name)) }

// use remembers that a blob is used. If it is being removed, it waits until it is gone: then the answer is right.
func (g *Guard) use(ctx context.Context, name string) error {
	k := g.key(name)
	for {
		g.mu.Lock()
		gone, removing := g.removing[k]
		if !removing {
			g.newer[k] = struct{}{}
		}
		g.mu.Unlock()

		if !removing {
			return nil
		}

		select {
		case <-gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// beginSweep forgets what was last used longer than a time ago. Whatever is used from then on, or was used
// within that time before, is not removed by the sweep, however long that takes.
func (g *Guard) beginSweep(now time.Time, within time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if now.Sub(g.began) > within {
		g.older, g.newer, g.began = g.newer, set{}, now
	}
}

// removal is what happens around the removal of blobs.
type removal struct {
	held   func() error                                      // fails when nothing may be removed any more
	forget func(ctx context.Context, removed []string) error // removes what is recorded of removed blobs
}

// remove removes blobs unless they were used lately, and what is recorded of them. It returns those that it has
// removed, also if it fails. Whoever asks for one of them meanwhile waits until both are gone.
func (g *Guard) remove(ctx context.Context, names []string, r removal) (removed []string, err error) {
	gone := make(chan struct{})
	unused := g.claim(names, gone)

	defer func() {
		g.mu.Lock()
		for _, name := range unused {
			delete(g.removing, g.key(name))
		}
		g.mu.Unlock()
		close(gone)
	}()

	for _, name := range unused {
		err = r.held()
		if err == nil {
			err = g.blobs.Delete(ctx, name)
		}
		if err != nil {
			break
		}

		removed = append(removed, name)
	}

	return removed, errors.Join(err, r.forget(ctx, removed))
}

// claim returns those of the blobs that were not used lately. Nobody uses them until gone is closed.
func (g *Guard) claim(names []string, gone chan struct{}) []string {
	g.mu.Lock()
	defer g.mu.Unlock()

	var unused []string
	for _, name := range names {
		k := g.key(name)
		if _, claimed := g.removing[k]; claimed || g.newer.has(k) || g.older.has(k) {
			continue // two names may have the same key; one of them stays until the next time
		}

		g.removing[k] = gone
		unused = append(unused, name)
	}

	return unused
}

// guarded is the store as those see it who use it.
type guarded struct{ guard *Guard }

var _ blob.Store = guarded{}

func (s guarded) Put(ctx context.Context, name string, r io.Reader) error {
	if err := s.guard.use(ctx, name); err != nil {
		return err
	}

	if err := s.guard.blobs.Put(ctx, name, r); err != nil {
		return err
	}

	return s.guard.use(ctx, name) // it may have taken long
}

func (s guarded) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := s.guard.use(ctx, name); err != nil {
		return nil, err
	}

	return s.guard.blobs.Get(ctx, name)
}

func (s guarded) GetRange(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := s.guard.use(ctx, name); err != nil {
		return nil, err
	}

	return s.guard.blobs.GetRange(ctx, name, offset, length)
}

func (s guarded) Stat(ctx context.Context, name string) (blob.Info, error) {
	if err := s.guard.use(ctx, name); err != nil {
		return blob.Info{}, err
	}

	return s.guard.blobs.Stat(ctx, name)
}

func (s guarded) Has(ctx context.Context, name string) (bool, error) {
	if err := s.guard.use(ctx, name); err != nil {
		return false, err
	}

	return s.guard.blobs.Has(ctx, name)
}

func (s guarded) Delete(ctx context.Context, name string) error {
	return s.guard.blobs.Delete(ctx, name)
}

func (s guarded) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return s.guard.blobs.List(ctx, prefix)
}

// signing is a guarded store that can sign requests.
type signing struct {
	guarded
	signer blob.Signer
}

var _ blob.Signer = (*signing)(nil)

func (s *signing) SignPut(
	ctx context.Context, name string, size int64, sha256 string, ttl time.Duration,
) (blob.Request, error) {
	if err := s.guard.use(ctx, name); err != nil {
		return blob.Request{}, err
	}

	return s.signer.SignPut(ctx, name, size, sha256, ttl)
}

func (s *signing) SignGet(ctx context.Context, name string, ttl time.Duration) (blob.Request, error) {
	if err := s.guard.use(ctx, name); err != nil {
		return blob.Request{}, err
	}

	return s.signer.SignGet(ctx, name, ttl)
}

// local is a guarded store in a folder. Whoever adds blobs to the folder past the server has asked before whether they
// are there, which is remembered.
type local struct {
	guarded
	blob.Local
}

var _ blob.Local = (*local)(nil)

func (s *local) Stage(ctx context.Context, name string, r io.Reader) error {
	if err := s.guard.use(ctx, name); err != nil {
		return err
	}

	if err := s.Local.Stage(ctx, name, r); err != nil {
		return err
	}

	return s.guard.use(ctx, name) // it may have taken long
}

func (s *local) Sync(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := s.guard.use(ctx, name); err != nil {
			return err
		}
	}

	return s.Local.Sync(ctx, names)
}
