package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/utilization"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
)

func (s *Server) wasteRoutes() {
	huma.Register(s.api, s.op("waste", http.MethodGet, "/api/v1/waste",
		"List what was paid for without use, with evidence and what would avoid it", "usage"), s.waste)
}

// What counts as waste, and how much is looked at.
const (
	wastePeriod     = 30 * 24 * time.Hour
	minNodeTime     = 24 * time.Hour // of a node, before its use says something
	idleRate        = 0.2            // of the time that GPUs were available: below it a node is idle
	overheadShare   = 0.2            // of what on-demand nodes cost
	minOverhead     = 1.0            // dollars
	minFailures     = 2              // jobs of one name
	maxWasteJobs    = 200
	maxFindings     = 50
	maxFindingsJobs = 5
)

type wasteInput struct {
	From  time.Time `query:"from" doc:"start of the period; default: 30 days before its end"`
	To    time.Time `query:"to" doc:"end of the period; default: now"`
	Owner string    `query:"owner" maxLength:"63" doc:"only what concerns jobs of this user; nodes are left out then"`
}

// waste looks for what was paid for without use. Nodes are for those who may see everyone's usage.
func (s *Server) waste(ctx context.Context, in *wasteInput) (*httpapi.Body[api.Waste], error) {
	owner, err := ownerFilter(ctx, tenant.ReadUsage, id.User(in.Owner), "")
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	to := cmp.Or(in.To, s.Clock.Now())
	q := ledger.Query{From: cmp.Or(in.From, to.Add(-wastePeriod)), To: to}

	if _, err := ledger.NewSummary(q); err != nil { // before anything is read
		return nil, s.fail(ctx, err)
	}

	end, err := s.reports.begin(ctx, callerOf(ctx).User)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	out := api.Waste{From: q.From.UTC(), To: to.UTC()}

	out.Findings, out.NoTariff, err = s.nodeWaste(ctx, q, owner)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	jobs, err := s.endedJobs(ctx, q, owner)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	found, err := s.jobWaste(ctx, jobs)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	out.JobsChecked = len(jobs)
	out.Findings = append(out.Findings, found...)
	slices.SortStableFunc(out.Findings, func(a, b api.Finding) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.GPUSeconds, a.GPUSeconds))
	})

	if len(out.Findings) > maxFindings {
		out.Findings = out.Findings[:maxFindings]
	}

	return &httpapi.Body[api.Waste]{Body: out}, nil
}

// nodeWaste looks at nodes, and at what on-demand nodes cost beside runs.
func (s *Server) nodeWaste(ctx context.Context, q ledger.Query, owner id.User) ([]api.Finding, bool, error) {
	found := []api.Finding{}
	noTariff := false

	nodes, onDemand := q, q
	nodes.Group = []ledger.Key{ledger.ByClass, ledger.ByNode, ledger.ByAccount}
	onDemand.Group = []ledger.Key{ledger.ByAccount}
	onDemand.Filter = []ledger.Filter{{Key: ledger.ByClass, Values: []string{string(fleet.OnDemand)}}}

	if owner != "" {
		onDemand.Filter = with(onDemand.Filter, ledger.ByResearcher, string(owner))
	}

	err := s.readLedger(ctx, func(r *reading) error {
		found, noTariff = found[:0], r.noTariff

		if owner == "" {
			report, err := r.sum(ctx, nodes)
			if err != nil {
				return err
			}

			found = append(found, idleNodes(report)...)
		}

		report, err := r.sum(ctx, onDemand)
		if err != nil {
			return err
		}

		found = append(found, overhead(report)...)

		return nil
	})

	return found, noTariff, err
}

// nodeUse is what a node was doing.
type nodeUse struct {
	class    fleet.Class
	node     string
	accounts map[ledger.Account]ledger.Amounts
}

// idleNodes finds local and reserved nodes that hardly anything ran on, and those that were out of service.
func idleNodes(r *ledger.Report) []api.Finding {
	var found []api.Finding

	for _, n := range nodesOf(r) {
		if n.class == fleet.OnDemand {
			continue
		}

		if one, ok := n.idle(); ok {
			found = append(found, one)
		}

		if one, ok := n.outOfService(); ok {
			found = append(found, one)
		}
	}

	return found
}

// nodesOf collects the accounts of each node: rows are sorted by class, node and account.
func nodesOf(r *ledger.Report) []nodeUse {
	var nodes []nodeUse

	for i := range r.Rows {
		row := &r.Rows[i]
		class, name := fleet.Class(row.Keys[0]), row.Keys[1]

		if n := len(nodes); n == 0 || nodes[n-1].class != class || nodes[n-1].node != name {
			nodes = append(nodes, nodeUse{class, name, map[ledger.Account]ledger.Amounts{}})
		}

		nodes[len(nodes)-1].accounts[ledger.Account(row.Keys[2])] = row.Amounts
	}

	return nodes
}

func (n *nodeUse) idle() (api.Finding, bool) {
	used, idle := n.accounts[ledger.Use], n.accounts[ledger.Idle]
	if (used.NodeTime + idle.NodeTime).Duration() < minNodeTime {
		return api.Finding{}, false
	}

	busy, all, unit := used.GPUTime, used.GPUTime+idle.GPUTime, "GPU-hours"
	if all == 0 {
		busy, all, unit = used.NodeTime, used.NodeTime+idle.NodeTime, "hours"
	}

	rate := float64(busy) / float64(all)
	if rate >= idleRate {
		return api.Finding{}, false
	}

	remedy := "if it can be switched off while it is idle, say so in the tariff (off: true); else let more jobs run there"
	if n.class == fleet.Reserved {
		remedy = "trainyard recommend replays the period with one reserved node less"
	}

	return api.Finding{
		Kind: api.WasteIdleNode, Subject: n.node, Remedy: remedy,
		Evidence: fmt.Sprintf("%s node, used %s of %.0f %s", n.class, humanize.Percent(rate), all.Hours(), unit),
		Cost:     idle.Cost().Dollars(), GPUSeconds: seconds(idle.GPUTime),
	}, true
}

func (n *nodeUse) outOfService() (api.Finding, bool) {
	broken, cordoned := n.accounts[ledger.Error], n.accounts[ledger.Cordoned]

	lost := broken.GPUTime + cordoned.GPUTime
	if lost == 0 {
		lost = broken.NodeTime + cordoned.NodeTime
	}

	if lost.Duration() < minNodeTime {
		return api.Finding{}, false
	}

	return api.Finding{
		Kind: api.WasteBrokenNode, Subject: n.node,
		Evidence: fmt.Sprintf("%s node, %.0f GPU-hours in error and %.0f cordoned", n.class, broken.GPUTime.Hours(),
			cordoned.GPUTime.Hours()),
		Remedy: fmt.Sprintf("trainyard nodes %s says why; repair it, uncordon it, or remove it", n.node),
		Cost:   (broken.Cost() + cordoned.Cost()).Dollars(), GPUSeconds: seconds(broken.GPUTime + cordoned.GPUTime),
	}, true
}

// overheadRemedies say what lets on-demand nodes cost less beside runs.
var overheadRemedies = map[ledger.Account]string{ //nolint:exhaustive // what is used needs none
	ledger.Idle:      "release them sooner, with a shorter idle time in the clouds file",
	ledger.Boot:      "fewer and longer jobs on each node, or an image that boots faster",
	ledger.Releasing: "the provider takes long to end them; another offer may be cheaper",
	ledger.Waste:     "they are billed in whole increments; another offer may have shorter ones",
	ledger.Error:     "trainyard leases lists them; report the broken ones to the provider",
	ledger.Cordoned:  "release cordoned ones: trainyard leases lists them",
	ledger.Foreign:   "processes outside the yard use them: trainyard nodes shows where",
}

// overhead finds what on-demand nodes cost while no run held them, if that is much.
func overhead(r *ledger.Report) []api.Finding {
	var beside ledger.Amounts
	var largest *ledger.Row
	var parts []string

	for i := range r.Rows {
		row := &r.Rows[i]
		if ledger.Account(row.Keys[0]) == ledger.Use || row.Cost() == 0 {
			continue
		}

		beside.NodeCost += row.Cost()
		beside.GPUTime += row.GPUTime
		parts = append(parts, humanize.Dollars(row.Cost().Dollars())+" "+row.Keys[0])

		if largest == nil || row.Cost() > largest.Cost() {
			largest = row
		}
	}

	all, cost := r.Total.Cost().Dollars(), beside.NodeCost.Dollars()
	if cost < minOverhead || cost < overheadShare*all {
		return nil
	}

	return []api.Finding{{
		Kind: api.WasteProvisioning, Subject: string(fleet.OnDemand),
		Evidence: fmt.Sprintf("%s of %s for on-demand nodes was not for runs: %s", humanize.Dollars(cost),
			humanize.Dollars(all), humanize.List(parts...)),
		Remedy: overheadRemedies[ledger.Account(largest.Keys[0])],
		Cost:   cost, GPUSeconds: seconds(beside.GPUTime),
	}}
}

// endedJobs returns the newest jobs that ended in a period, of one owner or of all that the caller may see.
func (s *Server) endedJobs(ctx context.Context, q ledger.Query, owner id.User) ([]job.Job, error) {
	f := store.JobFilter{
		Owner: owner, Since: q.From, Limit: maxWasteJobs,
		States: slices.DeleteFunc(job.States(), func(s job.State) bool { return !s.Final() }),
	}

	if err := confineJobs(ctx, &f); err != nil {
		return nil, err
	}

	jobs, err := s.Store.Jobs(ctx, f)

	return slices.DeleteFunc(jobs, func(j job.Job) bool { return !j.Ended.Before(q.To) }), err
}

// sameJobs are jobs of one owner and name, newest first.
type sameJobs struct {
	owner id.User
	name  string
	jobs  []*job.Job
}

// jobWaste looks at jobs that failed again and again, and at those that asked for more than they used.
func (s *Server) jobWaste(ctx context.Context, jobs []job.Job) ([]api.Finding, error) {
	var found []api.Finding

	for _, same := range groupJobs(jobs) {
		if one, ok := same.failures(); ok {
			found = append(found, one)
		}

		one, ok, err := s.unusedRequests(ctx, same)
		if err != nil {
			return nil, err
		}

		if ok {
			found = append(found, one)
		}
	}

	return found, nil
}

// groupJobs puts jobs with the same owner and name together, in the order of their newest ones.
func groupJobs(jobs []job.Job) []*sameJobs {
	type key struct {
		owner id.User
		name  string
	}

	var list []*sameJobs
	known := map[key]*sameJobs{}

	for i := range jobs {
		j := &jobs[i]

		k := key{j.Owner, j.Spec.Name}
		if k.name == "" {
			k.name = string(j.ID) // those without a name have nothing in common
		}

		if known[k] == nil {
			known[k] = &sameJobs{owner: k.owner, name: k.name}
			list = append(list, known[k])
		}

		known[k].jobs = append(known[k].jobs, j)
	}

	return list
}

// failures reports jobs of one name of which several failed.
func (g *sameJobs) failures() (api.Finding, bool) {
	var failed []*job.Job
	cost, served := 0.0, 0.0

	for _, j := range g.jobs {
		if j.State == job.Failed {
			failed = append(failed, j)
			cost += float64(j.Cost)
			served += j.Served
		}
	}

	if len(failed) < minFailures || cost == 0 && served == 0 {
		return api.Finding{}, false
	}

	newest := failed[0]

	remedy := fmt.Sprintf("trainyard job %s says why the newest failed", newest.ID)
	if newest.Spec.Checkpoint == nil {
		remedy += "; with checkpoints (checkpoint: in the job file) a retry continues where it ended"
	}

	return api.Finding{
		Kind: api.WasteFailures, Subject: g.name, Owner: g.owner, Remedy: remedy,
		Evidence: fmt.Sprintf("%d of %s failed", len(failed), humanize.Count(len(g.jobs), "job")),
		Jobs:     firstIDs(failed), JobCount: len(failed), Cost: cost, GPUSeconds: served,
	}, true
}

// unusedRequests reports what the newest job of a name asked for and did not use.
func (s *Server) unusedRequests(ctx context.Context, g *sameJobs) (api.Finding, bool, error) {
	newest := g.jobs[0]

	u, err := s.utilizationOf(ctx, newest)
	if err != nil || u == nil || utilization.TooShort(u) || len(u.Advice) == 0 {
		return api.Finding{}, false, err
	}

	return api.Finding{
		Kind: api.WasteRequests, Subject: g.name, Owner: g.owner,
		Evidence: fmt.Sprintf("%s was measured for %s", newest.ID, humanize.Seconds(u.Elapsed)),
		Remedy:   strings.Join(u.Advice, "; "),
		Jobs:     firstIDs(g.jobs), JobCount: len(g.jobs),
	}, true, nil
}

func firstIDs(jobs []*job.Job) []id.Job {
	var list []id.Job
	for _, j := range jobs[:min(len(jobs), maxFindingsJobs)] {
		list = append(list, j.ID)
	}

	return list
}
