package server

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/tenant"
)

func (s *Server) fileRoutes() {
	huma.Register(
		s.api,
		huma.Operation{
			OperationID:  "missing-files",
			Method:       http.MethodPost,
			Path:         "/api/v1/files/missing",
			Summary:      "List files missing on the server",
			Security:     byToken,
			Tags:         []string{"files"},
			MaxBodyBytes: 2 << 20,
		},
		s.missingFiles,
	)

	s.plain(huma.Operation{
		OperationID: "put-file",
		Method:      http.MethodPut,
		Path:        "/api/v1/files/{digest}",
		Summary:     "Upload a file or the manifest of a working directory, addressed by its SHA-256",
		Security:    byToken,
		Tags:        []string{"files"},
	}, s.putFile)

	s.plain(huma.Operation{OperationID: "get-file", Method: http.MethodGet, Path: "/agent/v1/files/{digest}",
		Summary: "Download a file of a working directory", Security: byNode, Tags: []string{"agent"}}, s.getFile)
}

// plain registers a handler that reads or writes bytes as they are, and adds
// it to the description.
func (s *Server) plain(op huma.Operation, handle func(w http.ResponseWriter, r *http.Request) error) {
	for _, name := range pathNames(op.Path) {
		op.Parameters = append(
			op.Parameters,
			&huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		)
	}

	op.Responses = map[string]*huma.Response{
		"200":     {Description: "OK", Content: map[string]*huma.MediaType{"application/octet-stream": {}}},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {}}},
	}

	if op.Method != http.MethodGet {
		op.RequestBody = &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{"application/octet-stream": {}},
		}
	}

	s.api.OpenAPI().AddOperation(&op)
	_, forNode := op.Security[0]["node"]
	s.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		var err error
		if forNode {
			n, nodeErr := s.node(r)
			ctx, err = context.WithValue(ctx, nodeKey{}, n), nodeErr
		} else {
			c, callerErr := s.person(r)
			ctx, err = context.WithValue(ctx, callerKey{}, c), callerErr
		}

		if err == nil {
			err = handle(w, r.WithContext(ctx))
		}

		if err != nil {
			if k := fault.KindOf(err); (k == fault.Internal || k == fault.Unavailable) && !left(ctx) {
				s.Log.ErrorContext(ctx, "request failed", "path", r.URL.Path, "error", err, "cause", errors.Unwrap(err))
			}

			writeProblem(w, err)
		}
	})
}

// pathNames returns the names in braces of a path.
func pathNames(path string) []string {
	var names []string
	for i := 0; i < len(path); i++ {
		if path[i] != '{' {
			continue
		}

		start := i + 1

		for path[i] != '}' {
			i++
		}

		names = append(names, path[start:i])
	}

	return names
}

// digestLen is the length of a SHA-256 in hex.
const digestLen = 64

func checkDigest(d, field string) error {
	raw, err := hex.DecodeString(d)
	if err != nil || len(d) != digestLen || hex.EncodeToString(raw) != d {
		return fault.New(fault.Invalid, "bad_digest", "digest must be a SHA-256 in lower-case hex, got %q", d).
			WithField(field)
	}

	return nil
}

// fileBlob is where a file is kept. The folders keep directories small.
func fileBlob(digest string) string { return "files/" + digest[:2] + "/" + digest }

func (s *Server) missingFiles(ctx context.Context, in *body[api.MissingRequest]) (*body[api.MissingReply], error) {
	if err := allow(ctx, tenant.SubmitJob, callerOf(ctx).User); err != nil {
		return nil, toProblem(err)
	}

	reply := api.MissingReply{Digests: []string{}}
	for _, d := range in.Body.Digests {
		if err := checkDigest(d, "digests"); err != nil {
			return nil, toProblem(err)
		}

		ok, err := s.Blobs.Has(ctx, fileBlob(d))
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		if !ok {
			reply.Digests = append(reply.Digests, d)
		}
	}

	return &body[api.MissingReply]{reply}, nil
}

func (s *Server) putFile(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	if err := checkDigest(digest, "digest"); err != nil {
		return err
	}
	if err := allow(r.Context(), tenant.SubmitJob, callerOf(r.Context()).User); err != nil {
		return err
	}

	content, err := uncompressed(w, r, s.MaxFile)
	if err != nil {
		return err
	}

	sum := &summed{r: content, hash: sha256.New(), want: digest, limit: s.MaxFile}
	if err := s.Blobs.Put(r.Context(), fileBlob(digest), sum); err != nil {
		if sum.fault != nil {
			return sum.fault
		}

		return err
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
}

// uncompressed returns what a request carries, unpacked and bounded.
func uncompressed(w http.ResponseWriter, r *http.Request, limit int64) (io.Reader, error) {
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

// summed passes bytes on, and fails at their end unless they have the digest
// they were announced with, so that what is stored is what it is called.
type summed struct {
	r    io.Reader
	hash interface {
		io.Writer
		Sum([]byte) []byte
	}
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
		s.fault = fault.New(fault.OverLimit, tooLarge, "a file must not be larger than %d bytes", s.limit)
	case errors.Is(err, io.EOF) && hex.EncodeToString(s.hash.Sum(nil)) != s.want:
		s.fault = fault.New(fault.Invalid, "wrong_digest", "the SHA-256 of the uploaded content does not match the request").
			WithField("digest").
			WithRemedy("upload it again; the file may have changed during the upload")
	case err != nil && !errors.Is(err, io.EOF):
		s.fault = fault.New(fault.Invalid, "broken_upload", "the upload was interrupted").WithCause(err)
	}

	if s.fault != nil {
		return n, s.fault
	}

	return n, err
}

func (s *Server) getFile(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	if err := checkDigest(digest, "digest"); err != nil {
		return err
	}

	f, err := s.Blobs.Get(r.Context(), fileBlob(digest))
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.NotFound, "file_not_found", "there is no file %s", digest)
	}
	if err != nil {
		return err
	}

	defer func() { _ = f.Close() }()

	w.Header().Set("Content-Type", "application/octet-stream")

	if _, err := io.Copy(w, f); err != nil {
		s.Log.WarnContext(r.Context(), "sending a file broke off", "digest", digest, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun; the only way to say that it is not whole
	}

	return nil
}

// maxManifest bounds what is read of a manifest.
const maxManifest = 64 << 20

// checkWorkdir makes sure that the working directory a job names is here whole.
func (s *Server) checkWorkdir(ctx context.Context, digest string) error {
	if digest == "" {
		return nil
	}
	if err := checkDigest(digest, "workdir"); err != nil {
		return err
	}

	f, err := s.Blobs.Get(ctx, fileBlob(digest))
	if fault.KindOf(err) == fault.NotFound {
		return missingUpload("the manifest")
	}
	if err != nil {
		return err
	}

	defer func() { _ = f.Close() }()

	var m api.Manifest
	if err := json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(&m); err != nil {
		return fault.New(fault.Invalid, "bad_manifest", "the uploaded manifest is not valid").
			WithField("workdir").
			WithCause(err)
	}

	for _, file := range m.Files {
		if file.Digest == "" {
			continue
		}
		if err := checkDigest(file.Digest, "workdir"); err != nil {
			return err
		}

		ok, err := s.Blobs.Has(ctx, fileBlob(file.Digest))
		if err != nil {
			return err
		}
		if !ok {
			return missingUpload(fmt.Sprintf("the file %s", file.Path))
		}
	}

	return nil
}

func missingUpload(what string) error {
	return fault.New(fault.Invalid, "workdir_missing", "%s of the working directory was not uploaded", what).
		WithField("workdir").
		WithRemedy("upload it first with PUT /api/v1/files/{digest}, or use trainyard submit")
}
