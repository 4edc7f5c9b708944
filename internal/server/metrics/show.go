package metrics

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// figure is one metric that is worked out when someone looks.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	name string
}

// series is one curve of a figure.
type series struct{ name, labels string }

// figures are those metrics.
type figures struct {
	all []*figure

	jobs, waiting, oldest, blocked, runs, orders *figure
	nodes, drained, gpus, tflops, use, watts     *figure
	spend, cost, gpuTime, nodeTime, energy       *figure
	userCost, userTime, saved, forgone           *figure
	leases, overdue                              *figure
	ratio, used, limit, over                     *figure
}

func (f *figures) define(byUser bool) {
	add := func(kind prometheus.ValueType, name, help string, labels ...string) *figure {
		fig := &figure{desc: prometheus.NewDesc(name, help, labels, nil), kind: kind, name: name}
		f.all = append(f.all, fig)
		return fig
	}

	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	f.jobs = add(gauge, "trainyard_jobs", "Jobs that have not ended.", "state")
	f.waiting = add(gauge, "trainyard_queued_jobs", "Jobs in the queue.")
	f.oldest = add(
		gauge,
		"trainyard_oldest_queued_seconds",
		"Time the oldest queued job has waited, 0 if the queue is empty.",
	)

	f.blocked = add(gauge, "trainyard_quota_blocked_jobs", "Jobs that a quota or budget keeps out of the queue.", "limit")
	f.runs = add(gauge, "trainyard_live_runs", "Runs that have not ended.")
	f.orders = add(gauge, "trainyard_open_orders", "Orders that are open.")

	f.nodes = add(gauge, "trainyard_nodes", "Nodes.", "class", "state")
	f.drained = add(gauge, "trainyard_cordoned_nodes", "Nodes on which scheduling is stopped.", "class")
	f.gpus = add(gauge, "trainyard_gpus", "GPUs by state.", "class", "model", "state")
	f.tflops = add(
		gauge,
		"trainyard_tflops",
		"Speed of the GPUs in this state, measured or from the table, in TFLOPS.",
		"class",
		"state",
	)

	f.use = add(gauge, "trainyard_gpu_allocated_ratio", "Share of the usable GPUs that are allocated to jobs.", "class")
	f.watts = add(
		gauge,
		"trainyard_power_watts",
		"Power draw according to the tariff, including the building's overhead.",
		"class",
	)

	f.spend = add(gauge, "trainyard_spend_dollars_per_hour", "Current cost of nodes and energy.", "class", "account")
	f.cost = add(counter, "trainyard_cost_dollars_total", "Cost of nodes and energy.", "class", "account")
	f.gpuTime = add(counter, "trainyard_gpu_seconds_total", "GPU time by account.", "class", "account")
	f.nodeTime = add(counter, "trainyard_node_seconds_total", "Node time by account.", "class", "account")
	f.energy = add(
		counter,
		"trainyard_energy_joules_total",
		"Energy, including the building's overhead.",
		"class",
		"account",
	)

	if byUser {
		f.userCost = add(
			counter,
			"trainyard_user_cost_dollars_total",
			"Cost by user, including nodes provisioned for them.",
			"user",
			"class",
		)

		f.userTime = add(counter, "trainyard_user_gpu_seconds_total", "GPU time by user.", "user", "class")
	}

	f.saved = add(
		counter,
		"trainyard_saved_dollars_total",
		"Money that decisions about ended jobs saved compared with what would have been done instead.",
		"kind",
	)

	f.forgone = add(
		counter,
		"trainyard_speed_premium_dollars_total",
		"What decisions about ended jobs cost more than what would have been done instead.",
		"kind",
	)

	f.leases = add(gauge, "trainyard_leases", "Leases that have not ended.", "provider", "state")
	f.overdue = add(
		gauge,
		"trainyard_lease_overdue_seconds",
		"Largest time by which an instance outlived its lease or its release.",
		"provider",
	)

	f.ratio = add(
		gauge,
		"trainyard_budget_used_ratio",
		"Share of a budget or a quota of GPU-hours that is used in this period.",
		"subject",
		"measure",
		"period",
	)

	f.used = add(gauge, "trainyard_budget_used_dollars", "Cost in this period.", "subject", "period")
	f.limit = add(gauge, "trainyard_budget_limit_dollars", "Budget of this period.", "subject", "period")
	f.over = add(
		gauge,
		"trainyard_budget_overspend",
		"1 if a budget is used up, or running jobs will use it up before the period ends.",
		"subject",
		"measure",
		"period",
	)
}

func (f *figures) describe(ch chan<- *prometheus.Desc) {
	for _, fig := range f.all {
		ch <- fig.desc
	}
}

// still is what there is at one moment. It shares nothing that changes with the board.
type still struct {
	now     time.Time
	byState map[job.State]int
	line    line
	runs    int
	orders  int
	changed []node // gone from the yard if they are empty
	leases  []fleet.Lease
	spent   sums
	saved   map[string]saved
	budgets []standing
}

// hold takes a still. Batches wait meanwhile, so that what was posted and since when
// meters run agree.
func (b *Collector) hold() still {
	b.mu.Lock()
	defer b.mu.Unlock()

	now := b.clock.Now()
	s := still{
		now: now, byState: maps.Clone(b.jobs.byState), line: b.jobs.look(now), runs: len(b.runs), orders: len(b.orders),
		changed: make([]node, len(b.changed)), leases: make([]fleet.Lease, 0, len(b.leases)),
		spent: b.spent.clone(), saved: maps.Clone(b.saved), budgets: b.budgets.look(now, b.options.ByUser),
	}

	for i, n := range b.changed {
		s.changed[i], n.dirty = *n, false
		if n.info == nil && n.meter == nil {
			delete(b.nodes, n.name)
		}
	}

	b.changed = b.changed[:0]
	for _, l := range b.leases {
		s.leases = append(s.leases, *l)
	}

	return s
}

// show works everything out and tells it.
func (b *Collector) show(ch chan<- prometheus.Metric) {
	s := b.hold()
	for i := range s.changed {
		if n := &s.changed[i]; n.info == nil && n.meter == nil {
			delete(b.readings, n.name)
		} else {
			b.readings[n.name] = n.read()
		}
	}

	f := &b.figures

	tell := func(fig *figure, v float64, labels ...string) {
		if fig.kind == prometheus.CounterValue {
			v = b.upwards(fig.name, labels, v)
		}

		ch <- prometheus.MustNewConstMetric(fig.desc, fig.kind, v, labels...)
	}

	f.showJobs(&s, tell)
	f.showNodes(b.readings, tell)
	f.showMoney(&s, b.readings, tell)
	f.showLeases(&s, b.options.Providers, tell)
	f.showBudgets(&s, tell)
}

// upwards keeps a counter from going down. What has run up since the last posting is an
// estimate: a stretch may turn out to have ended a moment before someone looked.
func (b *Collector) upwards(name string, labels []string, v float64) float64 {
	key := series{name, strings.Join(labels, "\x00")}
	v = max(v, b.shown[key])
	b.shown[key] = v

	return v
}

type teller func(fig *figure, v float64, labels ...string)

func (f *figures) showJobs(s *still, tell teller) {
	for _, st := range job.States() {
		if !st.Final() {
			tell(f.jobs, float64(s.byState[st]), string(st))
		}
	}

	tell(f.waiting, float64(s.line.length))
	tell(f.oldest, s.line.oldest.Seconds())

	for _, limit := range tenant.Holds() {
		tell(f.blocked, float64(s.line.blocked[limit]), string(limit))
	}

	tell(f.runs, float64(s.runs))
	tell(f.orders, float64(s.orders))
}

func (f *figures) showNodes(readings map[id.Node]*reading, tell teller) {
	type ofModel struct {
		class fleet.Class
		model string
		state fleet.GPUState
	}

	nodes, drained := map[fleet.Class]map[fleet.State]int{}, map[fleet.Class]int{}

	gpus, tflops := map[ofModel]int{}, map[ofModel]float64{}
	for _, c := range fleet.Classes() {
		nodes[c] = map[fleet.State]int{}

		for _, st := range []fleet.GPUState{fleet.GPURunning, fleet.GPUIdle} {
			tflops[ofModel{class: c, state: st}] = 0
		}
	}

	for _, r := range readings {
		if r.state != "" {
			nodes[r.class][r.state]++
		}

		if r.drained && r.state != "" {
			drained[r.class]++
		}

		for _, d := range r.devices {
			gpus[ofModel{r.class, d.model, d.state}] += d.count
			tflops[ofModel{class: r.class, state: d.state}] += d.tflops
		}
	}

	free, busy := map[fleet.Class]int{}, map[fleet.Class]int{}
	for key, n := range gpus {
		tell(f.gpus, float64(n), string(key.class), key.model, string(key.state))

		switch key.state {
		case fleet.GPUIdle:
			free[key.class] += n
		case fleet.GPURunning:
			busy[key.class] += n
		case fleet.GPUError, fleet.GPUForeign:
		}
	}

	for key, sum := range tflops {
		tell(f.tflops, sum, string(key.class), string(key.state))
	}

	for _, c := range fleet.Classes() {
		for _, st := range fleet.States() {
			if st != fleet.Removed {
				tell(f.nodes, float64(nodes[c][st]), string(c), string(st))
			}
		}

		tell(f.drained, float64(drained[c]), string(c))
		tell(f.use, float64(busy[c])/float64(max(busy[c]+free[c], 1)), string(c))
	}
}

func (f *figures) showMoney(s *still, readings map[id.Node]*reading, tell teller) {
	rate := newSums(false)
	for _, r := range readings {
		for i := range r.hourly {
			rate.add(&r.hourly[i], 1)
		}

		s.spent.run(r, s.now)
	}

	for i, c := range classes() {
		joules := 0.0

		for k, a := range accounts() {
			x := s.spent.shares[i][k]
			class := string(c)
			account := string(a)
			tell(f.spend, rate.shares[i][k].dollars, class, account)
			tell(f.cost, x.dollars, class, account)
			tell(f.gpuTime, x.gpuSeconds, class, account)
			tell(f.nodeTime, x.nodeSeconds, class, account)
			tell(f.energy, x.joules, class, account)
			joules += rate.shares[i][k].joules
		}

		tell(f.watts, joules/time.Hour.Seconds(), string(c))
	}

	for key, x := range s.spent.users {
		tell(f.userCost, x.dollars, string(key.user), string(key.class))
		tell(f.userTime, x.gpuSeconds, string(key.user), string(key.class))
	}

	for kind, x := range s.saved {
		tell(f.saved, x.more, kind)
		tell(f.forgone, x.less, kind)
	}
}

func (f *figures) showLeases(s *still, providers []string, tell teller) {
	type ofProvider struct {
		provider string
		state    fleet.LeaseState
	}

	counts, overdue := map[ofProvider]int{}, map[string]time.Duration{}

	for i := range s.leases {
		l := &s.leases[i]
		p := l.Offer.Provider
		if !slices.Contains(providers, p) {
			providers = append(slices.Clone(providers), p) // of an earlier configuration
		}

		counts[ofProvider{p, l.State}]++

		due := l.Ends
		if l.State == fleet.LeaseReleasing {
			due = l.Released
		}

		overdue[p] = max(overdue[p], s.now.Sub(due))
	}

	for _, p := range providers {
		for _, st := range fleet.LeaseStates() {
			if !st.Final() {
				tell(f.leases, float64(counts[ofProvider{p, st}]), p, string(st))
			}
		}

		tell(f.overdue, overdue[p].Seconds(), p)
	}
}

func (f *figures) showBudgets(s *still, tell teller) {
	for i := range s.budgets {
		b := &s.budgets[i]
		subject, measure, period := b.subject.String(), string(b.measure), string(b.period)
		tell(f.ratio, b.used/b.limit, subject, measure, period)

		over := 0.0
		if b.over {
			over = 1
		}

		tell(f.over, over, subject, measure, period)

		if b.measure == quota.Money {
			tell(f.used, b.used, subject, period)
			tell(f.limit, b.limit, subject, period)
		}
	}
}
