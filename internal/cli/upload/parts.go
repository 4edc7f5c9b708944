package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"trainyard/internal/api"
)

const (
	// inPartsFrom is the size from which on a file is sent in parts, so that an upload that is interrupted continues with
	// the next part.
	inPartsFrom = 64 << 20
	partSize    = 32 << 20
)

// part is a piece of a large file.
type part struct {
	digest     string
	from, size int64
}

// uploadInParts sends a large file in parts, of which the yard may have some from an earlier try, and lets the
// yard join them.
func uploadInParts(ctx context.Context, client *api.Client, file io.ReaderAt, f api.ManifestFile, t *tally) error {
	parts, err := cut(ctx, file, f.Size)
	if err != nil {
		return err
	}

	digests := make([]string, len(parts))
	for i := range parts {
		digests[i] = parts[i].digest
	}

	missing, err := lacks(ctx, client, digests)
	if err != nil {
		return err
	}

	needed := make(map[string]bool, len(missing))
	for _, d := range missing {
		needed[d] = true
	}

	var rest []part
	for _, p := range parts {
		if needed[p.digest] {
			rest = append(rest, p)
			needed[p.digest] = false // parts may be equal
		} else {
			t.add(0, p.size)
		}
	}

	err = each(ctx, rest, func(ctx context.Context, p part) error {
		return patiently(ctx, func() error {
			return send(ctx, client, p.digest, p.size, io.NewSectionReader(file, p.from, p.size), t)
		})
	})
	if err != nil {
		return err
	}

	for {
		var reply api.JoinFileReply
		err := patiently(ctx, func() (err error) {
			reply, err = client.JoinFile(ctx, f.Digest, api.JoinFileRequest{Parts: digests, Size: f.Size})
			return err
		})
		if err != nil || reply.Done {
			return err
		}
	}
}

// cut reads a file and returns its parts.
func cut(ctx context.Context, file io.ReaderAt, size int64) ([]part, error) {
	var parts []part
	for from := int64(0); from < size; from += partSize {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		p := part{from: from, size: min(partSize, size-from)}
		sum := sha256.New()

		n, err := io.Copy(sum, io.NewSectionReader(file, from, p.size))
		if err == nil && n < p.size {
			err = io.ErrUnexpectedEOF
		}

		if err != nil {
			return nil, fmt.Errorf("read the file: %w", err)
		}

		p.digest = hex.EncodeToString(sum.Sum(nil))
		parts = append(parts, p)
	}

	return parts, nil
}
