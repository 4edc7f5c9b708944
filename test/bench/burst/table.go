package burst

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// ComparedMean is the mean completion, in hours, at which ways are compared.
const ComparedMean = 2.958

// The point of comparison: the mean completion, in hours, and the cloud, in GPU-hours, that the published cost rule
// comes to on the fortnight. Its rows are computed in the same run; a test holds them to these.
const (
	pointMean  = ComparedMean
	pointCloud = 31_172
	pointRule  = "linear_cost-0.076 + loop + queue 30"
)

// outcomes of trials.
func outcomes(list []*trial) []outcome {
	all := make([]outcome, len(list))
	for i, t := range list {
		all[i] = t.outcome
	}

	return all
}

// find returns the trial of a rule, nil if there is none.
func find(list []*trial, rule string) *trial {
	for _, t := range list {
		if t.rule == rule {
			return t
		}
	}

	return nil
}

// figures are the keys. Where no point of a frontier is so fast there is no figure.
func (s *study) figures() map[string]float64 {
	main, blind, seer := outcomes(s.main), outcomes(s.blind), outcomes(s.seer)
	theirs := find(s.theirs, pointRule)
	out := map[string]float64{
		"cloud_gpu_h_at_jct_2_96h":              at(means(main), pointMean),
		"cloud_gpu_h_at_jct_2_96h_default":      at(means(outcomes(s.standard)), pointMean),
		"cloud_gpu_h_at_jct_2_96h_forecast":     at(means(outcomes(s.forecast)), pointMean),
		"cloud_gpu_h_at_jct_2_96h_untold":       at(means(outcomes(s.untold)), pointMean),
		"jct_h_at_cloud_31172_default":          at(turned(outcomes(s.standard)), pointCloud),
		"jct_h_at_cloud_31172_forecast":         at(turned(outcomes(s.forecast)), pointCloud),
		"never_jct_h_default":                   find(s.standard, "nothing to provision").mean,
		"burst_cloud_gpu_h_default":             find(s.standard, "nobody waits").cloud,
		"cloud_gpu_h_at_their_p99_default":      at(tails(outcomes(s.standard)), theirs.p99),
		"jct_h_at_cloud_31172":                  at(turned(main), pointCloud),
		"never_jct_h":                           find(s.main, "nothing to provision").mean,
		"burst_cloud_gpu_h":                     find(s.main, "nobody waits").cloud,
		"theirs_never_jct_h":                    find(s.theirs, never.name).mean,
		"theirs_burst_cloud_gpu_h":              find(s.theirs, zero.name).cloud,
		"theirs_cost_rule_cloud_gpu_h":          theirs.cloud,
		"theirs_cost_rule_jct_h":                theirs.mean,
		"theirs_cost_rule_p99_h":                theirs.p99,
		"cloud_gpu_h_at_their_p99":              at(tails(main), theirs.p99),
		"blind_cloud_gpu_h_at_jct_2_96h":        at(means(blind), pointMean),
		"blind_theirs_cloud_gpu_h_at_jct_2_96h": at(means(outcomes(s.unknowing)), pointMean),
		"clairvoyant_cloud_gpu_h_at_jct_2_96h":  at(means(seer), pointMean),
		"bound_cloud_gpu_h_at_jct_2_96h":        s.bound.at(pointMean),
	}

	for _, suffix := range []string{"", "_default", "_forecast", "_untold"} {
		out["saving_pct_at_jct_2_96h"+suffix] = 100 * (1 - out["cloud_gpu_h_at_jct_2_96h"+suffix]/theirs.cloud)
	}

	for key, v := range out {
		if math.IsNaN(v) {
			delete(out, key)
		}
	}

	return out
}

// printer writes a table, and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table writes trials, each with what the yard needs for the same mean completion and
// for the same p99.
func (p *printer) table(list []*trial, beside []outcome) {
	t := tabwriter.NewWriter(p.w, 2, 0, 2, ' ', tabwriter.AlignRight)
	line := func(format string, args ...any) { fmt.Fprintf(t, format, args...) } //nolint:errcheck // Flush reports it
	line("cloud GPU-h\tmean completion h\tp99 h\tmean wait h\tlongest wait h\tlocal use\t")

	if beside != nil {
		line("yard at this mean\tyard at this p99\t")
	}

	line("\n")

	mean, tail := means(beside), tails(beside)
	for _, r := range list {
		line("%.0f\t%.3f\t%.2f\t%.4f\t%.1f\t%.3f\t", r.cloud, r.mean, r.p99, r.wait, r.longest, r.used)

		if beside != nil {
			line("%s\t%s\t", percent(at(mean, r.mean), r.cloud), percent(at(tail, r.p99), r.cloud))
		}

		line("  %s\n", r.rule)
	}

	if err := t.Flush(); p.err == nil {
		p.err = err
	}

	p.say("\n")
}

// percent compares with what others need.
func percent(ours, theirs float64) string {
	switch {
	case math.IsNaN(ours):
		return "-"
	case theirs == 0:
		return fmt.Sprintf("%.0f", ours)
	}

	return fmt.Sprintf("%.0f (%+.1f %%)", ours, 100*(ours/theirs-1))
}

// print writes all tables.
func (s *study) print(w io.Writer) error {
	p := &printer{w: w}

	p.say(
		"Philly %s: %d jobs, %.0f GPU-h, %d nodes of %d GPUs, cloud at $1 a GPU-hour without limit\n\n",
		s.window.name,
		len(s.window.tasks),
		work(s.window.tasks),
		s.window.nodes,
		perNode,
	)

	standard := outcomes(s.standard)

	p.say("rules with the product's defaults, by the value of an hour of waiting in dollars; each job declares its run " +
		"time\n")
	p.table(s.standard, nil)
	p.say("Starburst's rule, our implementation; linear_cost knows the run time of each job\n")
	p.table(s.theirs, standard)
	p.say("forecast: the same defaults; run times as the yard knows them from the %d jobs of the trace that had ended "+
		"before, and from those that end\n", len(s.window.before))
	p.table(s.forecast, nil)
	p.say("untold: the same defaults; nothing is known of run times, ever\n")
	p.table(s.untold, nil)
	p.say("Starburst's rule that does not need run times\n")
	p.table(s.unknowing, outcomes(s.untold))
	p.say("patience and ageing off, nodes released at once, run times declared (as measured before)\n")
	p.table(s.main, nil)
	p.say("patience and ageing off, nodes released at once, run times learned from the jobs that end (as measured " +
		"before)\n")
	p.table(s.blind, nil)
	p.say("Clairvoyant plan that knows all arrivals: %d rounds of a local search from plans with patience and ageing "+
		"off; beside it the yard by default\n", s.rounds)
	p.table(s.seer, standard)
	p.say("Lower bound for every policy that does not move jobs\n")

	for _, t := range s.standard {
		p.say("  %6.0f GPU-h at %.3f h, where the yard by default needs %.0f\n", s.bound.at(t.mean), t.mean, t.cloud)
	}

	p.say(
		"\nOther periods of the trace, on the number of nodes that gives about the same load: %s beside the yard by "+
			"default\n",
		pointRule,
	)

	for _, o := range s.other {
		var beside []outcome
		var their *trial
		for _, t := range s.others {
			switch {
			case t.w != o:
			case t.their != nil:
				their = t
			default:
				beside = append(beside, t.outcome)
			}
		}

		p.say("%s, %d jobs, %.0f GPU-h, %d nodes\n", o.name, len(o.tasks), work(o.tasks), o.nodes)
		p.table([]*trial{their}, beside)
	}

	p.say("Off: ageing and patience are %s, so that only the value of waiting affects the order and the provisioning.\n",
		beyond)

	p.say("A provisioned node is ready at once and billed by the second, until it is released: by default after 5 " +
		"minutes without a job.\n")

	return p.err
}
