package server

import (
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
	"trainyard/internal/blob"
	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
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

	s.router.Plain(huma.Operation{
		OperationID: "put-file",
		Method:      http.MethodPut,
		Path:        "/api/v1/files/{digest}",
		Summary:     "Upload a file or the manifest of a working directory, addressed by its SHA-256",
		Security:    byToken,
		Tags:        []string{"files"},
	}, s.identify, s.putFile)
}

func (s *Server) missingFiles(
	ctx context.Context,
	in *httpapi.Body[api.MissingRequest],
) (*httpapi.Body[api.MissingReply], error) {
	if err := allow(ctx, tenant.SubmitJob, callerOf(ctx).User); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	names := make([]string, len(in.Body.Digests))
	digests := map[string]string{}

	for i, d := range in.Body.Digests {
		if err := httpapi.CheckDigest(d, "digests"); err != nil {
			return nil, httpapi.ToProblem(err)
		}

		names[i] = httpapi.FileBlob(d)
		digests[names[i]] = d
	}

	missing, err := blob.Missing(ctx, s.Blobs, names)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	reply := api.MissingReply{Digests: []string{}}
	for _, name := range missing {
		reply.Digests = append(reply.Digests, digests[name])
	}

	return &httpapi.Body[api.MissingReply]{Body: reply}, nil
}

func (s *Server) putFile(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	if err := httpapi.CheckDigest(digest, "digest"); err != nil {
		return err
	}
	if err := allow(r.Context(), tenant.SubmitJob, callerOf(r.Context()).User); err != nil {
		return err
	}

	content, err := httpapi.Uncompressed(w, r, s.MaxFile)
	if err != nil {
		return err
	}

	sum := &summed{r: content, hash: sha256.New(), want: digest, limit: s.MaxFile}
	if err := s.Blobs.Put(r.Context(), httpapi.FileBlob(digest), sum); err != nil {
		if sum.fault != nil {
			return sum.fault
		}

		return err
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
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
		s.fault = fault.New(fault.OverLimit, httpapi.TooLarge, "a file must not be larger than %d bytes", s.limit)
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

// maxManifest bounds what is read of a manifest.
const maxManifest = 64 << 20

// checkWorkdir makes sure that the working directory a job names is here whole.
func (s *Server) checkWorkdir(ctx context.Context, digest string) error {
	if digest == "" {
		return nil
	}
	if err := httpapi.CheckDigest(digest, "workdir"); err != nil {
		return err
	}

	f, err := s.Blobs.Get(ctx, httpapi.FileBlob(digest))
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

	var names []string
	paths := map[string]string{}

	for _, file := range m.Files {
		if file.Digest == "" {
			continue
		}
		if err := httpapi.CheckDigest(file.Digest, "workdir"); err != nil {
			return err
		}

		name := httpapi.FileBlob(file.Digest)
		if _, twice := paths[name]; !twice {
			names = append(names, name)
			paths[name] = file.Path
		}
	}

	missing, err := blob.Missing(ctx, s.Blobs, names)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return missingUpload(fmt.Sprintf("the file %s", paths[missing[0]]))
	}

	return nil
}

func missingUpload(what string) error {
	return fault.New(fault.Invalid, "workdir_missing", "%s of the working directory was not uploaded", what).
		WithField("workdir").
		WithRemedy("upload it first with PUT /api/v1/files/{digest}, or use trainyard submit")
}
