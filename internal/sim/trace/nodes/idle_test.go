package nodes

import (
	"fmt"
	"math"

	"strings"
	"testing"
)

// published are the statistics of the Summit log over 358 hours.
var published = idleStats{
	perHour: 66.7, mean: 391.4, empty: 0.032,
	pool:  []float64{1, 4, 13, 81, 502, 1161, 1732},
	joins: []float64{1, 4, 16, 50, 108, 512}, meanJoin: 28.8,
	leaves: []float64{1, 3, 13, 50, 120, 928}, meanLeave: 38.4,
	frags: []float64{91, 162, 475, 1397, 3269, 4723, 9246}, meanFrag: 1192,
	gaps: []float64{30, 111, 162, 354}, meanGap: 54,
}

// fit compares statistics with wanted ones: each quantity within a share of it,
// or within so many units where it is small.
type fit struct {
	t    *testing.T
	text strings.Builder
}

func (f *fit) row(what string, got, want, share, units float64) {
	f.t.Helper()
	mark := ""
	if math.Abs(got-want) > max(share*want, units) {
		mark = "  <-"
		f.t.Errorf("%s is %.4g, want %.4g within %.0f %% or %g", what, got, want, 100*share, units)
	}
	fmt.Fprintf(&f.text, "%-28s %10.4g %10.4g%s\n", what, got, want, mark)
}

func (f *fit) rows(what string, shares, got, want []float64, share, units float64) {
	f.t.Helper()
	for i := range want {
		f.row(fmt.Sprintf("%s p%g", what, 100*shares[i]), got[i], want[i], share, units)
	}
}

// compare checks every statistic; the slack multiplies the tolerances.
func compare(t *testing.T, got, want idleStats, slack float64) {
	t.Helper()
	f := &fit{t: t}
	f.row("events an hour", got.perHour, want.perHour, 0.05*slack, 0)
	f.row("idle share of nodes, %", got.mean/SummitSize*100, want.mean/SummitSize*100, 0.10*slack, 0)
	f.row("time without idle nodes, %", got.empty*100, want.empty*100, 0.3*slack, 0)
	f.rows("pool", poolShares, got.pool, want.pool, 0.2*slack, 3)
	// The middle of the pool lies where it passes fastest; see the list of misfits.
	f.rows("join", batchShares, got.joins, want.joins, 0.1*slack, 1)
	f.row("join, mean", got.meanJoin, want.meanJoin, 0.1*slack, 0)
	f.rows("leave", batchShares, got.leaves, want.leaves, 0.25*slack, 2)
	f.row("leave, mean", got.meanLeave, want.meanLeave, 0.15*slack, 0)
	f.rows("idle time", fragShares, got.frags, want.frags, 0.2*slack, 20)
	f.row("idle time, mean", got.meanFrag, want.meanFrag, 0.1*slack, 0)
	f.rows("gap", []float64{0.5, 0.9, 0.95, 0.99}, got.gaps, want.gaps, 0.25*slack, 5)
	f.row("gap, mean", got.meanGap, want.meanGap, 0.05*slack, 0)
	t.Logf("%-28s %10s %10s\n%s", "", "got", "want", f.text.String())
}
