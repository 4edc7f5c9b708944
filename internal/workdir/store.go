package workdir

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"trainyard/internal/clock"
)

// Store keeps contents on a node, each in a file named by its digest, so that a
// file that several runs share is fetched once. When it grows past its limit
// the contents that were not used for the longest time go. Its files are
// copied into working directories and never linked, because jobs may edit
// their files in place. It is safe for concurrent use; one process at a time
// may have a folder open.
type Store struct {
	dir   string
	limit int64
	clk   clock.Clock

	mu      sync.Mutex
	size    int64
	byUse   *list.List // of *content, the newest in front
	known   map[string]*list.Element
	pending map[string]chan struct{} // fetches under way
}

type content struct {
	digest string
	size   int64
}

// OpenStore opens the store in dir, or makes it. Contents of earlier processes
// are still there; what was half written is removed. Contents are not forced to
// disk: one that a power cut damaged is noticed by its digest when it is used.
func OpenStore(dir string, limit int64, clk clock.Clock) (*Store, error) {
	s := &Store{
		dir:     dir,
		limit:   limit,
		clk:     clk,
		byUse:   list.New(),
		known:   map[string]*list.Element{},
		pending: map[string]chan struct{}{},
	}

	if err := os.RemoveAll(s.tmp()); err != nil {
		return nil, fmt.Errorf("clear content cache: %w", err)
	}
	if err := os.MkdirAll(s.tmp(), 0o700); err != nil {
		return nil, fmt.Errorf("create content cache: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open content cache: %w", err)
	}

	return s, nil
}

// load finds what is there, by the time of its last use.
func (s *Store) load() error {
	type found struct {
		content
		used time.Time
	}

	var all []found

	err := filepath.WalkDir(s.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isDigest(entry.Name()) {
			return err
		}

		info, err := entry.Info()
		if err != nil {
			return err
		}

		all = append(all, found{content{entry.Name(), info.Size()}, info.ModTime()})

		return nil
	})
	if err != nil {
		return err
	}

	slices.SortFunc(all, func(a, b found) int { return a.used.Compare(b.used) })
	for _, f := range all {
		s.known[f.digest] = s.byUse.PushFront(&content{f.digest, f.size})
		s.size += f.size
	}

	return s.shrink()
}

func (s *Store) tmp() string               { return filepath.Join(s.dir, "tmp") }
func (s *Store) path(digest string) string { return filepath.Join(s.dir, digest[:2], digest) }

// Size returns the bytes that the store holds.
func (s *Store) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Open returns a content, which it gets by fetch and keeps if it is not there
// yet. Callers that want the same content at the same time share one fetch. The
// reader fails at its end if the content was damaged on the disk, and the store
// forgets it then, so that the next Open fetches it again.
func (s *Store) Open(ctx context.Context, digest string, fetch Fetch) (io.ReadCloser, error) {
	if !isDigest(digest) {
		return nil, badManifest("", "has an invalid digest %.80q", digest)
	}

	for {
		f, wait, err := s.find(digest)
		if err != nil || f != nil {
			return f, err
		}

		if wait != nil {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}

		f, err = s.bring(ctx, digest, fetch)

		return f, err
	}
}

// find returns the content, or a channel that closes when another caller's
// fetch of it is over. If it returns neither, the caller has the fetch.
func (s *Store) find(digest string) (io.ReadCloser, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if wait, ok := s.pending[digest]; ok {
		return nil, wait, nil
	}

	if e, ok := s.known[digest]; ok {
		f, err := s.use(e)
		if err == nil {
			return f, nil, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("open cached content: %w", err)
		}

		s.drop(e) // someone cleared the folder behind our back
	}

	s.pending[digest] = make(chan struct{})

	return nil, nil, nil
}

// use opens a known content and notes that it is used now. The caller holds mu.
func (s *Store) use(e *list.Element) (io.ReadCloser, error) {
	digest := e.Value.(*content).digest
	f, err := os.Open(s.path(digest))
	if err != nil {
		return nil, err
	}

	now := s.clk.Now()
	if err := os.Chtimes(s.path(digest), now, now); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}

	s.byUse.MoveToFront(e)

	return &checked{f: f, hash: sha256.New(), digest: digest, store: s}, nil
}

// bring fetches a content into the store and opens it.
func (s *Store) bring(ctx context.Context, digest string, fetch Fetch) (f io.ReadCloser, err error) {
	size, err := s.download(ctx, digest, fetch)
	s.mu.Lock()
	defer s.mu.Unlock()

	close(s.pending[digest])
	delete(s.pending, digest)

	if err != nil {
		return nil, err
	}

	e := s.byUse.PushFront(&content{digest, size})
	s.known[digest] = e
	s.size += size

	// Opened before the others are shrunk away, so that it cannot go itself.
	f, err = s.use(e)
	if err != nil {
		return nil, fmt.Errorf("open cached content: %w", err)
	}

	if err := s.shrink(); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("shrink content cache: %w", err)
	}

	return f, nil
}

// download writes a content to its place, if its digest is right.
func (s *Store) download(ctx context.Context, digest string, fetch Fetch) (size int64, err error) {
	in, err := fetch(ctx, digest)
	if err != nil {
		return 0, err
	}

	defer func() { _ = in.Close() }() // the digest tells whether all was read

	out, err := os.CreateTemp(s.tmp(), "content-*")
	if err != nil {
		return 0, fmt.Errorf("cache content: %w", err)
	}

	sum := sha256.New()
	size, err = io.Copy(io.MultiWriter(out, sum), cancellable(ctx, in))
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}

	if err == nil && hex.EncodeToString(sum.Sum(nil)) != digest {
		err = damaged(digest)
	}

	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.path(digest)), 0o700)
	}

	if err == nil {
		err = os.Rename(out.Name(), s.path(digest))
	}

	if err != nil {
		_ = os.Remove(out.Name()) // the first error is the one that counts
		return 0, fmt.Errorf("cache content: %w", err)
	}

	return size, nil
}

// shrink removes what was not used for the longest time until the rest is
// within the limit. The newest stays even if it alone is over it: it is being
// used. The caller holds mu.
func (s *Store) shrink() error {
	for s.size > s.limit && s.byUse.Len() > 1 {
		e := s.byUse.Back()
		if err := os.Remove(s.path(e.Value.(*content).digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		s.drop(e)
	}

	return nil
}

func (s *Store) drop(e *list.Element) {
	c := s.byUse.Remove(e).(*content)
	delete(s.known, c.digest)
	s.size -= c.size
}

// forget removes a content that turned out to be damaged.
func (s *Store) forget(digest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if e, ok := s.known[digest]; ok {
		s.drop(e)
		return os.Remove(s.path(digest))
	}

	return nil
}

// checked is a stored content that is checked while it is read.
type checked struct {
	f      *os.File
	hash   hash.Hash
	digest string
	store  *Store
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	c.hash.Write(p[:n])

	if err == io.EOF && hex.EncodeToString(c.hash.Sum(nil)) != c.digest {
		return n, errors.Join(damaged(c.digest), c.store.forget(c.digest))
	}

	return n, err
}

func (c *checked) Close() error { return c.f.Close() }
