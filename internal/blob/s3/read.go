package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"trainyard/internal/blob"
	"trainyard/internal/clock"
)

// GetRange opens a part of a blob for reading.
func (s *Store) GetRange(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 || length < 0 {
		return nil, blob.BadRange(name, offset, length)
	}

	// HTTP has no range of no bytes, and a store has its own way to refuse one at the end.
	if length == 0 {
		info, err := s.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		if offset > info.Size {
			return nil, blob.BadRange(name, offset, length)
		}

		return io.NopCloser(bytes.NewReader(nil)), nil
	}

	part := fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)

	body, size, err := s.open(ctx, name, &s3.GetObjectInput{Range: &part})
	if codeOf(err) == codeBadRange || err == nil && size != length { // a store cuts a range off at the end of the blob
		if err == nil {
			err = body.Close()
		}

		return nil, errors.Join(blob.BadRange(name, offset, length), err)
	}
	if err != nil {
		return nil, err
	}

	return body, nil
}

// open begins to read a blob, or what in asks of it, and returns how long that is.
func (s *Store) open(ctx context.Context, name string, in *s3.GetObjectInput) (*body, int64, error) {
	c, key, err := s.begin(name)
	if err != nil {
		return nil, 0, err
	}

	in.Bucket, in.Key = &s.cfg.Bucket, key
	bounded, moved, stop := clock.Progress(ctx, s.cfg.timeouts.call)

	out, err := c.api.GetObject(bounded, in)
	if err != nil {
		err = s.translate(bounded, "read", name, err)

		stop()

		return nil, 0, err
	}

	return &body{ReadCloser: out.Body, ctx: bounded, store: s, name: name, moved: moved, stop: stop},
		sdk.ToInt64(out.ContentLength), nil
}

// body is the content of a blob as it comes. It fails when none has come for a while, or when the content does not
// have the checksum with which it was stored.
type body struct {
	io.ReadCloser

	ctx         context.Context //nolint:containedctx // it ends with the reading
	store       *Store
	name        string
	moved, stop func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.moved()

	if err != nil && !errors.Is(err, io.EOF) {
		err = b.store.unavailable(b.ctx, "read", b.name, err)
	}

	return n, err
}

func (b *body) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}
