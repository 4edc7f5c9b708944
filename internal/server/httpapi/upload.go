package httpapi

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"

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
