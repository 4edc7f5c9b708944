package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"trainyard/internal/store"
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

	huma.Register(
		s.api,
		s.op("usage-series", http.MethodGet, "/api/v1/usage/series", "Report how usage and cost of a period went, by one key",
			"usage"),
		s.usageSeries,
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
	Body        func(huma.Context)
}

// Form says in which form an answer is wanted.
type Form struct {
	Accept string `header:"Accept" hidden:"true"`
	Format string `query:"format" enum:"json,csv" doc:"response format; default: chosen by the Accept header"`
}

// write answers with a value, or with the table that csv writes, row by row as it is sent.
func (f *Form) write(value func() any, csv func(io.Writer) error) (*written, error) {
	if f.Format == "csv" || f.Format == "" && strings.HasPrefix(f.Accept, csvType) {
		return &written{csvType + "; charset=utf-8", func(hc huma.Context) { send(hc, csv) }}, nil
	}

	var text bytes.Buffer

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(value()); err != nil {
		return nil, fmt.Errorf("write a report: %w", err)
	}

	return &written{"application/json", func(hc huma.Context) {
		send(hc, func(w io.Writer) error {
			_, err := text.WriteTo(w)
			return err
		})
	}}, nil
}

// send writes an answer. If that fails the connection is broken off: the answer has begun, and nothing else says
// that it is not whole.
func send(hc huma.Context, write func(io.Writer) error) {
	if err := write(hc.BodyWriter()); err != nil {
		panic(http.ErrAbortHandler)
	}
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

	if _, err := ledger.NewSummary(q); err != nil { // before anything is read
		return nil, s.fail(ctx, err)
	}

	end, err := s.reports.begin(ctx, callerOf(ctx).User)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	var report *ledger.Report
	var noTariff bool

	err = s.readLedger(ctx, func(r *reading) (err error) {
		noTariff = r.noTariff
		report, err = r.sum(ctx, q)

		return err
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	out, err := in.write(func() any {
		value := toUsageReport(report)
		value.NoTariff = noTariff

		return value
	}, report.WriteCSV)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return out, nil
}

// reading is a look at the ledger, and at what has run up since the last postings.
type reading struct {
	store    store.Store
	open     []ledger.Posting
	last     uint64    // posting before those
	noTariff bool      // prices of local and reserved nodes are not known
	detailed time.Time // since when the ledger has more than totals of days
}

// maxReadings is how often the ledger is looked at again because it has gone on meanwhile.
const maxReadings = 5

// readLedger lets a function read the ledger, perhaps more than once. What runs up now is asked first: what is posted
// meanwhile is left out of what is stored, so that nothing counts twice and nothing is missing.
func (s *Server) readLedger(ctx context.Context, read func(*reading) error) error {
	for attempt := 1; ; attempt++ {
		r := &reading{store: s.Store}
		err := s.query(ctx, func(y *yardmaster.Yard) {
			r.open, r.last = y.Unposted(s.Clock.Now())
			r.noTariff = y.Tariff() == nil
		})
		if err != nil {
			return err
		}

		r.detailed, err = s.Store.LedgerDetail(ctx)
		if err != nil {
			return err
		}

		err = read(r)
		if !errors.Is(err, store.ErrLedgerAhead) || attempt == maxReadings {
			return err
		}
	}
}

// each passes on the postings that a filter lets through, or totals of them, and what has run up since.
func (r *reading) each(ctx context.Context, f store.PostingFilter, add func(*ledger.Posting)) error {
	if r.last > 0 {
		f.Last = r.last

		err := r.store.Postings(ctx, f, func(p *ledger.Posting) error {
			add(p)
			return nil
		})
		if err != nil {
			return err
		}
	}

	for i := range r.open {
		add(&r.open[i])
	}

	return nil
}

// eachBeside is each for two at once, of whom the second one takes other totals, by days.
func (r *reading) eachBeside(
	ctx context.Context,
	f store.PostingFilter,
	add func(*ledger.Posting),
	other ledger.Totals,
	beside func(*ledger.Posting),
) error {
	f.Beside = &store.TotalsBeside{Totals: other, Yield: func(p *ledger.Posting) error {
		beside(p)
		return nil
	}}

	if err := r.each(ctx, f, add); err != nil {
		return err
	}

	for i := range r.open {
		beside(&r.open[i])
	}

	return nil
}

// sum answers a question: from totals if they are enough, else from the postings of those whom it is about. If it needs
// more than totals of days and names no beginning, the report begins where there is more.
func (r *reading) sum(ctx context.Context, q ledger.Query) (*ledger.Report, error) {
	byHour := slices.Contains(q.Group, ledger.ByHour)
	if q.From.IsZero() && (byHour || q.Totals() == "") {
		q.From = r.detailed
	}

	sum, err := ledger.NewSummary(q)
	if err != nil {
		return nil, err
	}

	f := store.PostingFilter{From: q.From, To: q.To, Totals: q.Totals(), ByHour: byHour}
	if f.Totals == "" {
		f.Owners, f.Projects, f.Jobs = payers(q.Filter)
		f.Cuts = sum.Cuts
	}

	if err := r.each(ctx, f, sum.Add); err != nil {
		return nil, err
	}

	return sum.Report()
}

// payers returns whom filters confine a question to; none if it is not confined so.
func payers(filters []ledger.Filter) (owners []id.User, projects []id.Project, jobs []id.Job) {
	for _, f := range filters {
		if slices.Contains(f.Values, "") { // what the yard pays for itself
			continue
		}

		switch f.Key { //nolint:exhaustive // the others do not confine what is read
		case ledger.ByResearcher:
			owners = typed[id.User](f.Values)
		case ledger.ByProject:
			projects = typed[id.Project](f.Values)
		case ledger.ByJob:
			jobs = typed[id.Job](f.Values)
		}
	}

	return owners, projects, jobs
}

// typed converts words.
func typed[T ~string](list []string) []T {
	out := make([]T, len(list))
	for i, word := range list {
		out[i] = T(word)
	}

	return out
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
