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

// Progress receives how many of the files, and bytes, have been sent.
type Progress func(files, of int, bytes int64)

// Upload sends the files that the yard lacks and the manifest last, so that a
// manifest that is there is complete.
func Upload(ctx context.Context, client *api.Client, content Content, progress Progress) error {
	digests := []string{content.Digest}
	for _, f := range content.Manifest.Files {
		if f.Digest != "" {
			digests = append(digests, f.Digest)
		}
	}

	slices.Sort(digests)
	digests = slices.Compact(digests)

	var missing []string
	for part := range slices.Chunk(digests, maxDigests) {
		lacks, err := client.MissingFiles(ctx, part)
		if err != nil {
			return fmt.Errorf("ask which files are needed: %w", err)
		}

		missing = append(missing, lacks...)
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

// uploadFiles sends files, a few at a time, and stops at the first error.
func uploadFiles(ctx context.Context, client *api.Client, content Content, files []string, progress Progress) error {
	found := map[string]api.ManifestFile{}
	for _, f := range content.Manifest.Files {
		found[f.Digest] = f
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	work := make(chan string)
	var group sync.WaitGroup
	var mu sync.Mutex
	var sentFiles int

	var sentBytes int64
	for range min(uploaders, len(files)) {
		group.Go(func() {
			for digest := range work {
				f := found[digest]
				if err := uploadFile(ctx, client, content, f); err != nil {
					stop(fmt.Errorf("upload %s: %w", f.Path, err))
					return
				}

				mu.Lock()
				sentFiles, sentBytes = sentFiles+1, sentBytes+f.Size
				progress(sentFiles, len(files), sentBytes)
				mu.Unlock()
			}
		})
	}

	for _, digest := range files {
		select {
		case work <- digest:
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

func uploadFile(ctx context.Context, client *api.Client, content Content, f api.ManifestFile) error {
	for attempt := 1; ; attempt++ {
		err := uploadOnce(ctx, client, content, f)
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

func uploadOnce(ctx context.Context, client *api.Client, content Content, f api.ManifestFile) error {
	body, err := content.Open(f.Digest)
	if err != nil {
		return err
	}

	defer func() { _ = body.Close() }()

	err = put(ctx, client, f.Digest, f.Size, body)
	if kind := fault.KindOf(err); kind == fault.Invalid || kind == fault.Conflict {
		return fmt.Errorf("it may have changed while it was read, submit again: %w", err)
	}

	return err
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
