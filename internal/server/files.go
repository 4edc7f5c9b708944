package server

import (
	"context"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
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
	}, admitted, s.putFile)

	join := s.op("join-file", http.MethodPost, "/api/v1/files/{digest}/join",
		"Make a file of parts that were uploaded as files", "files")
	join.MaxBodyBytes = 2 << 20
	huma.Register(s.api, join, s.joinFile)
}

func (s *Server) missingFiles(
	ctx context.Context,
	in *httpapi.Body[api.MissingRequest],
) (*httpapi.Body[api.MissingReply], error) {
	if err := allow(ctx, tenant.SubmitJob, callerOf(ctx).User); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	for _, d := range in.Body.Digests {
		if err := httpapi.CheckDigest(d, "digests"); err != nil {
			return nil, httpapi.ToProblem(err)
		}
	}

	missing, err := s.content.Missing(ctx, callerOf(ctx).User, in.Body.Digests)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	reply := api.MissingReply{Digests: append([]string{}, missing...)}

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

	done, err := s.uploads.Take(string(callerOf(r.Context()).User))
	if err != nil {
		return err
	}

	defer done()

	content, err := httpapi.Uncompressed(w, r, s.MaxFile)
	if err != nil {
		return err
	}

	announced := r.ContentLength
	if r.Header.Get("Content-Encoding") != "" {
		announced = 0 // it says nothing about the content
	}

	upload, err := s.quota.Upload(r.Context(), callerOf(r.Context()).User, s.Reserve.Reader(content), announced)
	if err != nil {
		return err
	}

	err = s.keepFile(r, digest, upload)
	upload.End(err == nil)
	if err != nil {
		return err
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
}

// keepFile stores a content and records that the caller possesses it.
func (s *Server) keepFile(r *http.Request, digest string, content io.Reader) error {
	size, err := httpapi.PutVerified(r.Context(), s.Blobs.Put, httpapi.FileBlob(digest), digest, content, s.MaxFile)
	if err != nil {
		return err
	}

	return s.content.Uploaded(r.Context(), callerOf(r.Context()).User, digest, size)
}
