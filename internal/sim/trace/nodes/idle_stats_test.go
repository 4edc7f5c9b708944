package nodes

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trainyard/internal/sim"
)

// idleStats are what the published table says of a trace of idle nodes.
type idleStats struct {
	hours, perHour float64
	mean           float64 // idle nodes, over time
	empty          float64 // share of time without any
	pool           []float64
	joins, leaves  []float64
	frags          []float64
	meanJoin       float64
	meanLeave      float64
	meanFrag       float64
	gaps           []float64
	meanGap        float64
}

var (
	poolShares  = []float64{0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95}
	batchShares = []float64{0.25, 0.50, 0.75, 0.90, 0.95, 0.99}
	gapShares   = []float64{0.50, 0.90, 0.95, 0.99}
	fragShares  = []float64{0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99}
)

// measure computes the table from changes, as it was computed from the log: an
// event is a time at which something changes.
func measure(t *testing.T, changes sim.Changes) idleStats {
	t.Helper()
	since := make([]time.Duration, SummitSize)
	open := make([]bool, SummitSize)
	begins := make([]bool, SummitSize) // idle since before the beginning
	pool := 0
	weight := make([]time.Duration, SummitSize+1)
	var joins, leaves, frags, gaps []float64
	var last time.Duration
	joined, left := 0, 0
	close := func(now time.Duration) {
		if joined > 0 {
			joins = append(joins, float64(joined))
		}

		if left > 0 {
			leaves = append(leaves, float64(left))
		}

		if last > 0 {
			gaps = append(gaps, (now - last).Seconds())
		}

		joined, left = 0, 0
	}

	for {
		c, err := changes.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		if c.At > last {
			weight[pool] += c.At - last
			close(c.At)
			last = c.At
		}

		n, err := strconv.Atoi(strings.TrimPrefix(string(c.ID), "summit"))
		if err != nil {
			t.Fatal(err)
		}

		switch {
		case c.Kind == sim.NodeUncordoned && !open[n]:
			since[n], open[n] = c.At, true
			pool++
			begins[n] = c.At == 0

			if c.At > 0 {
				joined++
			}
		case c.Kind == sim.NodeReclaimed && open[n]:
			open[n] = false
			pool--
			left++

			if !begins[n] {
				frags = append(frags, (c.At - since[n]).Seconds())
			}
		}
	}

	s := idleStats{hours: last.Hours()}
	s.perHour = float64(len(gaps)) / s.hours
	for n, w := range weight {
		s.mean += float64(n) * w.Seconds() / last.Seconds()
	}

	s.empty = weight[0].Seconds() / last.Seconds()
	s.pool = weighted(weight, last)
	s.joins, s.meanJoin = quantilesOf(joins, batchShares)
	s.leaves, s.meanLeave = quantilesOf(leaves, batchShares)
	s.frags, s.meanFrag = quantilesOf(frags, fragShares)
	s.gaps, s.meanGap = quantilesOf(gaps, gapShares)

	return s
}

func weighted(weight []time.Duration, total time.Duration) []float64 {
	var out []float64
	sum, n := time.Duration(0), 0
	for _, share := range poolShares {
		for n < len(weight)-1 && (sum+weight[n]).Seconds() < share*total.Seconds() {
			sum += weight[n]
			n++
		}

		out = append(out, float64(n))
	}

	return out
}

func quantilesOf(list, shares []float64) ([]float64, float64) {
	slices.Sort(list)
	sum := 0.0
	for _, x := range list {
		sum += x
	}

	var out []float64
	for _, s := range shares {
		out = append(out, list[min(int(s*float64(len(list))), len(list)-1)])
	}

	return out, sum / float64(len(list))
}
