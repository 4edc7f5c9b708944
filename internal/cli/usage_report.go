package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"trainyard/internal/api"
)

// usageReport shows usage grouped by the keys of --by.
func (a *app) usageReport(ctx context.Context, c *api.Client, q api.UsageQuery) error {
	report, err := c.UsageReport(ctx, q)
	if err != nil {
		return err
	}

	return a.Show(report, nil, func() error { return a.usageReportTable(&report) })
}

func (a *app) usageReportTable(b *api.UsageReport) error {
	head := make([]string, 0, len(b.Group)+5)
	for _, k := range b.Group {
		head = append(head, strings.ToUpper(k))
	}

	t := a.NewTable(append(head, "NODE-HOURS", "GPU-HOURS", "NODE COST", "ENERGY COST", "KWH", "COST")...)
	money := moneyWriter(b.NoTariff)
	add := func(keys []string, m *api.Amounts) {
		t.Row(append(append([]string{}, keys...), hours(m.NodeSeconds), hours(m.GPUSeconds), money(m.NodeCost),
			money(m.EnergyCost), strconv.FormatFloat(m.Energy, 'f', 2, 64), money(m.Cost))...)
	}

	for i := range b.Rows {
		keys := append([]string{}, b.Rows[i].Keys...)
		for k, name := range b.Group {
			if keys[k] == "" && name == "researcher" {
				keys[k] = "(the yard)"
			}
		}

		add(keys, &b.Rows[i].Amounts)
	}

	if len(b.Rows) > 1 && len(b.Group) > 0 {
		total := make([]string, len(b.Group))
		total[0] = "TOTAL"
		add(total, &b.Total)
	}

	if len(b.Rows) > 0 {
		if _, err := fmt.Fprintf(a.Stdout, "Usage %s\n\n", a.period(b.From, b.To)); err != nil {
			return err
		}
	}

	if err := a.WriteTable(t, "no usage "+a.period(b.From, b.To),
		"trainyard usage --last all       since the beginning",
		"trainyard nodes                  list the nodes"); err != nil {
		return err
	}

	a.noteTariff(b.NoTariff && len(b.Rows) > 0)

	return nil
}
