// Package upload carries a working directory to the yard.
//
// Only what the yard lacks is sent, a few files at a time, each by the digest
// of its content, and the list of files last: a list that is there is
// complete. The package reads the folder through the tree it is given and
// keeps nothing. cli calls it before a job is submitted.
package upload

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"trainyard/internal/api"
	"trainyard/internal/cli/follow"
	"trainyard/internal/fault"
)

const (
	maxDigests = 10000 // that the server is asked about at once
	uploaders  = 8
	// Files below this size are sent as they are: packing them gains nothing.
	packFrom = 1 << 10
)

// Content is a working directory to send.
type Content struct {
	Digest   string // names the directory
	Manifest api.Manifest
	Encoded  []byte // the manifest as its digest was made from
	Open     func(digest string) (io.ReadCloser, error)
}

// Progress is how far an upload is.
type Progress struct {
	Files, AllFiles int   // that are sent, and to send
	Bytes, AllBytes int64 // of these
}

// tally counts what is sent.
type tally struct {
	mu   sync.Mutex
	now  Progress
	show func(Progress)
}

func (t *tally) add(files int, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.now.Files += files
	t.now.Bytes += bytes
	t.show(t.now)
}

// sending counts the bytes of a content while they are read. What is sent again is counted once.
type sending struct {
	io.Reader
	tally *tally
	n     int64
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.n += int64(n)
	s.tally.add(0, int64(n))

	return n, err
}

// takeBack is called if the content was not taken.
func (s *sending) takeBack() { s.tally.add(0, -s.n) }

// Upload sends the files that the yard lacks and the manifest last, so that a
// manifest that is there is complete.
func Upload(ctx context.Context, client *api.Client, content Content, progress func(Progress)) error {
	digests := []string{content.Digest}
	for _, f := range content.Manifest.Files {
		if f.Digest != "" {
			digests = append(digests, f.Digest)
		}
	}

	missing, err := lacks(ctx, client, digests)
	if err != nil {
		return err
	}

	files := slices.DeleteFunc(slices.Clone(missing), func(d string) bool { return d == content.Digest })
	if err := uploadFiles(ctx, client, content, files, progress); err != nil {
		return err
	}
	if len(files) == len(missing) {
		return nil // the manifest is there
	}
	if err := put(ctx, client, content.Digest, int64(len(content.Encoded)), bytes.NewReader(content.Encoded)); err != nil {
		return fmt.Errorf("upload the list of files: %w", err)
	}

	return nil
}

// lacks returns those of the digests whose contents the yard lacks, each once.
func lacks(ctx context.Context, client *api.Client, digests []string) ([]string, error) {
	digests = slices.Compact(slices.Sorted(slices.Values(digests)))

	var missing []string
	for part := range slices.Chunk(digests, maxDigests) {
		some, err := client.MissingFiles(ctx, part)
		if err != nil {
			return nil, fmt.Errorf("ask which files are needed: %w", err)
		}

		missing = append(missing, some...)
	}

	return missing, nil
}

// uploadFiles sends files, a few at a time, and stops at the first error.
func uploadFiles(
	ctx context.Context, client *api.Client, content Content, files []string, progress func(Progress),
) error {
	found := map[string]api.ManifestFile{}
	for _, f := range content.Manifest.Files {
		found[f.Digest] = f
	}

	t := &tally{show: progress, now: Progress{AllFiles: len(files)}}
	for _, digest := range files {
		t.now.AllBytes += found[digest].Size
	}

	return each(ctx, files, func(ctx context.Context, digest string) error {
		f := found[digest]
		if err := uploadFile(ctx, client, content, f, t); err != nil {
			return fmt.Errorf("upload %s: %w", f.Path, err)
		}

		t.add(1, 0)

		return nil
	})
}

// each calls a function for all items, a few at a time, and stops at the first error.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	work := make(chan T)
	var group sync.WaitGroup

	for range min(uploaders, len(items)) {
		group.Go(func() {
			for item := range work {
				if err := do(ctx, item); err != nil {
					stop(err)
					return
				}
			}
		})
	}

	for _, item := range items {
		select {
		case work <- item:
			continue
		case <-ctx.Done():
		}

		break
	}

	close(work)
	group.Wait()

	return context.Cause(ctx)
}

// uploadAttempts bounds how often a file is sent again when the yard does not answer.
const uploadAttempts = 4

func uploadFile(ctx context.Context, client *api.Client, content Content, f api.ManifestFile, t *tally) error {
	body, err := content.Open(f.Digest)
	if err != nil {
		return err
	}

	defer func() { _ = body.Close() }()

	if file, ok := body.(io.ReaderAt); ok && f.Size >= inPartsFrom {
		err = uploadInParts(ctx, client, file, f, t)
	} else {
		err = patiently(ctx, func() error { return uploadWhole(ctx, client, content, f, t) })
	}

	if kind := fault.KindOf(err); kind == fault.Invalid || kind == fault.Conflict {
		return fmt.Errorf("it may have changed while it was read, submit again: %w", err)
	}

	return err
}

func uploadWhole(ctx context.Context, client *api.Client, content Content, f api.ManifestFile, t *tally) error {
	body, err := content.Open(f.Digest)
	if err != nil {
		return err
	}

	defer func() { _ = body.Close() }()

	return send(ctx, client, f.Digest, f.Size, body, t)
}

// send sends one content and counts it.
func send(ctx context.Context, client *api.Client, digest string, size int64, body io.Reader, t *tally) error {
	counted := &sending{Reader: body, tally: t}
	err := put(ctx, client, digest, size, counted)
	if err != nil {
		counted.takeBack()
	}

	return err
}

// patiently calls a function again while the yard does not answer.
func patiently(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if !temporary(err) || attempt == uploadAttempts || !follow.Backoff(ctx, attempt) {
			return err
		}
	}
}

// temporary reports whether an upload that failed may succeed in a moment: the server does not answer, or others
// of this user's uploads are under way.
func temporary(err error) bool {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == api.CodeTooManyUploads {
		return true
	}

	return fault.KindOf(err) == fault.Unavailable
}

// put sends one content, packed while it is read where that may pay.
func put(ctx context.Context, client *api.Client, digest string, length int64, body io.Reader) error {
	if length < packFrom {
		return client.PutFile(ctx, digest, "", body)
	}

	read, write := io.Pipe()
	var group sync.WaitGroup
	group.Go(func() {
		packer, err := gzip.NewWriterLevel(write, gzip.BestSpeed)
		if err == nil {
			_, err = io.Copy(packer, body)
			if err == nil {
				err = packer.Close()
			}
		}

		write.CloseWithError(err) // nil ends the body as it should
	})

	err := client.PutFile(ctx, digest, "gzip", read)
	_ = read.Close() // lets the packer go where the server refused early; its error is the packer's
	group.Wait()

	return err
}
