package s3

import (
	"context"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// RemoveUploads removes the uploads in parts that were begun before a time and never finished.
func (s *Store) RemoveUploads(ctx context.Context, before time.Time) (int, error) {
	c, err := s.connect()
	if err != nil {
		return 0, err
	}

	removed := 0
	pages := s3.NewListMultipartUploadsPaginator(c.api, &s3.ListMultipartUploadsInput{
		Bucket: &s.cfg.Bucket, Prefix: &s.cfg.Prefix,
	})

	for pages.HasMorePages() {
		found, err := s.nextUploads(ctx, pages)
		if err != nil {
			return removed, s.translate(ctx, "list", "unfinished uploads", err)
		}

		for i := range found {
			if !sdk.ToTime(found[i].Initiated).Before(before) {
				continue
			}

			u := &upload{store: s, api: c.api, key: found[i].Key, id: found[i].UploadId}
			if err := u.abort(ctx); err != nil {
				return removed, s.translate(ctx, "remove", "an unfinished upload", err)
			}

			removed++
		}
	}

	return removed, nil
}

func (s *Store) nextUploads(
	ctx context.Context, pages *s3.ListMultipartUploadsPaginator,
) ([]types.MultipartUpload, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeouts.call)
	defer cancel()

	page, err := pages.NextPage(ctx)
	if err != nil {
		return nil, err
	}

	return page.Uploads, nil
}
