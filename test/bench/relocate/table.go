package relocate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"trainyard/test/bench/burst"
)

// point is where a trial lies: cloud over mean completion.
func (t *trial) point() burst.Point { return burst.Point{Mean: t.mean, Cloud: t.cloud} }

// figures are the keys. Those of which there is nothing to take a share are left out.
func (s *study) figures() map[string]float64 {
	best, all := s.totals(pays, perfect), s.totals(always, ours)
	out := map[string]float64{
		"clairvoyant_saving_usd":         best.saved,
		"always_saving_usd":              all.saved,
		"cloud_gpu_h_at_jct_2_96h":       burst.CloudAt(s.frontier(), burst.ComparedMean),
		"bound_cloud_gpu_h_at_jct_2_96h": s.bound,
	}

	for suffix, f := range map[string]forecasts{"": ours, "_perfect": perfect, "_worse": worse} {
		t := s.totals(moves, f)
		out["saving_usd"+suffix] = t.saved
		out["saving_with_time_usd"+suffix] = t.savedWithTime
		out["moves"+suffix] = float64(t.moved)
		out["clairvoyant_share_pct"+suffix] = 100 * t.saved / best.saved
		out["useless_moves_pct"+suffix] = 100 * float64(t.useless) / float64(t.moved)
		out["late_beyond_margin_pct"+suffix] = 100 * float64(t.late) / float64(t.moved)
		out["later_than_never_pct"+suffix] = 100 * float64(t.later) / float64(t.jobs)
		out["earlier_than_never_pct"+suffix] = 100 * float64(t.earlier) / float64(t.jobs)
	}

	for key, v := range out {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			delete(out, key)
		}
	}

	return out
}

// label says what a trial is.
func (t *trial) label() string {
	switch t.mover {
	case stays:
		return "never moves"
	case always:
		return "moves whenever there is room"
	case pays:
		return "clairvoyant: moves whenever it pays"
	case moves:
	}

	return "moves, forecasts " + t.errors.String()
}

// print writes all tables.
func (s *study) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	line := func(format string, args ...any) { fmt.Fprintf(t, format, args...) } //nolint:errcheck // Flush reports it

	for _, part := range s.stretches {
		line("Philly %s: %d jobs, %d nodes of 8 GPUs, cloud at $1 a GPU-hour, an hour of waiting at $%d\n\n",
			part.name, len(part.jobs), part.nodes, worth)
		line("cloud GPU-h\ttransfers $\tsaved $\tsaved with time $\tmean completion h\tp99 h\t")
		line("moves\tuseless\tlater by 15 min\tby the ledger $\tjobs later\tearlier\t\n")

		never := s.row(part, stays, perfect)
		for _, r := range s.rows {
			if r.stretch == part {
				saved := never.money() - r.money()
				line("%.0f\t%.0f\t%.0f\t%.0f\t%.3f\t%.2f\t%d\t%d\t%d\t%.0f\t%d\t%d\t  %s\n", r.cloud, r.transfer, saved,
					r.savedWithTime(never), r.mean, r.p99, r.moved, r.useless, r.late, r.gained, r.later, r.earlier, r.label())
			}
		}

		line("\n")
	}

	line("Philly %s with moves by our forecasts, by the value of an hour of waiting\n\n", s.stretches[0].name)
	line("$\tcloud GPU-h\tmean completion h\tmoves\t\n")

	for _, r := range append(s.curve, s.row(s.stretches[0], moves, ours)) {
		line("%v\t%.0f\t%.3f\t%d\t\n", r.worth, r.cloud, r.mean, r.moved)
	}

	line("\nAt a mean completion of %.3f h no policy needs less than %.0f cloud GPU-h, also with moves that take "+
		"no time.\n", burst.ComparedMean, s.bound)
	line("Run times are declared; patience and ageing are off and nodes are released at once, as in the rows of " +
		"bench-burst that have no suffix.\n")
	line("Useless: a move that did not save what it cost, as the ledger settles it, less its transfer.\n")
	line("Jobs later, earlier: those that end more than 15 minutes later or earlier than in the row that never moves, " +
		"whether they were moved or not.\n")

	return t.Flush()
}
