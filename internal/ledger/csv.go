package ledger

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// amountColumns are the names of the columns for amounts.
var amountColumns = []string{"node_seconds", "gpu_seconds", "rent_usd", "power_usd", "cost_usd", "energy_kwh"}

// columns formats amounts for the columns: seconds and dollars exactly, energy rounded.
func (a Amounts) columns() []string {
	return []string{
		a.NodeTime.String(), a.GPUTime.String(), a.NodeCost.String(), a.EnergyCost.String(), a.Cost().String(),
		strconv.FormatFloat(a.Energy.KWh(), 'f', 6, 64),
	}
}

// WriteCSV writes the rows as CSV, with a header line.
func (r *Report) WriteCSV(w io.Writer) error {
	out := newTable(w)
	head := make([]string, 0, len(r.Group)+len(amountColumns))
	for _, k := range r.Group {
		head = append(head, string(k))
	}

	out.row(append(head, amountColumns...))

	for i := range r.Rows {
		row := &r.Rows[i]
		out.row(slices.Concat(row.Keys, row.columns()))
	}

	return out.end()
}

// WriteCSV writes the groups one below the other as CSV. Each has its own header line, and its name
// in the first column.
func (u *Usage) WriteCSV(w io.Writer) error {
	out := newTable(w)
	out.row(
		[]string{
			"group",
			"class",
			"node",
			"busy_node_seconds",
			"available_node_seconds",
			"node_rate",
			"busy_gpu_seconds",
			"available_gpu_seconds",
			"gpu_rate",
		},
	)

	for _, r := range u.UseRate {
		out.row([]string{
			"use_rate", string(r.Class), string(r.Node), r.BusyNode.String(), r.AvailableNode.String(), rate(r.NodeRate),
			r.BusyGPU.String(), r.AvailableGPU.String(), rate(r.GPURate),
		})
	}

	out.row(
		[]string{
			"group",
			"offer",
			"creations",
			"node_seconds",
			"gpu_seconds",
			"estimated_usd",
			"billed_usd",
			"billed_leases",
		},
	)

	for _, h := range u.OnDemand {
		out.row(append([]string{"on_demand", h.Offer}, h.columns()...))
	}

	out.row([]string{"group", "researcher", "class", "node_seconds", "gpu_seconds", "cost_usd"})

	for _, o := range u.Own {
		out.row(
			[]string{
				"own_by_researcher",
				string(o.Researcher),
				string(o.Class),
				o.NodeTime.String(),
				o.GPUTime.String(),
				o.Cost.String(),
			},
		)
	}

	out.row(
		[]string{
			"group",
			"researcher",
			"creations",
			"node_seconds",
			"gpu_seconds",
			"estimated_usd",
			"billed_usd",
			"billed_leases",
		},
	)

	for _, h := range u.OnDemandBy {
		out.row(append([]string{"on_demand_by_researcher", string(h.Researcher)}, h.columns()...))
	}

	out.row([]string{"group", "class", "account", "node_seconds", "gpu_seconds", "cost_usd"})

	for _, x := range u.Unused {
		out.row(
			[]string{"unused", string(x.Class), string(x.Account), x.NodeTime.String(), x.GPUTime.String(), x.Cost.String()},
		)
	}

	return out.end()
}

func (h *OnDemandUsage) columns() []string {
	return []string{
		strconv.Itoa(h.Creations),
		h.NodeTime.String(),
		h.GPUTime.String(),
		h.Estimated.String(),
		h.Billed.String(),
		strconv.Itoa(h.BilledLeases),
	}
}

// WriteCSV writes the rows as CSV, with a header line.
func (r *SavingsReport) WriteCSV(w io.Writer) error {
	out := newTable(w)
	var head []string
	for _, k := range r.Group {
		head = append(head, string(k))
	}

	out.row(append(head, "decisions", "saved_usd", "saved_seconds"))

	for _, row := range r.Rows {
		out.row(slices.Concat(row.Keys, []string{strconv.Itoa(row.Count), row.Money.String(), row.Time.String()}))
	}

	return out.end()
}

func rate(r float64) string { return strconv.FormatFloat(r, 'f', 4, 64) }

// table writes rows and keeps the first error.
type table struct {
	csv *csv.Writer
	err error
}

func newTable(w io.Writer) *table { return &table{csv: csv.NewWriter(w)} }

func (t *table) row(cells []string) {
	if t.err != nil {
		return
	}

	for i := range cells {
		cells[i] = escapeFormula(cells[i])
	}

	t.err = t.csv.Write(cells)
}

func (t *table) end() error {
	t.csv.Flush()

	if t.err == nil {
		t.err = t.csv.Error()
	}

	if t.err != nil {
		return fmt.Errorf("writing the table: %w", t.err)
	}

	return nil
}

// escapeFormula prevents a spreadsheet from interpreting a name as a formula. Numbers are not
// changed.
func escapeFormula(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}

	return "'" + cell
}
