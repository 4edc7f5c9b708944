package agent

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/job"
)

// metrics is what the agent counts for Prometheus.
type metrics struct {
	registry       prometheus.Registerer
	all            []prometheus.Collector
	logBytes       prometheus.Counter
	reportFailures prometheus.Counter
	points         prometheus.Counter
	pushFailures   prometheus.Counter
	pollSeconds    prometheus.Counter
}

// register makes the collectors; without a registry they count for nobody.
func (a *Agent) register(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registry: registry,
		logBytes: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "trainyard_agent_log_bytes_total", Help: "Bytes of job output uploaded to the server."},
		),
		reportFailures: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "trainyard_agent_report_failures_total", Help: "Failed reports to the server."},
		),
	}

	m.points = prometheus.NewCounter(
		prometheus.CounterOpts{
			Name: "trainyard_agent_metric_points_total",
			Help: "Points of training metrics sent to the server.",
		},
	)

	m.pushFailures = prometheus.NewCounter(
		prometheus.CounterOpts{
			Name: "trainyard_agent_metric_push_failures_total",
			Help: "Failed uploads of training metrics.",
		},
	)

	m.pollSeconds = prometheus.NewCounter(
		prometheus.CounterOpts{
			Name: "trainyard_agent_metric_poll_seconds_total",
			Help: "Time spent reading training metrics.",
		},
	)

	m.all = []prometheus.Collector{
		m.logBytes,
		m.reportFailures,
		m.points,
		m.pushFailures,
		m.pollSeconds,
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "trainyard_agent_contact_age_seconds",
				Help: "Time since the server last answered a report; -1 before the first answer.",
			},
			a.contactAge,
		),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "trainyard_agent_node_lease_left_seconds",
				Help: "Time until the lease of this provisioned node expires; -1 if it was not provisioned.",
			},
			a.nodeLeaseLeft,
		),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "trainyard_agent_content_cache_bytes", Help: "Size of the content cache."},
			func() float64 { return float64(a.contents.Size()) },
		),
		prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{
				Name: "trainyard_agent_disk_free_bytes",
				Help: "Free space of the disk that holds the data directory; -1 if it cannot be measured.",
			},
			a.diskFree,
		),
	}

	for _, state := range []job.RunState{job.RunPreparing, job.RunRunning, job.RunStopping, job.RunEnded} {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "trainyard_agent_ranks",
			Help:        "Ranks on this node by state.",
			ConstLabels: prometheus.Labels{"state": string(state)},
		}, func() float64 { return float64(a.count(state)) }))
	}

	if registry == nil {
		return m, nil
	}

	var errs []error
	for _, c := range m.all {
		errs = append(errs, registry.Register(c))
	}

	if err := errors.Join(errs...); err != nil {
		m.unregister()
		return nil, fmt.Errorf("register metrics: %w", err)
	}

	return m, nil
}

func (m *metrics) unregister() {
	if m.registry == nil {
		return
	}

	for _, c := range m.all {
		m.registry.Unregister(c)
	}
}

func (a *Agent) contactAge() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.lastContact.IsZero() {
		return -1
	}

	return a.clk.Now().Sub(a.lastContact).Seconds()
}

func (a *Agent) count(state job.RunState) int {
	n := 0
	for _, st := range a.rt.List() {
		if st.State == state {
			n++
		}
	}

	return n
}
