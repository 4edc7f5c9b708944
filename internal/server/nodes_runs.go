package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// maxNodeJobs is of how many jobs of a node the runs are read.
const maxNodeJobs = 100

func (s *Server) nodeRunRoutes() {
	huma.Register(s.api, s.op("list-node-runs", http.MethodGet, "/api/v1/nodes/{node}/runs",
		"List what ran on a node, newest first", "nodes"), s.listNodeRuns)
}

type nodeRunsInput struct {
	NodeInput
	Since time.Time `query:"since" doc:"only runs that had not ended at this time; a day ago by default"`
}

// listNodeRuns reads the runs of the newest jobs of a node. Who may see nodes sees which jobs they run and ran, and
// whose they are; what jobs are called is for those who may read them.
func (s *Server) listNodeRuns(ctx context.Context, in *nodeRunsInput) (*httpapi.Body[api.NodeRuns], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	var missing error
	name := id.Node(in.Node)
	err := s.query(ctx, func(y *yardmaster.Yard) { _, missing = y.NodeByName(name) })
	if err == nil {
		err = missing
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	since := in.Since
	if since.IsZero() {
		since = s.Clock.Now().Add(-24 * time.Hour)
	}

	jobs, err := s.Store.Jobs(ctx, store.JobFilter{Node: name, Limit: maxNodeJobs + 1})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	out := api.NodeRuns{Runs: []api.PastRun{}, Partial: len(jobs) > maxNodeJobs}
	for i := range jobs[:min(len(jobs), maxNodeJobs)] {
		if j := &jobs[i]; j.Ended.IsZero() || j.Ended.After(since) {
			if err := s.addNodeRuns(ctx, &out, j, name, since); err != nil {
				return nil, s.fail(ctx, err)
			}
		}
	}

	slices.SortStableFunc(out.Runs, func(a, b api.PastRun) int { return b.From.Compare(a.From) })

	return &httpapi.Body[api.NodeRuns]{Body: out}, nil
}

// addNodeRuns adds the runs of a job that were on a node and had not ended at a time.
func (s *Server) addNodeRuns(ctx context.Context, out *api.NodeRuns, j *job.Job, on id.Node, since time.Time) error {
	runs, err := s.Store.Runs(ctx, j.ID)
	if err != nil {
		return err
	}

	label := ""
	if callerOf(ctx).MayIn(tenant.ReadJob, j.Owner, j.Project) {
		label = j.Spec.Name
	}

	for i := range runs {
		r := &runs[i]
		if !r.Ended.IsZero() && !r.Ended.After(since) {
			continue
		}

		for k := range r.Ranks {
			if rank := &r.Ranks[k]; rank.Node == on {
				out.Runs = append(out.Runs, api.PastRun{
					Run: r.ID, Job: j.ID, Name: label, Owner: j.Owner, GPUs: rank.GPUs, Share: rank.Share,
					From: shown(r.Ordered), To: timeOrNil(r.Ended), Cause: r.Cause,
				})
			}
		}
	}

	return nil
}
