package server

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// loopMetrics measures the loop.
type loopMetrics struct {
	messages prometheus.Counter
	batches  prometheus.Histogram
	rounds   prometheus.Histogram
}

func newLoopMetrics() *loopMetrics {
	buckets := prometheus.ExponentialBuckets(0.0001, 2.5, 14)
	return &loopMetrics{
		messages: prometheus.NewCounter(prometheus.CounterOpts{Name: "trainyard_messages_total", Help: "Messages that the yardmaster handled."}),
		batches:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "trainyard_batch_seconds", Help: "Time from taking a batch of messages to answering it, commit included.", Buckets: buckets}),
		rounds:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "trainyard_round_seconds", Help: "Time of a batch up to the end of its scheduling round.", Buckets: buckets}),
	}
}

func (m *loopMetrics) batch(n int, d time.Duration) {
	m.messages.Add(float64(n))
	m.batches.Observe(d.Seconds())
}

func (m *loopMetrics) round(d time.Duration) { m.rounds.Observe(d.Seconds()) }

// Describe is part of prometheus.Collector.
func (m *loopMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.messages.Describe(ch)
	m.batches.Describe(ch)
	m.rounds.Describe(ch)
}

// Collect is part of prometheus.Collector.
func (m *loopMetrics) Collect(ch chan<- prometheus.Metric) {
	m.messages.Collect(ch)
	m.batches.Collect(ch)
	m.rounds.Collect(ch)
}

// yardMetrics counts what is in the yard when it is asked.
type yardMetrics struct {
	s       *Server
	jobs    *prometheus.Desc
	nodes   *prometheus.Desc
	waiting *prometheus.Desc
	runs    *prometheus.Desc
	orders  *prometheus.Desc
	ready   *prometheus.Desc
}

func newYardMetrics(s *Server) *yardMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &yardMetrics{
		s:       s,
		jobs:    desc("trainyard_jobs", "Jobs in memory: those that have not ended and those that ended lately.", "state"),
		nodes:   desc("trainyard_nodes", "Nodes.", "state"),
		waiting: desc("trainyard_waiting_jobs", "Jobs in line."),
		runs:    desc("trainyard_live_runs", "Runs that have not ended."),
		orders:  desc("trainyard_open_orders", "Orders that are open."),
		ready:   desc("trainyard_ready", "1 if the server can take and store requests."),
	}
}

// Describe is part of prometheus.Collector.
func (m *yardMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.jobs, m.nodes, m.waiting, m.runs, m.orders, m.ready} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *yardMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	ready := 1
	if m.s.health.why() != "" {
		ready = 0
	}
	gauge(m.ready, ready)
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	var c yardmaster.Counts
	if err := m.s.Loop.Query(ctx, func(y *yardmaster.Yard) { c = y.Counts() }); err != nil {
		return // not ready is what there is to say
	}
	for _, st := range job.States() {
		gauge(m.jobs, c.Jobs[st], string(st))
	}
	for _, st := range fleet.States() {
		gauge(m.nodes, c.Nodes[st], string(st))
	}
	gauge(m.waiting, c.Waiting)
	gauge(m.runs, c.Runs)
	gauge(m.orders, c.Orders)
}

func noSuchPath(r *http.Request) error {
	return fault.New(fault.NotFound, "no_such_path", "there is no %s %s", r.Method, r.URL.Path).WithRemedy("the API is described at /api/v1/openapi.yaml")
}
