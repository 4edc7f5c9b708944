package server

import (
	"cmp"
	"context"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/ledger"
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

	list, err := s.Store.Savings(ctx, q.From, q.To)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	report, err := ledger.SumSavings(list, q)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	value := toSavings(report)
	value.Decisions = greatest(list, q)
	out, err := in.write(value, report.WriteCSV)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return out, nil
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

// greatest lists the decisions that saved or lost most of those that a question lets through.
func greatest(list []ledger.Saving, q ledger.Query) []api.SavingReason {
	out := []api.SavingReason{}
	slices.SortStableFunc(list, func(a, b ledger.Saving) int {
		return cmp.Or(cmp.Compare(max(b.Money, -b.Money), max(a.Money, -a.Money)),
			cmp.Compare(max(b.Time, -b.Time), max(a.Time, -a.Time)))
	})
	for i := range list {
		s := &list[i]
		one, err := ledger.SumSavings(list[i:i+1], ledger.Query{From: q.From, To: q.To, Filter: q.Filter})
		if err != nil || one.Total.Count == 0 {
			continue // the question was found to be sound before
		}

		out = append(
			out,
			api.SavingReason{
				At:      shown(s.At),
				Job:     s.Job,
				Owner:   s.Owner,
				Kind:    s.Kind,
				Money:   s.Money.Dollars(),
				Seconds: seconds(s.Time),
				Reason:  s.Reason,
			},
		)

		if len(out) == maxReasons {
			break
		}
	}

	return out
}
