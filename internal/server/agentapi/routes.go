package agentapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/server/httpapi"
)

// Routes registers the protocol's endpoints.
func (s *Server) Routes(rt httpapi.Router) {
	huma.Register(
		rt.API,
		huma.Operation{
			OperationID: "join",
			Method:      http.MethodPost,
			Path:        "/agent/v1/join",
			Summary:     "Join the yard as a node",
			Tags:        []string{"agent"},
		},
		s.join,
	)

	huma.Register(
		rt.API,
		s.guarded(huma.Operation{
			OperationID: "renew",
			Method:      http.MethodPost,
			Path:        "/agent/v1/renew",
			Summary:     "Renew the certificate of a node",
			Tags:        []string{"agent"},
		}),
		s.renew,
	)

	huma.Register(
		rt.API,
		s.open(huma.Operation{
			OperationID:  "report",
			Method:       http.MethodPost,
			Path:         "/agent/v1/reports",
			Summary:      "Report heartbeat and run states of a node",
			Tags:         []string{"agent"},
			MaxBodyBytes: 16 << 20,
		}),
		s.report,
	)

	huma.Register(
		rt.API,
		s.guarded(httpapi.Streaming(huma.Operation{
			OperationID: "follow-assignments",
			Method:      http.MethodGet,
			Path:        "/agent/v1/assignments",
			Summary:     "Follow the assignments of a node",
			Description: "Each item is the complete desired state of the node (Assignments).",
			Tags:        []string{"agent"},
		})),
		s.assignments,
	)

	huma.Register(
		rt.API,
		s.guarded(huma.Operation{
			OperationID:  "push-metrics",
			Method:       http.MethodPost,
			Path:         "/agent/v1/metrics",
			Summary:      "Push training metrics",
			Tags:         []string{"agent"},
			MaxBodyBytes: 16 << 20,
		}),
		s.pushMetrics,
	)

	rt.Plain(
		huma.Operation{
			OperationID: "put-log",
			Method:      http.MethodPost,
			Path:        "/agent/v1/logs/{run}/{rank}",
			Summary:     "Append output of a rank",
			Security:    byNode,
			Tags:        []string{"agent"},
		},
		s.identify,
		s.putLog,
	)

	s.checkpointRoutes(rt)
	s.outputRoutes(rt)
	s.tunnelRoutes(rt)
	s.sharedRoutes(rt)

	rt.Plain(
		huma.Operation{
			OperationID: "get-file",
			Method:      http.MethodGet,
			Path:        "/agent/v1/files/{digest}",
			Summary:     "Download a file of a working directory",
			Security:    byNode,
			Tags:        []string{"agent"},
		},
		s.identify,
		s.getFile,
	)
}
