package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"trainyard/internal/fault"
)

// partSize is how much of a large blob is sent at a time, and held in memory for it. A blob of up to this size is one
// request.
const partSize = 8 << 20

// maxParts is how many parts S3 allows.
const maxParts = 10_000

// sending is how many parts of one blob are sent at the same time.
const sending = 4

// Put stores a blob. What the store has of it before Put returns is not visible under its name.
func (s *Store) Put(ctx context.Context, name string, r io.Reader) error {
	c, key, err := s.begin(name)
	if err != nil {
		return err
	}

	first, last, err := nextPart(ctx, r)
	if err != nil {
		return s.unavailable(ctx, "write", name, err)
	}

	if last {
		err = s.putWhole(ctx, c, key, first)
	} else {
		u := &upload{store: s, api: c.api, key: key}
		err = u.put(ctx, first, r)
	}

	if fault.KindOf(err) == fault.Invalid {
		return err
	}
	if err != nil {
		return s.unavailable(ctx, "write", name, err)
	}

	return nil
}

// nextPart reads the next part of a blob and reports whether it is the last one.
func nextPart(ctx context.Context, r io.Reader) (part []byte, last bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}

	var buffer bytes.Buffer

	_, err = io.CopyN(&buffer, r, partSize)
	if errors.Is(err, io.EOF) {
		return buffer.Bytes(), true, nil
	}

	return buffer.Bytes(), false, err
}

func (s *Store) putWhole(ctx context.Context, c *connection, key *string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeouts.part)
	defer cancel()

	_, err := c.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: key, Body: bytes.NewReader(content),
		ContentLength: sdk.Int64(int64(len(content))), ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	})

	return err
}

// upload is a large blob that is sent in parts.
type upload struct {
	store *Store
	api   *s3.Client
	key   *string
	id    *string
	size  int64

	mu    sync.Mutex
	parts []types.CompletedPart
}

// put sends all parts and makes one blob of them, or leaves nothing behind.
func (u *upload) put(ctx context.Context, first []byte, r io.Reader) error {
	if err := u.create(ctx); err != nil {
		return err
	}

	err := u.send(ctx, first, r)
	if err == nil {
		err = u.complete(ctx)
	}
	if err != nil {
		return errors.Join(err, u.abort(ctx))
	}

	return nil
}

func (u *upload) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.store.cfg.timeouts.call)
	defer cancel()

	out, err := u.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.store.cfg.Bucket, Key: u.key, ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	})
	if err != nil {
		return err
	}

	u.id = out.UploadId

	return nil
}

// send reads parts and sends several at a time, until all are there or one fails.
func (u *upload) send(ctx context.Context, part []byte, r io.Reader) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var under sync.WaitGroup
	slots := make(chan struct{}, sending)
	last := false

	for number := int32(1); len(part) > 0 && bounded.Err() == nil; number++ {
		if number > maxParts {
			cancel(fault.New(fault.Invalid, "blob_too_large", "a blob must not be larger than %d bytes", maxParts*partSize))
			break
		}

		slots <- struct{}{}

		content := part // the next one is read meanwhile

		under.Go(func() {
			defer func() { <-slots }()

			// Not cancelled with the others: what the server still receives when the upload is aborted may stay there.
			if err := u.sendPart(ctx, number, content); err != nil {
				cancel(err)
			}
		})

		u.size += int64(len(part))

		if last {
			break
		}

		var err error
		part, last, err = nextPart(bounded, r)
		if err != nil {
			cancel(err)
		}
	}

	under.Wait()

	return context.Cause(bounded)
}

func (u *upload) sendPart(ctx context.Context, number int32, part []byte) error {
	ctx, cancel := context.WithTimeout(ctx, u.store.cfg.timeouts.part)
	defer cancel()

	out, err := u.api.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.store.cfg.Bucket, Key: u.key, UploadId: u.id, PartNumber: &number, Body: bytes.NewReader(part),
		ContentLength: sdk.Int64(int64(len(part))), ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	})
	if err != nil {
		return err
	}

	u.mu.Lock()
	defer u.mu.Unlock()

	u.parts = append(u.parts, types.CompletedPart{
		PartNumber: &number, ETag: out.ETag, ChecksumSHA256: out.ChecksumSHA256,
	})

	return nil
}

// complete makes one blob of the parts.
func (u *upload) complete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.store.cfg.timeouts.part) // a server may copy them together
	defer cancel()

	slices.SortFunc(u.parts, func(a, b types.CompletedPart) int { return int(*a.PartNumber - *b.PartNumber) })

	_, err := u.api.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.store.cfg.Bucket, Key: u.key, UploadId: u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})

	// An earlier try may have succeeded, and only its answer been lost.
	if codeOf(err) == codeNoUpload {
		head := &s3.HeadObjectInput{Bucket: &u.store.cfg.Bucket, Key: u.key}
		if out, headErr := u.api.HeadObject(ctx, head); headErr == nil && sdk.ToInt64(out.ContentLength) == u.size {
			return nil
		}
	}

	return err
}

// abort removes the parts. It has time of its own: what failed may be the end of the context.
func (u *upload) abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.store.cfg.timeouts.call)
	defer cancel()

	_, err := u.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &u.store.cfg.Bucket, Key: u.key, UploadId: u.id,
	})
	if codeOf(err) == codeNoUpload {
		return nil
	}

	return err
}
