package utilization

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// fresh is how old a measurement may be that is shown as the state of a GPU.
const fresh = time.Minute

// figures are the metrics of GPUs that jobs share. They are kept by GPU and not by job, so that there are no more
// series than GPUs.
type figures struct{ promised, got, jobs *prometheus.Desc }

func newFigures() figures {
	return figures{
		promised: prometheus.NewDesc("trainyard_gpu_share_promised_ratio",
			"Part of a shared GPU that jobs are promised.", []string{"node", "gpu"}, nil),
		got: prometheus.NewDesc("trainyard_gpu_share_got_ratio",
			"Part of the time in which jobs really had a shared GPU.", []string{"node", "gpu"}, nil),
		jobs: prometheus.NewDesc("trainyard_gpu_share_jobs",
			"Jobs that share a GPU: in all, getting less than their share, or not held to it.",
			[]string{"node", "gpu", "state"}, nil),
	}
}

// sharedGPU is a GPU that jobs share.
type sharedGPU struct {
	node id.Node
	gpu  int
}

// sharedUse is what the jobs on a shared GPU are promised and get.
type sharedUse struct {
	promised, got         float64
	jobs, short, bypassed int
	unmeasured            bool // what they get
}

// Describe is part of prometheus.Collector.
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	ch <- r.figures.promised
	ch <- r.figures.got
	ch <- r.figures.jobs
}

// Collect is part of prometheus.Collector.
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	for at, use := range r.sharedGPUs() {
		gpu := strconv.Itoa(at.gpu)
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			labels = append([]string{string(at.node), gpu}, labels...)
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}

		gauge(r.figures.promised, use.promised)
		if !use.unmeasured {
			gauge(r.figures.got, use.got)
		}

		gauge(r.figures.jobs, float64(use.jobs), "all")
		gauge(r.figures.jobs, float64(use.short), "short")
		gauge(r.figures.jobs, float64(use.bypassed), "bypassed")
	}
}

// sharedGPUs adds up what is known of the jobs on each shared GPU.
func (r *Recorder) sharedGPUs() map[sharedGPU]*sharedUse {
	r.mu.Lock()
	defer r.mu.Unlock()

	list := map[sharedGPU]*sharedUse{}
	now := r.Clock.Now()

	for _, known := range r.jobs {
		first := known.Ranks[0]
		if known.Ended || first == nil || first.Share == nil || now.Sub(known.reported) > fresh {
			continue
		}

		at := sharedGPU{first.Node, first.Share.GPU}
		if list[at] == nil {
			list[at] = &sharedUse{}
		}

		use := list[at]
		use.jobs++
		use.promised += first.Share.Asked
		use.got += first.Share.Got
		use.unmeasured = use.unmeasured || first.Last.Share != nil && first.Last.Share.Mode == job.ShareModeMPS

		if first.Share.Reported {
			use.short++
		}
		if first.Share.Bypassed > 0 {
			use.bypassed++
		}
	}

	return list
}
