package server

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// summaryFor is how long a summary counts, and how far apart two are made: everyone who has the portal open asks for
// it whenever something has happened.
const summaryFor = time.Second

// summaries keeps the newest summary.
type summaries struct {
	mu    sync.Mutex
	last  api.Summary
	event uint64 // number of the newest event before it was made

	hoursMu sync.Mutex
	hours   api.UseHours
}

func (s *Server) summaryRoutes() {
	huma.Register(s.api, s.op("get-summary", http.MethodGet, "/api/v1/summary",
		"Show the yard in one line: GPUs by class and state, and how many jobs run and are queued", "nodes"), s.getSummary)
	huma.Register(s.api, s.op("get-use-hours", http.MethodGet, "/api/v1/summary/hours",
		"Show how much of the GPUs was used in each of the last 24 hours", "nodes"), s.getUseHours)
}

func (s *Server) getSummary(ctx context.Context, _ *struct{}) (*httpapi.Body[api.Summary], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	s.summaries.mu.Lock()
	defer s.summaries.mu.Unlock()

	age, event := s.Clock.Now().Sub(s.summaries.last.At).Abs(), s.Feed.Last()
	if age < summaryFor && event == s.summaries.event {
		return &httpapi.Body[api.Summary]{Body: s.summaries.last}, nil
	}

	// Whoever asks because of an event must not get what was there before it. Those who ask meanwhile get the same.
	if age < summaryFor && !clock.Sleep(ctx, summaryFor-age) {
		return nil, s.fail(ctx, ctx.Err())
	}

	event = s.Feed.Last()

	made, err := s.summarize(ctx, s.Clock.Now())
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	s.summaries.last, s.summaries.event = made, event

	return &httpapi.Body[api.Summary]{Body: made}, nil
}

// summarize makes a summary.
func (s *Server) summarize(ctx context.Context, now time.Time) (api.Summary, error) {
	out := api.Summary{At: now.UTC(), Classes: []api.ClassSummary{}}
	byClass := map[fleet.Class]*api.ClassSummary{}

	err := s.query(ctx, func(y *yardmaster.Yard) {
		infos := y.Nodes("", math.MaxInt)
		for i := range infos {
			n := &infos[i]
			if byClass[n.Class] == nil {
				byClass[n.Class] = &api.ClassSummary{Class: n.Class}
			}

			addNode(byClass[n.Class], n)
		}
	})
	if err != nil {
		return out, err
	}

	for _, class := range fleet.Classes() {
		if c := byClass[class]; c != nil {
			out.Classes = append(out.Classes, *c)
		}
	}

	counts, err := s.Store.CountJobs(ctx, store.JobFilter{States: slices.DeleteFunc(job.States(), job.State.Final)})
	if err != nil {
		return out, err
	}

	for status, n := range counts {
		switch status { //nolint:exhaustive // what is paused or ends is neither
		case job.StatusPending, job.StatusRecovering:
			out.Queued += n
		case job.StatusRunning, job.StatusStarting, job.StatusSuspended:
			out.Running += n
		}
	}

	return out, nil
}

// addNode counts a node and its GPUs.
func addNode(c *api.ClassSummary, n *yardmaster.NodeInfo) {
	c.Nodes++

	away := n.State == fleet.Suspect || n.State == fleet.Lost
	if away {
		c.Away++
	}

	if n.Class == fleet.OnDemand && n.Price != nil {
		c.Hourly += float64(n.Price.NodeCost)
	}

	for i := range n.Inventory.GPUs {
		c.GPUs.Total++

		if away {
			c.GPUs.Away++
			continue
		}

		switch state, _ := gpuState(n, &n.Inventory.GPUs[i]); state {
		case fleet.GPURunning:
			c.GPUs.Running++
		case fleet.GPUIdle:
			c.GPUs.Idle++
		case fleet.GPUForeign:
			c.GPUs.Foreign++
		case fleet.GPUError:
			c.GPUs.Error++
		}
	}
}

// How far back the hours go, and how long they count: everyone who has the portal open asks for them.
const (
	useHoursBack = 24 * time.Hour
	useHoursFor  = 10 * time.Second
)

func (s *Server) getUseHours(ctx context.Context, _ *struct{}) (*httpapi.Body[api.UseHours], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	s.summaries.hoursMu.Lock()
	defer s.summaries.hoursMu.Unlock()

	if now := s.Clock.Now(); now.Sub(s.summaries.hours.At).Abs() >= useHoursFor {
		made, err := s.useHours(ctx, now)
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		s.summaries.hours = made
	}

	return &httpapi.Body[api.UseHours]{Body: s.summaries.hours}, nil
}

// useHours adds up the last hours from the totals of the ledger.
func (s *Server) useHours(ctx context.Context, now time.Time) (api.UseHours, error) {
	from := now.UTC().Truncate(time.Hour).Add(time.Hour - useHoursBack)
	out := api.UseHours{At: now.UTC()}

	for at := from; at.Before(now); at = at.Add(time.Hour) {
		out.Hours = append(out.Hours, api.UseHour{From: at})
	}

	var sums *ledger.Report
	err := s.readLedger(ctx, func(r *reading) (err error) {
		sums, err = r.sum(ctx, ledger.Query{From: from, To: now, Group: []ledger.Key{ledger.ByHour, ledger.ByAccount}})
		return err
	})
	if err != nil {
		return out, err
	}

	labels := ledger.Buckets(ledger.ByHour, from, now)

	for i := range sums.Rows {
		row := &sums.Rows[i]
		at := slices.Index(labels, row.Keys[0])
		account := ledger.Account(row.Keys[1])

		if at < 0 || account != ledger.Use && account != ledger.Idle {
			continue
		}

		out.Hours[at].Available += seconds(row.GPUTime)
		if account == ledger.Use {
			out.Hours[at].Busy += seconds(row.GPUTime)
		}
	}

	return out, nil
}
