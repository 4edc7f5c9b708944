package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/workdir"
)

// fetchTries is how often contents may arrive damaged before the run is given up.
const fetchTries = 3

// files makes the working directories of runs, from the node's content store
// and, for what is not there, from the server.
type files struct {
	agent  *Agent
	mu     sync.Mutex
	copies map[string]*fetchProgress // under way, by manifest digest
}

// fetchProgress is how far the fetching of one directory is.
type fetchProgress struct {
	users int // runs that wait for it
	total int64
	done  atomic.Int64
}

// materialise makes the folder dir from the manifest with this digest. It is
// what the runtime calls. A server that is away is waited for, since it is
// no fault of the run; ctx ends when the run is stopped.
func (f *files) materialise(ctx context.Context, digest, dir string) error {
	progress := f.begin(digest)
	defer f.end(digest)

	for damages, waits := 0, 0; ; {
		err := f.try(ctx, digest, dir, progress)
		var found *fault.Error
		switch {
		case err == nil:
			f.agent.noteProblem("file download", nil)
			return nil
		case ctx.Err() != nil || !errors.As(err, &found):
			return err
		case found.Code == "workdir_content_damaged":
			damages++
			if damages == fetchTries {
				return err
			}

			f.agent.log.Warn("downloaded content is corrupt, downloading it again", "manifest", digest, "error", err)
		case found.Kind == fault.Unavailable:
			waits++
			f.agent.noteProblem("file download", err)
			clock.Sleep(ctx, job.Backoff(waits, minRetryWait, maxRetryWait))
		default:
			return err
		}
	}
}

func (f *files) try(ctx context.Context, digest, dir string, progress *fetchProgress) error {
	text, err := f.open(ctx, digest)
	if err != nil {
		return fmt.Errorf("fetch the manifest: %w", err)
	}

	m, err := workdir.Decode(text)
	if err := errors.Join(err, text.Close()); err != nil {
		return fmt.Errorf("read the manifest: %w", err)
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
		content, err := f.agent.client.Load().FetchFile(ctx, digest)
		if err != nil {
			return nil, err
		}

		return download{content}, nil
	})
}

// download is a content on its way. That its connection broke off is told from
// other failures: it can be fetched again.
type download struct{ io.ReadCloser }

// Read reads on.
func (d download) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fault.New(fault.Unavailable, "unreachable", "connection to the server lost: %v", err).WithCause(err)
	}

	return n, err
}

func (f *files) begin(digest string) *fetchProgress {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.copies == nil {
		f.copies = map[string]*fetchProgress{}
	}

	c := f.copies[digest]
	if c == nil {
		c = &fetchProgress{}
		f.copies[digest] = c
	}

	c.users++

	return c
}

func (f *files) end(digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if c := f.copies[digest]; c != nil {
		c.users--
		if c.users == 0 {
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
