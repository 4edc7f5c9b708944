package server

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/retention"
	"trainyard/internal/yardmaster"
)

// figures is what people and budgets are told of the usage of some days.
type figures struct {
	Researchers, Nodes, Months, All api.UsageReport
	Usage, UsageOfAda, UsageOfAll   api.Usage
	Savings                         api.Savings
	Quotas                          api.QuotaPage
}

func (y *yard) figures(root *api.Client, from, to, now time.Time) figures {
	y.t.Helper()
	ctx := y.t.Context()

	report := func(q api.UsageQuery) api.UsageReport {
		y.t.Helper()
		r, err := root.UsageReport(ctx, q)
		y.must(err)

		return r
	}
	usage := func(q api.UsageQuery) api.Usage {
		y.t.Helper()
		u, err := root.Usage(ctx, q)
		y.must(err)

		return u
	}

	savings, err := root.Savings(ctx, api.UsageQuery{By: []string{"researcher", "kind", "day"}})
	y.must(err)
	quotas, err := root.Quotas(ctx, api.Page{})
	y.must(err)

	return figures{
		Researchers: report(api.UsageQuery{From: from, To: to, By: []string{"researcher", "day"}}),
		Nodes:       report(api.UsageQuery{From: from, To: to, By: []string{"node", "account", "class"}}),
		Months:      report(api.UsageQuery{To: now, By: []string{"month"}}),
		All:         report(api.UsageQuery{To: now}),
		Usage:       usage(api.UsageQuery{From: from, To: to}),
		UsageOfAda:  usage(api.UsageQuery{From: from, To: now, Researcher: "ada"}),
		UsageOfAll:  usage(api.UsageQuery{To: now}),
		Savings:     savings,
		Quotas:      quotas,
	}
}

func TestUsageIsTheSameAfterItsDetailsWereRemoved(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning, withYard(func(c *yardmaster.Config) { c.Policy = thrifty{} }))
	ada, root := y.researcher("ada"), y.admin()
	_, err := root.PutQuota(t.Context(), "user/ada", api.QuotaRequest{Budget: 500_000_000})
	y.must(err)

	n := y.join("box1")
	n.listen()

	_, run := n.started(ada)
	y.advance(30 * time.Hour)
	n.ends(run, 0, 0)
	y.do(yardmaster.Cordon{Node: "box1", By: "root", On: true})
	y.srv.rollUpAll(t.Context())
	y.advance(60 * time.Hour)

	now := y.clock.Now().UTC()
	y.do(yardmaster.Cordon{Node: "box1", By: "root", On: false}) // what follows is after that
	from, to := now.Add(-90*time.Hour).Truncate(24*time.Hour), now.Add(-48*time.Hour).Truncate(24*time.Hour)
	jobs := api.UsageQuery{By: []string{"job"}}

	want := y.figures(root, from, to, now)
	if len(want.Researchers.Rows) == 0 || want.Savings.Total.Count == 0 || len(want.Quotas.Usage) == 0 {
		t.Fatalf("not much was used: %+v", want)
	}

	report, err := y.collector(retention.Limits{Unused: time.Hour, Postings: 24 * time.Hour}).Collect(t.Context())
	y.must(err)

	if report.Postings == 0 || !strings.Contains(report.String(), "old usage records") {
		t.Errorf("it %s", report.String())
	}

	got := y.figures(root, from, to, now)
	want.Usage.Trend, got.Usage.Trend = nil, nil // by hour, and by day now
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was used (-before +after):\n%s", diff)
	}

	// Jobs and hours are known since the day of which all is kept, and the report says so.
	kept := now.Add(-24 * time.Hour).Truncate(24 * time.Hour)
	hours := api.UsageQuery{By: []string{"hour"}}

	for _, q := range []api.UsageQuery{jobs, hours} {
		usage, err := root.UsageReport(t.Context(), q)
		y.must(err)
		savings, err := root.Savings(t.Context(), q)
		y.must(err)

		if usage.From == nil || !usage.From.Equal(kept) || savings.From == nil || !savings.From.Equal(kept) {
			t.Errorf("by %v usage is reported since %v and savings since %v, want %v", q.By, usage.From, savings.From, kept)
		}

		q.From = from
		_, err = root.UsageReport(t.Context(), q)
		wantFault(t, err, fault.Invalid, "ledger_detail")
		_, err = root.Savings(t.Context(), q)
		wantFault(t, err, fault.Invalid, "ledger_detail")
	}

	// A short period is shown by day if there are no hours of it.
	day, err := root.Usage(t.Context(), api.UsageQuery{From: from, To: from.Add(24 * time.Hour)})
	y.must(err)

	if len(day.Trend) != 1 {
		t.Errorf("the trend of a day: %+v", day.Trend)
	}
}
