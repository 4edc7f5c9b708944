package main

import (
	"context"
	"os"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"trainyard/internal/clock"
)

// A server's heap grows between two collections by garbageRoom or by what lives in it, whichever is more, but by no
// more than gcPercent of what lives. With Go's own 100 percent a small heap is collected again and again while
// submissions come in; with much more a large heap would take several times the memory that it needs.
const (
	gcPercent    = 300
	garbageRoom  = 96 << 20
	memoryReview = 5 * time.Second
)

// paceCollector keeps the collector at that until ctx ends. Whoever sets GOGC knows better.
func paceCollector(ctx context.Context, clk clock.Clock) {
	if _, set := os.LookupEnv("GOGC"); set {
		return
	}

	percent := gcPercent
	debug.SetGCPercent(percent)

	clock.Every(ctx, clk, memoryReview, func(time.Time) {
		if next := percentOf(liveMemory()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
	})
}

// percentOf returns by how many percent a heap with so much that lives may grow, in steps that hide small changes.
func percentOf(live uint64) int {
	const step = 20
	percent := garbageRoom * 100 / max(live, 1)

	return int(min(max(percent/step*step, 100), gcPercent))
}

// liveMemory is what the last collection left, and the stacks: what the collector goes by.
func liveMemory() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)

	var total uint64
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			total += s.Value.Uint64()
		}
	}

	return total
}

// processMetrics are those of the process and of the Go runtime. What the last collection left of the heap is among
// them (go_gc_heap_live_bytes): it tells what the process holds on to, while the heap in use may have any amount of
// garbage.
func processMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
			collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)},
		)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}
