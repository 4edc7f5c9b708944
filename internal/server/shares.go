package server

import (
	"cmp"
	"context"
	"slices"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// sharesOf returns who shares a GPU, and what each gets of it; nil if it is not shared. Who may see nodes sees which
// jobs share them; what jobs are called is for those who may read them.
func (s *Server) sharesOf(ctx context.Context, n *yardmaster.NodeInfo, gpu int) []api.GPUShare {
	at := n.Room.PartOf(fleet.Mask([]int{gpu}))
	if at < 0 {
		return nil
	}

	var list []api.GPUShare

	shared := n.Room.Shared(at)
	for i := range shared.Cuts {
		c := &shared.Cuts[i]

		name := ""
		if k := slices.Index(n.Jobs, c.Job); k >= 0 && callerOf(ctx).MayIn(tenant.ReadJob, c.Owner, n.Titles[k].Project) {
			name = n.Titles[k].Name
		}

		list = append(list, api.GPUShare{
			Job: c.Job, Name: name, Owner: c.Owner, Share: c.Share, Class: cmp.Or(c.Class, job.ShareNormal), Limit: c.Limit,
			Memory: c.CapOn(shared.Memory), Use: s.use.ShareOf(c.Job),
		})
	}

	slices.SortStableFunc(list, func(a, b api.GPUShare) int { return compareJobs(a.Job, b.Job) })

	return list
}

// shareOf returns the part of a GPU that a job has at present; nil if it has none.
func (s *Server) shareOf(ctx context.Context, j *job.Job, runs []job.Run) (*api.JobShare, error) {
	at := slices.IndexFunc(runs, func(r job.Run) bool { return r.State != job.RunEnded })
	if j.State.Final() || at < 0 || len(runs[at].Ranks) != 1 || runs[at].Ranks[0].Share == 0 {
		return nil, nil
	}

	rank := &runs[at].Ranks[0]

	var n yardmaster.NodeInfo

	var missing error

	err := s.query(ctx, func(y *yardmaster.Yard) { n, missing = y.NodeByName(rank.Node) })
	if err == nil {
		err = missing
	}
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil // it was removed meanwhile
	}
	if err != nil || len(rank.GPUs) == 0 {
		return nil, err
	}

	list := s.sharesOf(ctx, &n, rank.GPUs[0])

	own := slices.IndexFunc(list, func(g api.GPUShare) bool { return g.Job == j.ID })
	if own < 0 {
		return nil, nil
	}

	out := &api.JobShare{Node: rank.Node, GPU: rank.GPUs[0], GPUShare: list[own]}
	out.Beside = slices.Delete(list, own, own+1)

	return out, nil
}

// noteShare hands to the yard what was seen of a run that shares a GPU.
func (s *Server) noteShare(ctx context.Context, n yardmaster.NoteShare) error {
	_, err := s.do(ctx, n)

	return err
}
