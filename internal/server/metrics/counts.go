package metrics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// counts is what has happened since the process began.
type counts struct {
	ended  *prometheus.CounterVec
	waits  *prometheus.HistogramVec
	alerts *prometheus.CounterVec

	provisions *prometheus.CounterVec
	granted    *prometheus.CounterVec
	refused    *prometheus.CounterVec
	returns    *prometheus.CounterVec
	strays     *prometheus.CounterVec
	unclear    *prometheus.CounterVec
	lost       *prometheus.CounterVec
	joins      *prometheus.HistogramVec
	calls      *prometheus.CounterVec
	callTime   *prometheus.HistogramVec
	up         *prometheus.GaugeVec
}

// Outcomes of a call to a provider.
const (
	callOK      = "ok"
	callRefused = "refused" // it said no, for certain
	callTimeout = "timeout"
	callFailed  = "failed" // it is not known whether anything was done
)

// Why a provisioned node was lost.
const (
	lostSpot  = "spot" // the provider reclaimed it
	lostOther = "other"
)

// Kinds of alerts about limits, after "budget.".
func alertKinds() []string { return []string{"near", "used_up", "forecast", "free"} }

// refusals lists the codes with which a provider says no.
func refusals() []string {
	return []string{
		fleet.RefusedCapacity,
		fleet.RefusedQuota,
		fleet.RefusedPrice,
		fleet.RefusedInvalid,
		fleet.RefusedDenied,
	}
}

func newCounts(providers []string) counts {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	minutes := []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400}
	c := counts{
		ended: counter("trainyard_jobs_ended_total", "Jobs that ended.", "state"),
		waits: histogram(
			"trainyard_queue_wait_seconds",
			"Time that jobs were queued, by class of the nodes they were placed on.",
			minutes,
			"class",
		),
		alerts: counter(
			"trainyard_budget_alerts_total",
			"Alerts about quotas and budgets: near, used_up, forecast (will be used up before the period ends), free (again).",
			"kind",
		),

		provisions: counter("trainyard_provision_requests_total", "Nodes requested from providers.", "provider"),
		granted:    counter("trainyard_provisioned_nodes_total", "Nodes that providers provisioned.", "provider"),
		refused:    counter("trainyard_provision_refusals_total", "Requests that providers refused.", "provider", "code"),
		returns:    counter("trainyard_lease_releases_total", "Nodes that were released.", "provider"),
		strays:     counter("trainyard_strays_total", "Instances found without a lease.", "provider"),
		unclear:    counter("trainyard_provision_unknown_total", "Requests with an unknown outcome.", "provider"),
		lost: counter(
			"trainyard_lease_losses_total",
			"Provisioned nodes that were lost without being released.",
			"provider",
			"why",
		),
		joins: histogram(
			"trainyard_provision_join_seconds",
			"Time from requesting a node until its agent joined.",
			[]float64{5, 15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800, 3600},
			"provider",
		),
		calls: counter(
			"trainyard_provider_calls_total",
			"Calls to providers by call and outcome: ok, refused, timeout or failed.",
			"provider",
			"call",
			"outcome",
		),
		callTime: histogram(
			"trainyard_provider_call_seconds",
			"Time that calls to providers took.",
			prometheus.ExponentialBuckets(0.01, 2.5, 11),
			"provider",
			"call",
		),
		up: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "trainyard_provider_up",
				Help: "1 if the provider answered when it was last asked for its list.",
			},
			[]string{"provider"},
		),
	}

	c.prepare(providers)

	return c
}

// prepare makes the counters that are certain to be wanted, at nothing.
func (c *counts) prepare(providers []string) {
	for _, class := range fleet.Classes() {
		c.waits.WithLabelValues(string(class))
	}

	for _, s := range job.States() {
		if s.Final() {
			c.ended.WithLabelValues(string(s))
		}
	}

	for _, k := range alertKinds() {
		c.alerts.WithLabelValues(k)
	}

	for _, p := range providers {
		for _, v := range []*prometheus.CounterVec{c.provisions, c.granted, c.returns, c.strays, c.unclear} {
			v.WithLabelValues(p)
		}

		for _, code := range refusals() {
			c.refused.WithLabelValues(p, code)
		}

		c.lost.WithLabelValues(p, lostSpot)
		c.lost.WithLabelValues(p, lostOther)
		c.joins.WithLabelValues(p)
	}
}

// each calls do with all of them.
func (c *counts) each(do func(prometheus.Collector)) {
	for _, v := range []prometheus.Collector{
		c.ended, c.waits, c.alerts, c.provisions, c.granted, c.refused, c.returns, c.strays, c.unclear, c.lost, c.joins,
		c.calls, c.callTime, c.up,
	} {
		do(v)
	}
}

// lease counts what happened to a lease.
func (c *counts) lease(e *yardmaster.Event, l *fleet.Lease) {
	p := l.Offer.Provider
	if e.Kind == "lease.stray" {
		c.strays.WithLabelValues(p).Inc()
		return
	}

	if e.Kind == "lease.unclear" {
		c.unclear.WithLabelValues(p).Inc()
		return
	}

	from, to := fleet.LeaseState(e.From), fleet.LeaseState(e.To)
	if from == to || !strings.HasPrefix(e.Kind, "lease.") {
		return // an answer that came late, or twice
	}

	switch {
	case e.Kind == "lease.requested":
		c.provisions.WithLabelValues(p).Inc()
	case from == fleet.LeaseRequested && (to == fleet.LeaseBooting || to == fleet.LeaseActive):
		c.granted.WithLabelValues(p).Inc()
	case to == fleet.LeaseRefused:
		c.refused.WithLabelValues(p, codeOf(e.Reason)).Inc()
	case to == fleet.LeaseReleasing && whyLost(e.Reason) == lostSpot: // after a notice
		c.lost.WithLabelValues(p, lostSpot).Inc()
	case to == fleet.LeaseReleasing:
		c.returns.WithLabelValues(p).Inc()
	case to == fleet.LeaseEnded && from != fleet.LeaseReleasing:
		c.lost.WithLabelValues(p, whyLost(e.Reason)).Inc()
	}

	if to == fleet.LeaseActive {
		c.joins.WithLabelValues(p).Observe(l.Joined.Sub(l.Requested).Seconds())
	}
}

// codeOf returns the code at the front of a refusal's reason.
func codeOf(reason string) string {
	code, _, _ := strings.Cut(reason, ":")
	if slices.Contains(refusals(), code) {
		return code
	}

	return "other"
}

func whyLost(reason string) string {
	if strings.Contains(reason, fleet.SpotReclaimed) {
		return lostSpot
	}

	return lostOther
}

// alert counts notices about quotas and budgets.
func (c *counts) alert(e *yardmaster.Event) {
	if kind, ok := strings.CutPrefix(e.Kind, "budget."); ok {
		c.alerts.WithLabelValues(kind).Inc()
	}
}

// Called says that a provider was asked for something, how long it took and how it
// ended. The desk calls it.
func (b *Collector) Called(provider, call string, took time.Duration, err error) {
	outcome := outcomeOf(err)
	b.counts.calls.WithLabelValues(provider, call, outcome).Inc()
	b.counts.callTime.WithLabelValues(provider, call).Observe(took.Seconds())

	if call == "list" {
		up := 0.0
		if outcome == callOK {
			up = 1
		}

		b.counts.up.WithLabelValues(provider).Set(up)
	}
}

// outcomeOf says how a call ended.
func outcomeOf(err error) string {
	if err == nil {
		return callOK
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return callTimeout
	}

	switch fault.KindOf(err) {
	case fault.OverLimit, fault.Invalid, fault.Denied:
		return callRefused
	case fault.NotFound, fault.Conflict, fault.Unknown, fault.Unavailable, fault.Internal:
	}

	return callFailed
}
