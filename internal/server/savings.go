package server

import (
	"context"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/ledger"
	"trainyard/internal/store"
)

func (s *Server) savingsRoutes() {
	huma.Register(
		s.api,
		s.reportOp("savings", "/savings", "Report savings of scheduling decisions", reflect.TypeFor[api.Savings]()),
		s.savings,
	)
}

type savingsInput struct {
	Form
	Period
	By    []string `query:"by" maxItems:"8" doc:"keys to group by: researcher, project, job, kind, hour, day, week, month; default kind"`
	Where []string `query:"where,explode" maxItems:"100" doc:"KEY=VALUE; several values of one key are alternatives"`
}

// maxReasons is how many decisions are listed with their reasons.
const maxReasons = 20

func (s *Server) savings(ctx context.Context, in *savingsInput) (*written, error) {
	ask := usageReportInput{Period: in.Period, By: in.By, Where: in.Where}
	if len(ask.By) == 0 {
		ask.By = []string{string(ledger.ByKind)}
	}

	q, err := ask.question()
	if err == nil {
		err = s.confine(ctx, &q)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	if _, err := ledger.NewSavingsSummary(q, maxReasons); err != nil { // before anything is read
		return nil, s.fail(ctx, err)
	}

	end, err := s.reports.begin(ctx, callerOf(ctx).User)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	sum, err := s.sumSavings(ctx, q)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	report := sum.Report()

	out, err := in.write(func() any {
		value := toSavings(report)
		value.Decisions = toReasons(sum.Greatest())

		return value
	}, report.WriteCSV)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return out, nil
}

// sumSavings answers a question about savings. If it needs more than totals of days and names no beginning, the answer
// begins where there is more.
func (s *Server) sumSavings(ctx context.Context, q ledger.Query) (*ledger.SavingsSummary, error) {
	f := store.SavingFilter{Totals: q.SavingTotalsDo()}
	if q.From.IsZero() && !f.Totals {
		var err error

		q.From, err = s.Store.LedgerDetail(ctx)
		if err != nil {
			return nil, err
		}
	}

	sum, err := ledger.NewSavingsSummary(q, maxReasons)
	if err != nil {
		return nil, err
	}

	f.From, f.To = q.From, q.To
	f.Owners, f.Projects, f.Jobs = payers(q.Filter)

	return sum, s.Store.Savings(ctx, f, func(x *ledger.Saving) error {
		sum.Add(x)
		return nil
	})
}

func toSavings(r *ledger.SavingsReport) api.Savings {
	out := api.Savings{
		From:  timeOrNil(r.From),
		To:    timeOrNil(r.To),
		Group: keyNames(r.Group),
		Rows:  make([]api.SavingRow, len(r.Rows)),
		Total: toSaving(&r.Total),
	}

	for i := range r.Rows {
		out.Rows[i] = toSaving(&r.Rows[i])
	}

	return out
}

func toSaving(r *ledger.SavingsRow) api.SavingRow {
	return api.SavingRow{Keys: r.Keys, Count: r.Count, Money: r.Money.Dollars(), Seconds: seconds(r.Time)}
}

// toReasons lists the decisions that saved or lost most.
func toReasons(list []ledger.Saving) []api.SavingReason {
	out := make([]api.SavingReason, len(list))
	for i := range list {
		s := &list[i]
		out[i] = api.SavingReason{
			At:      shown(s.At),
			Job:     s.Job,
			Owner:   s.Owner,
			Kind:    s.Kind,
			Money:   s.Money.Dollars(),
			Seconds: seconds(s.Time),
			Reason:  s.Reason,
		}
	}

	return out
}
