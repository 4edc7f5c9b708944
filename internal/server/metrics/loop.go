package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/diskspace"
)

// Loop measures the loop around the yardmaster.
type Loop struct {
	messages prometheus.Counter
	batches  prometheus.Histogram
	rounds   prometheus.Histogram
}

// NewLoop returns measures of a loop that has not run yet.
func NewLoop() *Loop {
	buckets := prometheus.ExponentialBuckets(0.0001, 2.5, 14)
	return &Loop{
		messages: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "trainyard_messages_total", Help: "Messages that the yardmaster handled."},
		),
		batches: prometheus.NewHistogram(
			prometheus.HistogramOpts{
				Name:    "trainyard_batch_seconds",
				Help:    "Time from taking a batch of messages to answering it, commit included.",
				Buckets: buckets,
			},
		),
		rounds: prometheus.NewHistogram(
			prometheus.HistogramOpts{
				Name:    "trainyard_round_seconds",
				Help:    "Time of a batch up to the end of its scheduling round.",
				Buckets: buckets,
			},
		),
	}
}

// Batch says that so many messages were answered after so long.
func (l *Loop) Batch(n int, d time.Duration) {
	l.messages.Add(float64(n))
	l.batches.Observe(d.Seconds())
}

// Round says how long a batch took up to the end of its scheduling round.
func (l *Loop) Round(d time.Duration) { l.rounds.Observe(d.Seconds()) }

// Describe is part of prometheus.Collector.
func (l *Loop) Describe(ch chan<- *prometheus.Desc) {
	l.messages.Describe(ch)
	l.batches.Describe(ch)
	l.rounds.Describe(ch)
}

// Collect is part of prometheus.Collector.
func (l *Loop) Collect(ch chan<- prometheus.Metric) {
	l.messages.Collect(ch)
	l.batches.Collect(ch)
	l.rounds.Collect(ch)
}

// Disk measures the free space of the disk that holds the server's data directory.
func Disk(dir string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trainyard_disk_free_bytes",
		Help: "Free space of the disk that holds the data directory; -1 if it cannot be measured.",
	}, func() float64 {
		free, _, err := diskspace.Free(dir)
		if err != nil {
			return -1
		}

		return float64(free)
	})
}

// Followers says how many follow the output of jobs, and what that takes.
func Followers(stats func() (followers, bytes int, skipped int64)) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "trainyard_log_followers",
			Help: "Users and programs that follow the output of a job and have read what there is.",
		}, func() float64 {
			followers, _, _ := stats()
			return float64(followers)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "trainyard_log_waiting_bytes",
			Help: "Output in memory that some of those who follow it have not taken yet.",
		}, func() float64 {
			_, bytes, _ := stats()
			return float64(bytes)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "trainyard_log_lines_skipped_total",
			Help: "Lines of output that were skipped because someone followed it more slowly than the job printed.",
		}, func() float64 {
			_, _, skipped := stats()
			return float64(skipped)
		}),
	}
}

// Health says whether the server is ready and whether its store takes what is
// committed. Each function returns why not, and "" if all is well.
func Health(ready, store func() string) []prometheus.Collector {
	well := func(name, help string, why func() string) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if why() != "" {
				return 0
			}

			return 1
		})
	}

	return []prometheus.Collector{
		well("trainyard_ready", "1 if the server can take and store requests.", ready),
		well("trainyard_store_up", "1 if the last commit to the store went through.", store),
	}
}
