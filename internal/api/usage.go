package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Amounts is the usage and cost of a row. The names are those of the CSV form.
type Amounts struct {
	NodeSeconds float64 `json:"node_seconds"`
	GPUSeconds  float64 `json:"gpu_seconds"`
	NodeCost    float64 `json:"node_cost_usd"`
	EnergyCost  float64 `json:"energy_cost_usd"`
	Cost        float64 `json:"cost_usd"`
	Energy      float64 `json:"energy_kwh"`
}

// UsageReport is usage and cost, grouped by keys.
type UsageReport struct {
	From  *time.Time `json:"from,omitempty"`
	To    *time.Time `json:"to,omitempty"`
	Group []string   `json:"group"`
	Rows  []UsageRow `json:"rows" doc:"rows sorted by key"`
	Total Amounts    `json:"total"`

	NoTariff bool `json:"no_tariff,omitempty" doc:"the server has no tariff: what local and reserved nodes cost is unknown, not 0"`
}

// UsageRow is one row of a usage report.
type UsageRow struct {
	Keys []string `json:"keys" doc:"one key for each entry of group"`
	Amounts
}

// Usage is the four groups of figures by name, what was paid for without use, and how
// both went over the period.
type Usage struct {
	From       *time.Time    `json:"from,omitempty"`
	To         *time.Time    `json:"to,omitempty"`
	UseRate    []UseRate     `json:"use_rate" doc:"utilization of local and reserved nodes, first by class, then by node"`
	OnDemand   []Provisioned `json:"on_demand" doc:"on-demand nodes created, their time and cost, first in total, then by offer"`
	Own        []OwnTime     `json:"own_by_researcher" doc:"time on local and reserved nodes by researcher"`
	OnDemandBy []Provisioned `json:"on_demand_by_researcher" doc:"on-demand nodes created, their time and cost, by researcher"`
	Unused     []Unused      `json:"unused" doc:"capacity available but not used, by class and account"`
	Trend      []Trend       `json:"trend" doc:"usage and cost by hour or day"`

	NoTariff bool `json:"no_tariff,omitempty" doc:"the server has no tariff: what local and reserved nodes cost is unknown, not 0"`
}

// UseRate is how much of a node, or of all nodes of a class, was used.
type UseRate struct {
	Class         fleet.Class `json:"class"`
	Node          id.Node     `json:"node,omitempty" doc:"absent in the row of the whole class"`
	BusyNode      float64     `json:"busy_node_seconds"`
	AvailableNode float64     `json:"available_node_seconds"`
	NodeRate      float64     `json:"node_rate"`
	BusyGPU       float64     `json:"busy_gpu_seconds"`
	AvailableGPU  float64     `json:"available_gpu_seconds"`
	GPURate       float64     `json:"gpu_rate"`
}

// Provisioned is how many on-demand nodes were created, how long they were kept and what they cost.
type Provisioned struct {
	Offer        string  `json:"offer,omitempty" doc:"absent in the total row"`
	Researcher   id.User `json:"researcher,omitempty" doc:"absent for nodes not provisioned for a researcher"`
	Creations    int     `json:"creations"`
	NodeSeconds  float64 `json:"node_seconds"`
	GPUSeconds   float64 `json:"gpu_seconds"`
	Estimated    float64 `json:"estimated_usd"`
	Billed       float64 `json:"billed_usd" doc:"cost reported by providers for leases that ended in the period"`
	BilledLeases int     `json:"billed_leases" doc:"number of leases included in billed_usd"`
}

// OwnTime is what a researcher had of nodes that are paid for anyway.
type OwnTime struct {
	Researcher  id.User     `json:"researcher"`
	Class       fleet.Class `json:"class"`
	NodeSeconds float64     `json:"node_seconds"`
	GPUSeconds  float64     `json:"gpu_seconds"`
	Cost        float64     `json:"cost_usd"`
}

// Unused is what was there and not used, for one reason.
type Unused struct {
	Class       fleet.Class `json:"class"`
	Account     string      `json:"account" doc:"what kept the capacity from use: idle, error, foreign, cordoned, boot, releasing or waste"`
	NodeSeconds float64     `json:"node_seconds"`
	GPUSeconds  float64     `json:"gpu_seconds"`
	Cost        float64     `json:"cost_usd"`
}

// Trend is what runs used in one stretch of the period, and what all cost in it.
type Trend struct {
	Label      string  `json:"label" doc:"day or hour in UTC, e.g. 2026-11-15 or 2026-11-15T09"`
	GPUSeconds float64 `json:"gpu_seconds" doc:"GPU-seconds allocated to runs"`
	Cost       float64 `json:"cost_usd" doc:"cost of all nodes, used or not"`
}

// UsageSeries is how usage and cost of a period went, with a line for each of the values of a key that cost most.
type UsageSeries struct {
	From   *time.Time  `json:"from,omitempty"`
	To     *time.Time  `json:"to,omitempty"`
	Step   string      `json:"step" enum:"hour,day,week" doc:"length of a stretch; longer periods have longer ones"`
	By     string      `json:"by"`
	Starts []time.Time `json:"starts" doc:"beginning of each stretch; days and weeks begin at midnight UTC"`
	Lines  []UsageLine `json:"lines" doc:"highest cost first; the last one may be all other values together"`
	Total  Amounts     `json:"total"`

	NoTariff bool `json:"no_tariff,omitempty" doc:"the server has no tariff: what local and reserved nodes cost is unknown, not 0"`
}

// UsageLine is one value of a key over a period. Each list has a figure for each stretch.
type UsageLine struct {
	Key        string    `json:"key" doc:"value of the key; for researchers the yard itself is empty"`
	Others     int       `json:"others,omitempty" doc:"number of values that the line adds up; absent if it is of one value"`
	Cost       []float64 `json:"cost_usd"`
	GPUSeconds []float64 `json:"gpu_seconds"`
	Energy     []float64 `json:"energy_kwh"`
}

// UsageQuery says what a report is about.
type UsageQuery struct {
	From, To time.Time // zero: since the beginning, until now
	By       []string  // rows are by these
	Where    []string  // KEY=VALUE, all of which hold; several values of one key are alternatives
	// Researcher is for usage, which is by nothing: only what this one used and pays for.
	Researcher id.User
}

func (b UsageQuery) query() url.Values {
	q := url.Values{}
	setTime(q, "from", b.From)
	setTime(q, "to", b.To)
	set(q, "by", strings.Join(b.By, ","))
	set(q, "researcher", string(b.Researcher))

	for _, w := range b.Where {
		q.Add("where", w)
	}

	return q
}

// Usage returns the figures of a period.
func (c *Client) Usage(ctx context.Context, q UsageQuery) (Usage, error) {
	return get[Usage](ctx, c, at("usage"), q.query())
}

// UsageReport returns usage and cost, grouped by keys.
func (c *Client) UsageReport(ctx context.Context, q UsageQuery) (UsageReport, error) {
	return get[UsageReport](ctx, c, at("usage", "report"), q.query())
}

// CSV writes one of the reports, named by its path ("usage", "usage/report" or "savings"), as
// comma-separated values.
func (c *Client) CSV(ctx context.Context, report string, q UsageQuery, w io.Writer) error {
	resp, err := c.send(
		ctx,
		c.http,
		http.MethodGet,
		at(strings.Split(report, "/")...),
		q.query(),
		nil,
		"Accept",
		"text/csv",
	)
	if err != nil {
		return err
	}

	defer func() { _ = resp.Body.Close() }()

	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", report, err)
	}

	return nil
}

// CodeTooManyReports is the code of a report that would be one too many at the same time.
const CodeTooManyReports = "too_many_reports"
