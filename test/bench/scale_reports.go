package main

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

// reportsSection measures reports on usage, cost and savings, one client at a time.
type reportsSection struct{ settings }

func (reportsSection) Name() string { return "reports" }

// Run measures each report.
func (s reportsSection) Run(ctx context.Context) ([]figure, error) {
	y, err := s.at(ctx, defaultPolicy)
	if err != nil {
		return nil, err
	}

	reader, err := y.Reader()
	if err != nil {
		return nil, err
	}

	defer reader.Close()

	var questions []question
	for _, r := range y.reports() {
		questions = append(questions, question{r.name, r.note, get(reader, r.path)})
	}

	return y.askAll(ctx, 5*time.Second, questions)
}

// reports are the reports: usage with its four groups of figures, the ledger by keys, and savings.
func (y *largeYard) reports() []read {
	from := func(ago time.Duration) string {
		return "from=" + url.QueryEscape(y.stored.At.Add(-ago).UTC().Format(time.RFC3339))
	}

	const day = 24 * time.Hour

	month := from(30 * day)
	last := fmt.Sprintf("j%d", y.size.Finished)

	return []read{
		{"usage_day", "usage of a day", "/api/v1/usage?" + from(day)},
		{"usage_month", "usage of a month", "/api/v1/usage?" + month},
		{"usage_all", "usage of all time", "/api/v1/usage"},
		{"usage_user", "usage of a month of one researcher", "/api/v1/usage?researcher=user-07&" + month},
		{
			"report_user", "usage of a month of one researcher by day",
			"/api/v1/usage/report?by=day&where=researcher%3Duser-07&" + month,
		},
		{"report_job", "usage of one job, all time", "/api/v1/usage/report?by=job&where=job%3D" + last},
		{"savings_month", "savings of a month", "/api/v1/savings?" + month},
		{"savings_user", "savings of a month of one researcher", "/api/v1/savings?where=researcher%3Duser-07&" + month},
	}
}
