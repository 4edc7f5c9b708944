package httpapi

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"os"

	"trainyard/internal/fault"
)

// digestLen is the length of a SHA-256 in hex.
const digestLen = 64

// CheckDigest refuses what is not the SHA-256 of a file; field names it in the request.
func CheckDigest(d, field string) error {
	raw, err := hex.DecodeString(d)
	if err != nil || len(d) != digestLen || hex.EncodeToString(raw) != d {
		return fault.New(fault.Invalid, "bad_digest", "digest must be a SHA-256 in lower-case hex, got %q", d).
			WithField(field)
	}

	return nil
}

// FileBlob is where a file is kept. The folders keep directories small.
func FileBlob(digest string) string { return "files/" + digest[:2] + "/" + digest }

// ChunkBlob is where a chunk of a checkpoint is kept, or a manifest.
func ChunkBlob(digest string) string { return "chunks/" + digest[:2] + "/" + digest }

// Uncompressed returns what a request carries, unpacked and bounded.
func Uncompressed(w http.ResponseWriter, r *http.Request, limit int64) (io.Reader, error) {
	in := http.MaxBytesReader(w, r.Body, limit+1<<20)
	if r.Header.Get("Content-Encoding") != "gzip" {
		return in, nil
	}

	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_gzip", "the body is not gzip although Content-Encoding says so").
			WithCause(err)
	}

	return z, nil
}

// Put is a method of a blob store that stores what it reads under a name.
type Put func(ctx context.Context, name string, r io.Reader) error

// PutVerified stores what it reads under a name, unless it has another SHA-256 than digest or more bytes than limit. It
// returns how many bytes it has.
func PutVerified(ctx context.Context, put Put, name, digest string, content io.Reader, limit int64) (int64, error) {
	sum := &summed{r: content, hash: sha256.New(), want: digest, limit: limit}
	err := put(ctx, name, sum)
	if sum.fault != nil {
		return 0, sum.fault
	}

	return sum.n, err
}

// summed passes bytes on, and fails at their end unless they have the digest
// they were announced with, so that what is stored is what it is called.
type summed struct {
	r     io.Reader
	hash  hash.Hash
	want  string
	limit int64
	n     int64
	fault error
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if _, werr := s.hash.Write(p[:n]); werr != nil {
		return n, werr
	}

	var tooBig *http.MaxBytesError
	switch {
	case s.n > s.limit || errors.As(err, &tooBig):
		s.fault = fault.New(fault.OverLimit, TooLarge, "a file must not be larger than %d bytes", s.limit)
	case errors.Is(err, io.EOF) && hex.EncodeToString(s.hash.Sum(nil)) != s.want:
		s.fault = fault.New(fault.Invalid, "wrong_digest", "the SHA-256 of the uploaded content does not match the request").
			WithField("digest").
			WithRemedy("upload it again; the file may have changed during the upload")
	case fault.KindOf(err) == fault.Unavailable || fault.KindOf(err) == fault.OverLimit: // no room: who uploads must know
		s.fault = err
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.fault = fault.New(fault.Invalid, "slow_upload", "the upload was too slow and was ended").
			WithRemedy("try again over a better connection").WithCause(err)
	case err != nil && !errors.Is(err, io.EOF):
		s.fault = fault.New(fault.Invalid, "broken_upload", "the upload was interrupted").WithCause(err)
	}

	if s.fault != nil {
		return n, s.fault
	}

	return n, err
}
