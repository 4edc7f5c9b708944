package agentapi

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

func (s *Server) report(ctx context.Context, in *httpapi.Body[api.Report]) (*httpapi.Body[api.ReportReply], error) {
	who := callerOf(ctx)
	n := who.node

	if in.Body.Inventory != nil {
		if err := checkInventory(in.Body.Inventory); err != nil {
			return nil, httpapi.ToProblem(err)
		}
	}

	if err := in.Body.Check(); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	bounded, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()

	if _, err := s.roster.admit(n, who.process()); err == nil && s.numbers.doubled(n, in.Body.Boot, in.Body.Seq) {
		s.alarm(bounded, n, "two processes report for it")
	}

	s.asks.note(n, in.Body.Capability)
	s.tunnels.note(n, in.Body.Capability)
	s.judge(bounded, n, in.Body.Ranks)
	s.takeUse(bounded, n, in.Body.Ranks)

	answer, err := s.hand(bounded, &who, &in.Body)
	if heard(err) && s.Gone(n) {
		err = fault.New(fault.Unavailable, "store_down", "the node was lost, and the server cannot write to its store now").
			WithRemedy("report again later")
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	// The generation is read after the loop has handled the report: of what this grants a lease for,
	// the agent starts nothing that was declared lost before.
	grant := s.Contact.Grant()
	reply := api.ReportReply{
		Servers:    s.Servers(),
		Interval:   job.Duration(s.Contact.ReportEvery),
		Lease:      job.Duration(grant.Lease),
		Grace:      job.Duration(grant.Grace),
		Generation: s.Assignments.Generation(n),
		Server:     s.Start,
		Standby:    s.Standby,
		Release:    s.noteReport(n, &in.Body),
		Silent:     true,
		Time:       s.Clock.Now(),
	}

	if h, ok := answer.(yardmaster.LeaseRenewal); ok {
		reply.LeaseLeft = wholeSeconds(h.LeaseLeft)
	}

	if len(in.Body.Data) > 0 {
		if err := s.query(ctx, func(y *yardmaster.Yard) { reply.Purge = y.Misplaced(n, in.Body.Data) }); err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	reply.Shared, err = s.sharedFolders(ctx, n)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	// Last, because this answer extends the node's contact lease.
	if err := s.Loop.Held(); err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.ReportReply]{Body: reply}, nil
}

// takeUse takes out of a report what the ranks use, which is none of the yard's business.
func (s *Server) takeUse(ctx context.Context, n id.Node, ranks []api.RankReport) {
	if slices.ContainsFunc(ranks, func(r api.RankReport) bool { return r.Use != nil }) {
		orders, _, _ := s.Assignments.Desired(n)
		s.Use.Take(ctx, n, ranks, orders)
	}

	for i := range ranks {
		ranks[i].Use = nil
	}
}

// hand hands a report to the yard. An agent that is not admitted yet may be a copy: while a commit hangs it does not
// count as a sign of life of the node.
func (s *Server) hand(ctx context.Context, who *caller, r *api.Report) (any, error) {
	report := fromReport(who, httpapi.RecordOf(ctx).Address, r)
	if _, err := s.roster.admit(who.node, who.process()); err != nil {
		return s.Loop.Do(ctx, report)
	}

	return s.Loop.Report(ctx, report)
}

// heard reports whether a report was counted as a sign of life alone.
func heard(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == api.CodeHeard
}

func wholeSeconds(d time.Duration) *int64 {
	n := int64(max(d, 0) / time.Second)
	return &n
}

func (s *Server) assignments(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	who := callerOf(ctx)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		req, w := humago.Unwrap(hc)
		out := httpapi.NewStream(w)

		for {
			other, err := s.roster.admit(who.node, who.process())
			if err == nil {
				err = s.Loop.Held() // orders of a server that led once are not to be obeyed
			}

			if err != nil {
				out.Send("", "error", httpapi.ToProblem(err))
				return
			}

			orders, generation, changed := s.Assignments.Desired(who.node)
			asked, more := s.asks.of(who.node)
			list := s.toAssignments(orders, generation)
			list.Outputs = asked
			var wanted <-chan struct{}
			list.Tunnels, wanted = s.tunnels.of(who.node)
			if err := s.addSecrets(req.Context(), list.Runs); err != nil {
				out.Send("", "error", httpapi.ToProblem(err))
				return
			}
			if !out.Send(strconv.FormatUint(generation, 10), "", list) {
				return
			}
			if !httpapi.WaitAny(req.Context(), out, []<-chan struct{}{changed, other, more, wanted}) {
				return
			}
		}
	}}, nil
}

// pushMetrics stores the training metrics of the runs of a node. Only rank 0 of a run reports them.
func (s *Server) pushMetrics(
	ctx context.Context,
	in *httpapi.Body[api.MetricsReport],
) (*httpapi.Body[api.MetricsReply], error) {
	if err := in.Body.Check(); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	report := api.MetricsReport{Runs: make([]api.RunMetrics, 0, len(in.Body.Runs))}

	for i := range in.Body.Runs {
		run := &in.Body.Runs[i]
		_, err := s.mayWriteLog(ctx, run.Run, run.UID, 0)

		switch {
		case err == nil:
			report.Runs = append(report.Runs, *run)
		case strayRun(err): // of another history; the other runs of the report have nothing to do with it
		default:
			return nil, s.fail(ctx, err)
		}
	}

	if err := s.Metrics.Take(ctx, &report); err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.MetricsReply]{Body: api.MetricsReply{Server: s.Start}}, nil
}

// strayRun reports whether an error says that the yard does not know a run that a node has.
func strayRun(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && (f.Code == "run_not_found" || f.Code == api.CodeOtherRun)
}

// toAssignments writes the orders of a node as its agent receives them.
func (s *Server) toAssignments(orders []yardmaster.Order, generation uint64) api.Assignments {
	out := api.Assignments{Server: s.Start, Generation: generation, Runs: make([]api.Assignment, len(orders))}
	if i := s.incarnation.Load(); i.Number > 0 {
		out.Incarnation = i
	}

	for i := range orders {
		o := &orders[i]
		out.Runs[i] = api.Assignment{
			Run:    o.Run,
			Job:    o.Job,
			Epoch:  o.Epoch,
			Rank:   o.Rank,
			Stop:   o.Stop,
			Save:   o.Save,
			Dump:   o.Dump,
			Launch: api.Launch(o.Launch),
			Adopt:  o.Adopt,

			Suspend: job.SuspendOrder{Number: o.Suspend.Number, Room: o.Suspend.Room},
			Peers:   o.Peers,
			Start:   o.Start,
		}
	}

	return out
}

// marksCapability is that of the first agents that know the UIDs of runs.
const marksCapability = 7

// restoresCapability is that of the first agents that restore checkpoints of other nodes.
const restoresCapability = 8

// maxReclaimLeft bounds the notice that a node is taken back, in seconds.
const maxReclaimLeft = int64(24 * time.Hour / time.Second)

// suspendsCapability is that of the first agents that suspend programs in place.
const suspendsCapability = 9

// secretsCapability is that of the first agents that pass secrets on to programs.
const secretsCapability = 11

func fromReport(who *caller, address string, r *api.Report) yardmaster.NodeReport {
	out := yardmaster.NodeReport{
		Node:      who.node,
		Agent:     who.agent,
		Inventory: r.Inventory,
		Foreign:   r.Foreign,
		Clock:     r.Clock,
		Data:      r.Data,
		Ranks:     make([]yardmaster.RankReport, len(r.Ranks)),
		Marks:     r.Capability >= marksCapability,
		Restores:  r.Capability >= restoresCapability,
		Suspends:  r.Capability >= suspendsCapability,
		Secrets:   r.Capability >= secretsCapability,

		Certificate: who.shown,
		Address:     address,
	}

	if out.Inventory != nil {
		out.Inventory.Restores, out.Inventory.Suspends = out.Restores, out.Suspends
		out.Inventory.SingleUser = out.Inventory.RequiresSingleUser()
		out.Inventory.Secrets = out.Secrets
	}

	if r.Seen != nil {
		out.Seen = yardmaster.Seen{Number: r.Seen.Incarnation.Number, Mark: r.Seen.Incarnation.Mark, Job: r.Seen.Job}
	}

	if r.ReclaimLeft != nil {
		left := time.Duration(min(*r.ReclaimLeft, maxReclaimLeft)) * time.Second
		out.Reclaim = &left
	}

	for _, a := range r.SetAside {
		out.SetAside = append(out.SetAside, yardmaster.SetAsideRun(a))
	}

	for i := range r.Ranks {
		out.Ranks[i] = yardmaster.RankReport(r.Ranks[i])
	}

	return out
}
