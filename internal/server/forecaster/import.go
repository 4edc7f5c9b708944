package forecaster

import (
	"bytes"
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/importer"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// maxImport bounds the size of a table of earlier jobs, in bytes.
const maxImport = 16 << 20

func (f *Forecaster) importRoutes(e Edge) {
	huma.Register(
		e.API,
		huma.Operation{
			OperationID:  "import-history",
			Method:       http.MethodPost,
			Path:         "/api/v1/forecasts/history",
			Summary:      "Import past jobs as forecast history",
			Security:     e.Security,
			MaxBodyBytes: maxImport,
			Tags:         []string{"forecasts"},
		},
		func(ctx context.Context, in *importInput) (*body[api.ImportReply], error) {
			if err := e.Allow(ctx, tenant.ChangeNodes, ""); err != nil {
				return nil, e.Fail(ctx, err)
			}

			reply, err := f.trainer.importTable(ctx, in.Format, in.RawBody)
			if err != nil {
				return nil, e.Fail(ctx, err)
			}

			return &body[api.ImportReply]{reply}, nil
		},
	)
}

type importInput struct {
	Format  string `query:"format" enum:"csv,mlperf" default:"csv" doc:"the columns of Trainyard, or the results of MLPerf Training"`
	RawBody []byte `contentType:"application/octet-stream"`
}

// importTable adds a table of earlier jobs to the history. Importing it again replaces its jobs.
func (s *trainer) importTable(ctx context.Context, format string, text []byte) (api.ImportReply, error) {
	read := importer.ReadCSV
	if format == "mlperf" {
		read = importer.ReadMLPerf
	}

	past, err := read(bytes.NewReader(text))
	if err != nil {
		return api.ImportReply{}, err
	}
	if len(past) == 0 {
		return api.ImportReply{}, fault.New(fault.Invalid, "empty_file", "the table has no job that succeeded")
	}

	reply := api.ImportReply{Read: len(past)}

	slices.SortStableFunc(past, func(a, b history.Past) int { return a.Finished.Compare(b.Finished) })
	for i := range past {
		past[i].Job = "import-" + id.Job(format) + "-" + past[i].Job // never the ID of a job of this yard
	}

	if len(past) > maxPast/2 { // leave room for the yard's own jobs
		past = past[len(past)-maxPast/2:]
	}

	reply.Kept = len(past)

	return reply, s.learn(ctx, past)
}
