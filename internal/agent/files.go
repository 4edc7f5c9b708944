package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/workdir"
)

// fetchTries is how often a folder is made before its run is given up.
const fetchTries = 3

// files makes the working directories of runs, from the node's content store
// and, for what is not there, from the server.
type files struct {
	agent  *Agent
	mu     sync.Mutex
	copies map[string]*copying // under way, by manifest digest
}

// copying is how far the fetching of one directory is.
type copying struct {
	users int // runs that wait for it
	total int64
	done  atomic.Int64
}

// materialise makes the folder dir from the manifest with this digest. It is
// what the runtime calls.
func (f *files) materialise(ctx context.Context, digest, dir string) error {
	progress := f.begin(digest)
	defer f.end(digest)
	var err error
	for range fetchTries {
		if err = f.try(ctx, digest, dir, progress); err == nil {
			return nil
		}
		// Only what was damaged on the way is better the next time.
		var damage *fault.Error
		if ctx.Err() != nil || !errors.As(err, &damage) || damage.Code != "workdir_content_damaged" {
			return err
		}
		f.agent.log.Warn("content was damaged, fetching it again", "manifest", digest, "error", err)
	}
	return err
}

func (f *files) try(ctx context.Context, digest, dir string, progress *copying) error {
	text, err := f.open(ctx, digest)
	if err != nil {
		return fmt.Errorf("fetch the list of files: %w", err)
	}
	m, err := workdir.Decode(text)
	if err := errors.Join(err, text.Close()); err != nil {
		return fmt.Errorf("read the list of files: %w", err)
	}
	sizes := make(map[string]int64, len(m.Files))
	var total int64
	for _, file := range m.Files {
		sizes[file.Digest] = file.Size
		total += file.Size
	}
	f.mu.Lock()
	progress.total = total
	f.mu.Unlock()
	return workdir.Materialise(ctx, m, dir, func(ctx context.Context, digest string) (io.ReadCloser, error) {
		content, err := f.open(ctx, digest)
		progress.done.Add(sizes[digest])
		return content, err
	})
}

// open returns a content from the store or, through it, from the server.
func (f *files) open(ctx context.Context, digest string) (io.ReadCloser, error) {
	return f.agent.contents.Open(ctx, digest, func(ctx context.Context, digest string) (io.ReadCloser, error) {
		return f.agent.yard.Load().FetchFile(ctx, digest)
	})
}

func (f *files) begin(digest string) *copying {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.copies == nil {
		f.copies = map[string]*copying{}
	}
	c := f.copies[digest]
	if c == nil {
		c = &copying{}
		f.copies[digest] = c
	}
	c.users++
	return c
}

func (f *files) end(digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.copies[digest]; c != nil {
		if c.users--; c.users == 0 {
			delete(f.copies, digest)
		}
	}
}

// busy reports whether any directory is being made.
func (f *files) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.copies) > 0
}

// progress says in words how far the fetching of a directory is, "" if none is
// under way. People see it as the reason for which a run still prepares.
func (f *files) progress(digest string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.copies[digest]
	if c == nil || c.total == 0 {
		return ""
	}
	total := c.total * int64(c.users)
	return fmt.Sprintf("fetching files: %s of %s", job.Bytes(min(c.done.Load(), total)).Short(), job.Bytes(total).Short())
}
