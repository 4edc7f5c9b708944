package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/server/metrics"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var start = time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)

// provisionFIFO starts jobs in line, and provisions the cheapest offer for those that find no place.
type provisionFIFO struct{ ordered.FIFO }

func (p provisionFIFO) Plan(v *place.View) place.Plan {
	plan := p.FIFO.Plan(v)
	for _, it := range v.Queue.Items() {
		placed := slices.ContainsFunc(plan.Starts, func(s place.Start) bool { return s.Item == it })
		provisioned := slices.ContainsFunc(v.Leases, func(l *fleet.Lease) bool { return l.Job == it.Job && l.Live() })
		if !placed && !provisioned && len(v.Offers) > 0 {
			plan.Provisions = append(
				plan.Provisions,
				place.Provision{Item: it, Offer: v.Offers[0].Name, Count: 1, Cost: 1, Reason: "nothing is free"},
			)
		}
	}

	return plan
}

var offer = fleet.Offer{
	Name:      "testcloud/g1",
	Provider:  "testcloud",
	Type:      "g1",
	GPU:       "L4",
	GPUs:      2,
	GPUMemory: 24 << 30,
	CPUs:      64000,
	Memory:    64 << 30,
	Hourly:    3_000_000,
	Boot:      job.Duration(time.Minute),
}

var tariff = &fleet.Tariff{
	Energy: 0.5,
	Nodes:  []fleet.NodePrice{{Class: fleet.Local, Watts: []float64{100, 400, 700}, Hourly: []money.PerHour{1}}},
}

// yard is a real yardmaster whose batches go to a board.
type yard struct {
	*yardmaster.Yard
	t     testing.TB
	now   time.Time
	board *metrics.Collector
	reg   *prometheus.Registry
}

// Now makes the yard a clock.
func (y *yard) Now() time.Time { return y.now }

func newYard(t testing.TB, o metrics.Options, change ...func(*yardmaster.Config)) *yard {
	t.Helper()
	cfg := yardmaster.Defaults(provisionFIFO{})
	cfg.Offers, cfg.Tariff = []fleet.Offer{offer}, tariff
	for _, c := range change {
		c(&cfg)
	}

	y := &yard{Yard: yardmaster.New(cfg), t: t, now: start, reg: prometheus.NewPedanticRegistry()}
	y.board = metrics.New(y, o)
	y.reg.MustRegister(y.board)
	y.Load(y.now, yardmaster.State{})

	for _, u := range []id.User{"ann", "bob"} {
		y.ok(yardmaster.PutUser{User: u, Role: tenant.Researcher, By: "test"})
	}

	for _, class := range fleet.Classes() {
		y.token(id.Token(class), class, "")
	}

	return y
}

func (y *yard) token(name id.Token, class fleet.Class, lease id.Lease) {
	y.t.Helper()
	y.ok(yardmaster.AddToken{By: "test", Token: tenant.Token{
		ID:       name,
		Kind:     tenant.JoinToken,
		Owner:    "ann",
		Class:    string(class),
		Lease:    lease,
		UsesLeft: 1 << 20,
		Expires:  start.AddDate(10, 0, 0),
	}})
}

// ok hands in a message that must be taken, places what can be placed, and passes on the batch.
func (y *yard) ok(m yardmaster.Message) any {
	y.t.Helper()
	reply, err := y.Step(y.now, m)
	if err != nil {
		y.t.Fatalf("%T: %v", m, err)
	}

	if y.PlanDue() {
		y.Round(y.now)
	}

	y.board.Take(y.Take())

	return reply
}

func inventory(name, model string, gpus int) fleet.Inventory {
	inv := fleet.Inventory{Address: name, CPUs: 64000, Memory: 256 << 30}
	for i := range gpus {
		inv.GPUs = append(
			inv.GPUs,
			fleet.GPU{Index: i, UUID: fmt.Sprint(name, i), Model: model, Memory: 24 << 30, Measured: 100},
		)
	}

	return inv
}

func (y *yard) node(name string, token id.Token, gpus int) id.Node {
	y.t.Helper()
	return y.ok(yardmaster.Join{Token: token, Name: name, Inventory: inventory(name, "L4", gpus)}).(fleet.Node).ID
}

func (y *yard) submit(owner id.User, gpus int) id.Job {
	y.t.Helper()
	s := &job.Spec{
		Run:       "true",
		Place:     job.PlaceAny,
		Resources: job.Resources{GPUs: job.Range{Min: gpus, Max: gpus}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
	}

	return y.ok(yardmaster.Submit{Owner: owner, Jobs: []yardmaster.NewJob{{Spec: s}}}).(yardmaster.Submitted).Jobs[0]
}

// reports tells that all ranks of a job are in a state now.
func (y *yard) reports(j id.Job, state job.RunState) {
	y.t.Helper()

	for _, o := range y.Orders() {
		if o.Job == j {
			rep := yardmaster.RankReport{Run: o.Run, Rank: o.Rank, State: state, Started: y.now}
			if state == job.RunEnded {
				rep.Ended = y.now
			}

			y.ok(yardmaster.NodeReport{Node: o.Node, Ranks: []yardmaster.RankReport{rep}})
		}
	}
}

// pass lets time pass, while these nodes report.
func (y *yard) pass(d time.Duration, heard ...id.Node) {
	y.t.Helper()

	for end := y.now.Add(d); y.now.Before(end); {
		y.now = y.now.Add(min(10*time.Second, end.Sub(y.now)))
		for _, n := range heard {
			y.ok(yardmaster.NodeReport{Node: n})
		}

		y.ok(yardmaster.Tick{})
	}
}

// scrape returns every series with its value, as Prometheus would read them.
func (y *yard) scrape() map[string]float64 {
	y.t.Helper()
	return scrape(y.t, y.reg)
}

func scrape(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))

	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}

	all := map[string]float64{}

	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}

		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		all[line[:at]] = v
	}

	return all
}

// want compares some series.
func want(t testing.TB, got map[string]float64, values map[string]float64) {
	t.Helper()

	for name, v := range values {
		g, ok := got[name]
		if !ok {
			t.Errorf("%s is not there", name)
		} else if diff := g - v; diff > 1e-6 || diff < -1e-6 {
			t.Errorf("%s = %v, want %v", name, g, v)
		}
	}
}
