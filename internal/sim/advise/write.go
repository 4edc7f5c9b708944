package advise

import (
	"fmt"
	"io"
	"strings"
	"time"

	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// Write shows the report to people: a table for each verdict, then a sentence for each
// line of it.
func (r *Report) Write(w io.Writer, newTable func(head ...string) *table.Table) error {
	var out strings.Builder
	say := func(format string, args ...any) { out.WriteString(table.Plain(fmt.Sprintf(format, args...)) + "\n") }
	say(
		"%s to %s, %s, policy %s",
		r.From.UTC().Format(time.DateOnly),
		r.To.UTC().Format(time.DateOnly),
		humanize.Count(r.Jobs, "job"),
		r.Policy,
	)

	say(
		"Baseline: %s a month, of which %s for %.0f hours of on-demand nodes; mean completion time %s, 95th percentile %s.",
		dollars(r.Base.Cost),
		dollars(r.Base.OnDemandCost),
		r.Base.OnDemand,
		humanize.Seconds(r.Base.Mean),
		humanize.Seconds(r.Base.P95),
	)

	say("Accuracy: %s.", r.Trust.Sentence)

	for _, v := range []Verdict{Worth, Trade, NotWorth} {
		if err := r.table(&out, v, newTable); err != nil {
			return err
		}
	}

	list := func(title string, lines []string) {
		if len(lines) > 0 {
			say("")
			say("%s", title)
		}

		for _, l := range lines {
			say("  - %s", l)
		}
	}

	list("Not included:", r.LeftOut)
	list("Differences between the replay and the period:", r.Gaps)
	_, err := io.WriteString(w, out.String())

	return err
}

// table writes the advice with one verdict.
func (r *Report) table(out *strings.Builder, v Verdict, newTable func(head ...string) *table.Table) error {
	t := newTable("#", "WHAT", "SAVES/MONTH", "80% INTERVAL", "MEAN", "P95", "ON-DEMAND", "BREAK-EVEN", "PAYS OFF IN")
	var why []string

	for i := range r.Advice {
		a := &r.Advice[i]
		if a.Verdict != v {
			continue
		}

		even := ""
		if a.BreakEven != nil {
			even = fmt.Sprintf("$%.2f/h", *a.BreakEven)
		}

		number := fmt.Sprint(i + 1)
		t.Row(
			number,
			a.What,
			signed(a.Saved),
			signed(a.SavedLow)+" to "+signed(a.SavedHigh),
			laterText(a.Mean),
			laterText(a.P95),
			hoursText(a.OnDemand),
			even,
			fmt.Sprintf("%d of %s", a.Confidence.PaidOff, humanize.Count(a.Confidence.Of, a.Confidence.Unit)),
		)

		why = append(why, fmt.Sprintf("%3s. %s.", number, a.Why))
	}

	if t.Len() == 0 {
		return nil
	}

	fmt.Fprintf(out, "\n%s\n", strings.ToUpper(string(v)))

	if err := t.Write(out); err != nil {
		return err
	}

	for _, line := range why {
		out.WriteString(table.Plain(line) + "\n")
	}

	return nil
}

// signed writes money that is saved, or added if it is less than nothing.
func signed(f float64) string {
	if f < 0 {
		return "-" + dollars(f)
	}

	return dollars(f)
}

// laterText writes by how much jobs end later or sooner.
func laterText(seconds float64) string {
	switch d := job.Seconds(max(seconds, -seconds)); {
	case d < time.Second:
		return "same"
	case seconds > 0:
		return humanize.Duration(d) + " later"
	default:
		return humanize.Duration(d) + " earlier"
	}
}

// hoursText writes by how much less is provisioned.
func hoursText(h float64) string {
	switch {
	case h > -0.05 && h < 0.05:
		return "same"
	case h > 0:
		return fmt.Sprintf("%.0f h fewer", h)
	}

	return fmt.Sprintf("%.0f h more", -h)
}
