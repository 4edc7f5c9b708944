package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/blob/s3"
	"trainyard/internal/fault"
)

// openBlobs opens the blob store that the configuration names. A bucket that cannot be reached at present is no reason
// not to start: jobs go on without it.
func openBlobs(ctx context.Context, c *config, log *slog.Logger) (blob.Store, error) {
	if !strings.HasPrefix(c.blobs, s3.Scheme) {
		if c.s3Endpoint != "" || c.s3PathStyle {
			return nil, fault.New(fault.Invalid, "no_bucket", "has no effect without --blobs s3://…").
				WithField("--s3-endpoint, --s3-path-style")
		}

		return blob.OpenDir(blobPath(c))
	}

	bucket, err := s3.ParseURL(c.blobs)
	if err != nil {
		return nil, named(err, "--blobs")
	}

	bucket.Endpoint, bucket.PathStyle = c.s3Endpoint, c.s3PathStyle

	store, err := s3.New(bucket)
	if err != nil {
		return nil, named(err, "--s3-endpoint")
	}

	err = checkBucket(ctx, store)
	if fault.KindOf(err) == fault.Unavailable {
		log.WarnContext(ctx, "cannot reach the bucket for blobs; trying again when it is needed", "bucket", bucket.Bucket,
			"error", err, "cause", errors.Unwrap(err))
	} else if err != nil {
		return nil, named(err, "--blobs")
	}

	if !c.s3Direct {
		return indirect{store, store}, nil
	}

	return store, nil
}

// blobPath is the folder of the blobs, if they are in one.
func blobPath(c *config) string { return cmp.Or(c.blobs, filepath.Join(c.data, blobFolder)) }

// indirect is a bucket without its ability to sign requests.
type indirect struct {
	blob.Store
	blob.Cleaner
}

// bucketPatience is how long a start waits for the answer of a bucket.
const bucketPatience = 10 * time.Second

func checkBucket(ctx context.Context, store *s3.Store) error {
	ctx, cancel := context.WithTimeout(ctx, bucketPatience)
	defer cancel()

	return store.Check(ctx)
}

// named says which setting an error is about.
func named(err error, setting string) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.WithField(setting)
	}

	return err
}
