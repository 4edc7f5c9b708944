package server

import (
	"context"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// TakeMetrics records the metrics of runs on nodes that are modelled in this process. Agents send theirs to the API.
func (s *Server) TakeMetrics(ctx context.Context, r *api.MetricsReport) error {
	return s.seer.Take(ctx, r)
}

// TakeUse records what ranks on a modelled node use of it.
func (s *Server) TakeUse(ctx context.Context, n id.Node, ranks []api.RankReport, orders []yardmaster.Order) {
	s.use.Take(ctx, n, ranks, orders)
}
