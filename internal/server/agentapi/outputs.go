package agentapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/outputs"
)

func (s *Server) outputRoutes(rt httpapi.Router) {
	op := s.guarded(huma.Operation{
		OperationID: "add-outputs", Method: http.MethodPost, Path: "/agent/v1/outputs",
		Summary: "Enter the output files of a rank whose chunks are uploaded, or ask whether there is room for them",
		Tags:    []string{"agent"}, DefaultStatus: http.StatusNoContent, MaxBodyBytes: 16 << 20,
	})

	huma.Register(rt.API, op, s.addOutputs)
}

// addOutputs enters the output files of a rank. It may have ended long ago: the files of a run that was killed come
// after its end.
func (s *Server) addOutputs(ctx context.Context, in *httpapi.Body[api.NewOutputs]) (*struct{}, error) {
	o := &in.Body

	// A node that does not have the folder of a rank any more does not know its UID either.
	if o.Problem != "" && o.Request != "" {
		s.asks.answered(nodeOf(ctx), o)
		return nil, nil
	}

	_, err := s.ownRank(ctx, o.Run, o.UID, o.Rank)
	if err == nil {
		err = s.Outputs.Room(o.Bytes)
	}

	if err == nil && o.Manifest != "" {
		err = s.enterOutputs(ctx, o)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	s.asks.answered(nodeOf(ctx), o)

	return nil, nil
}

// enterOutputs enters output files in the catalogue if all their chunks are there.
func (s *Server) enterOutputs(ctx context.Context, o *api.NewOutputs) error {
	if err := httpapi.CheckDigest(o.Manifest, "manifest"); err != nil {
		return err
	}

	m, err := httpapi.ReadManifest(ctx, s.Blobs, o.Manifest)
	if fault.KindOf(err) == fault.NotFound {
		err = missingChunk(o.Manifest)
	}

	if err == nil {
		err = m.CheckOutputs()
	}

	if err == nil {
		err = s.checkChunks(ctx, o.Manifest, m)
	}

	if err == nil {
		err = s.Loop.Held()
	}

	if err != nil {
		return err
	}

	e := outputs.Entry{Run: o.Run, Rank: o.Rank, Node: nodeOf(ctx), Manifest: o.Manifest, Notes: o.Notes}
	if o.Request == "" {
		return s.Outputs.Add(ctx, e, m)
	}
	if len(m.Files) == 0 {
		return nil
	}

	// What a request left out is for whoever has made it; the entry keeps what is said of the files of the job file.
	return s.Outputs.AddMore(ctx, e, m)
}
