package server

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) usageRoutes() {
	huma.Register(
		s.api,
		s.reportOp(
			"usage",
			"/usage",
			"Report use rates, on-demand nodes, time and cost by researcher",
			reflect.TypeFor[api.Usage](),
		),
		s.usage,
	)

	huma.Register(
		s.api,
		s.reportOp("usage-report", "/usage/report", "Report usage and cost of a period, grouped by keys",
			reflect.TypeFor[api.UsageReport]()),
		s.usageReport,
	)
}

// reportOp describes an operation whose answer is JSON, or CSV where that is asked for.
func (s *Server) reportOp(name, path, summary string, t reflect.Type) huma.Operation {
	op := s.op(name, http.MethodGet, "/api/v1"+path, summary, "usage")
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())},
		csvType:            {Schema: &huma.Schema{Type: "string"}},
	}}}

	return op
}

const csvType = "text/csv"

// written is an answer that may be JSON or CSV.
type written struct {
	ContentType string `header:"Content-Type"`
	Body        any
}

// Form says in which form an answer is wanted.
type Form struct {
	Accept string `header:"Accept" hidden:"true"`
	Format string `query:"format" enum:"json,csv" doc:"response format; default: chosen by the Accept header"`
}

// write answers with a value, or with the table that csv writes.
func (f *Form) write(value any, csv func(io.Writer) error) (*written, error) {
	if f.Format != "csv" && (f.Format != "" || !strings.HasPrefix(f.Accept, csvType)) {
		return &written{"application/json", value}, nil
	}

	var out bytes.Buffer
	if err := csv(&out); err != nil {
		return nil, err
	}

	return &written{csvType + "; charset=utf-8", out.Bytes()}, nil
}

// Period is of what time a report is.
type Period struct {
	From time.Time `query:"from" doc:"start of the period; default: all recorded usage"`
	To   time.Time `query:"to" doc:"end of the period; default: now"`
}

type usageReportInput struct {
	Form
	Period
	By    []string `query:"by" maxItems:"15" doc:"keys to group by: researcher, project, class, node, gpu, provider, offer, lease, job, run, account, hour, day, week, month"`
	Where []string `query:"where,explode" maxItems:"100" doc:"KEY=VALUE; several values of one key are alternatives"`
}

// question reads what the report is about.
func (in *usageReportInput) question() (ledger.Query, error) {
	q := ledger.Query{From: in.From, To: in.To}
	for _, by := range in.By {
		q.Group = append(q.Group, ledger.Key(strings.TrimSpace(by)))
	}

	for _, text := range in.Where {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return q, fault.New(fault.Invalid, "bad_filter", "invalid filter %q", text).
				WithField("where").
				WithRemedy("use KEY=VALUE, e.g. class=ondemand")
		}

		q.Filter = with(q.Filter, ledger.Key(key), value)
	}

	return q, nil
}

// with adds a value to the filter of a key.
func with(list []ledger.Filter, key ledger.Key, value string) []ledger.Filter {
	for i := range list {
		if list[i].Key == key {
			list[i].Values = append(list[i].Values, value)
			return list
		}
	}

	return append(list, ledger.Filter{Key: key, Values: []string{value}})
}

// confine keeps a question to what the caller may see: who may not see everyone's rows
// sees their own, or those of projects whose usage they may read and which they ask for, and is told so when they ask
// for another's.
func (s *Server) confine(ctx context.Context, q *ledger.Query) error {
	who := callerOf(ctx)
	if who.May(tenant.ReadUsage, "") || ofProjects(q, who.Sees(tenant.ReadUsage)) {
		return nil
	}

	for _, f := range q.Filter {
		if f.Key != ledger.ByResearcher {
			continue
		}

		for _, name := range f.Values {
			if err := allow(ctx, tenant.ReadUsage, id.User(name)); err != nil {
				return err
			}
		}
	}

	q.Filter = append(q.Filter, ledger.Filter{Key: ledger.ByResearcher, Values: []string{string(who.User)}})

	return allow(ctx, tenant.ReadUsage, who.User)
}

// ofProjects reports whether a question is about these projects only.
func ofProjects(q *ledger.Query, projects []id.Project) bool {
	for _, f := range q.Filter {
		if f.Key != ledger.ByProject {
			continue
		}

		return len(f.Values) > 0 && !slices.ContainsFunc(f.Values, func(name string) bool {
			return !slices.Contains(projects, id.Project(name))
		})
	}

	return false
}

func (s *Server) usageReport(ctx context.Context, in *usageReportInput) (*written, error) {
	q, err := in.question()
	if err == nil {
		err = s.confine(ctx, &q)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	sum, err := ledger.NewSummary(q) // before anything is read
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	r, err := s.readLedger(ctx, q.From, q.To)
	if err == nil {
		for p := range r.postings() {
			sum.Add(p)
		}

		err = r.err
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	report, err := sum.Report()
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	value := toUsageReport(report)
	value.NoTariff = r.noTariff

	out, err := in.write(value, report.WriteCSV)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return out, nil
}

// reading is a pass through the ledger of a period, and what has run up since.
type reading struct {
	server   *Server
	ctx      context.Context //nolint:containedctx // lives as long as the request
	from, to time.Time
	open     []ledger.Posting
	last     uint64 // posting before those
	noTariff bool   // prices of local and reserved nodes are not known
	err      error
}

// readLedger looks at what runs up now. That is asked first: what is posted meanwhile is
// left out of what is stored, so that nothing counts twice and nothing is missing.
func (s *Server) readLedger(ctx context.Context, from, to time.Time) (*reading, error) {
	r := &reading{server: s, ctx: ctx, from: from, to: to}
	err := s.query(ctx, func(y *yardmaster.Yard) {
		r.open, r.last = y.Unposted(s.Clock.Now())
		r.noTariff = y.Tariff() == nil
	})

	return r, err
}

// postings yields the postings in order. If it stops early, err holds the reason.
func (r *reading) postings() iter.Seq[*ledger.Posting] {
	return func(yield func(*ledger.Posting) bool) {
		done := false
		err := r.server.Store.Postings(r.ctx, r.from, r.to, func(p *ledger.Posting) error {
			if p.Seq <= r.last && !yield(p) {
				done = true
				return io.EOF
			}

			return nil
		})

		if done {
			return
		}

		r.err = err
		if err != nil {
			return
		}

		for i := range r.open {
			if !yield(&r.open[i]) {
				return
			}
		}
	}
}

func toUsageReport(r *ledger.Report) api.UsageReport {
	out := api.UsageReport{
		From:  timeOrNil(r.From),
		To:    timeOrNil(r.To),
		Group: keyNames(r.Group),
		Rows:  make([]api.UsageRow, len(r.Rows)),
		Total: toAmounts(&r.Total),
	}

	for i := range r.Rows {
		out.Rows[i] = api.UsageRow{Keys: r.Rows[i].Keys, Amounts: toAmounts(&r.Rows[i].Amounts)}
	}

	return out
}

func keyNames(keys []ledger.Key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = string(k)
	}

	return names
}

func toAmounts(a *ledger.Amounts) api.Amounts {
	return api.Amounts{
		NodeSeconds: seconds(a.NodeTime),
		GPUSeconds:  seconds(a.GPUTime),
		NodeCost:    a.NodeCost.Dollars(),
		EnergyCost:  a.EnergyCost.Dollars(),
		Cost:        a.Cost().Dollars(),
		Energy:      a.Energy.KWh(),
	}
}

func seconds(s ledger.Span) float64 { return float64(s) / 1000 }
