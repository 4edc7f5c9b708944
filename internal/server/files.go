package server

import (
	"context"
	"encoding/json"
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
	}, admitted, s.putFile)
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

	done, err := s.uploads.Take(string(callerOf(r.Context()).User))
	if err != nil {
		return err
	}

	defer done()

	content, err := httpapi.Uncompressed(w, r, s.MaxFile)
	if err != nil {
		return err
	}

	name := httpapi.FileBlob(digest)
	content = s.Reserve.Reader(content)

	if err := httpapi.PutVerified(r.Context(), s.Blobs.Put, name, digest, content, s.MaxFile); err != nil {
		return err
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
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
