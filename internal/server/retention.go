package server

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/diskspace"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/collector"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

func (s *Server) retentionRoutes() {
	huma.Register(s.api, s.op("get-retention", http.MethodGet, "/api/v1/retention",
		"Show what the server keeps, for how long, and how much that is", "server"), s.getRetention)
}

// getRetention shows an admin all; others the limits and what they have themselves.
func (s *Server) getRetention(ctx context.Context, _ *struct{}) (*httpapi.Body[api.Retention], error) {
	owner, err := ownerFilter(ctx, tenant.ReadUsage, "", "")
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	stock := s.Stock()
	reply := api.Retention{Limits: s.retentionLimits(), Users: toShares(&stock, owner)}

	if owner == "" {
		reply.Disks, err = s.disks()
		if err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	if owner == "" && !stock.At.IsZero() {
		reply.Collected = &api.Collection{
			At: stock.At, Removed: stock.Removed.String(), Failure: stock.Failure, Jobs: stock.Jobs,
			Files: api.Amount(stock.Files), Chunks: api.Amount(stock.Chunks), Output: api.Amount(stock.Output),
		}
	}

	return &httpapi.Body[api.Retention]{Body: reply}, nil
}

func (s *Server) retentionLimits() api.RetentionLimits {
	l := s.Limits

	return api.RetentionLimits{
		Unused: job.Duration(l.Unused), Workdirs: job.Duration(l.Workdirs), Output: job.Duration(l.Output),
		Checkpoints: job.Duration(l.Checkpoints), Jobs: job.Duration(l.Jobs), Events: job.Duration(l.Events),
		Postings:  job.Duration(l.Postings),
		MaxOutput: l.UserOutput, MaxAll: l.AllOutput, MaxSaved: l.Bytes, Files: job.Duration(l.Files),
		MaxFiles: l.UserFiles, MaxAllFiles: l.AllFiles,
	}
}

// toShares returns what a user has, or all users ("").
func toShares(stock *collector.Stock, owner id.User) []api.RetentionShare {
	shares := []api.RetentionShare{}

	for _, user := range slices.Sorted(maps.Keys(stock.Users)) {
		if owner != "" && owner != user {
			continue
		}

		of := stock.Users[user]
		shares = append(shares, api.RetentionShare{
			User: user, Jobs: of.Jobs, Output: of.Output, Checkpoints: of.Checkpoints, Files: of.Files,
		})
	}

	return shares
}

// disks returns the disks that uploads go to.
func (s *Server) disks() ([]api.Disk, error) {
	if s.Reserve == nil {
		return nil, nil
	}

	var disks []api.Disk
	for _, dir := range s.Reserve.Dirs {
		free, total, err := diskspace.Free(dir)
		if err != nil {
			return nil, err
		}

		disks = append(disks, api.Disk{Path: dir, Free: free, Total: total, Reserve: s.Reserve.Keep(total)})
	}

	return disks, nil
}
