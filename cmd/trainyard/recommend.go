package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/cli"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/sim/advise"
	"trainyard/internal/sim/whatif"
)

// recommendation is a call of the command recommend.
type recommendation struct {
	*console.Console
	last     lasting
	from, to string
	idle     lasting
	offers   string
	prices   map[string]string
	seed     uint64
	parallel int
}

func recommendCommand(env cli.Env) *cobra.Command {
	r := &recommendation{Console: console.New(env), last: lasting(30 * 24 * time.Hour), idle: lasting(5 * time.Minute)}
	cmd := &cobra.Command{
		Use: "recommend", Short: "Say what would have been cheaper or faster", GroupID: cli.GroupYard, Args: exit.NoArgs,
		Long: "Replay what happened in a period in the simulator, as it was and with one thing changed at a time: one more reserved node, one node less, " +
			"other GPUs, spot nodes, another time until idle nodes go back, another value of time. Say for each what it would have saved or added, " +
			"by how much jobs would have ended sooner or later, at which price a node is worth having, and in how many weeks it would have paid.\n\n" +
			"Changes are compared with the replay of what was; how far that is from what happened is told beside it. It needs an admin's login, because it rests on everyone's jobs.",
		Example: "  trainyard recommend\n" +
			"  trainyard recommend --last 90d --price A100:80GB=9.80\n" +
			"  trainyard recommend --from 2026-10-01 --to 2026-11-01 --offers spot-prices.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := cmd.Flags()
	f.Var(&r.last, "last", "look at so long before now, or before --to")
	f.StringVar(&r.from, "from", "", "look at what came after this day or time, as in 2026-10-01 or 2026-10-01T12:00")
	f.StringVar(&r.to, "to", "", "look at what came before this day or time; now if left out")
	f.Var(&r.idle, "idle", "for how long the yard keeps idle hired nodes, as its clouds file says under hire.idle")
	f.StringVar(&r.offers, "offers", "", "price file with more nodes to think of hiring: spot ones, other GPUs")
	f.StringToStringVar(&r.prices, "price", nil, "money for an hour of one more reserved node by its GPUs: A100:80GB=9.80; else by the tariff, else the price on demand")
	f.Uint64Var(&r.seed, "seed", 1, "of chance: when spot nodes are taken back, and how weeks are put together")
	f.IntVar(&r.parallel, "parallel", 0, "replays at once, 0 for one on each core; the results are the same")
	cmd.MarkFlagsMutuallyExclusive("last", "from")
	r.OutputFlag(cmd)
	return cmd
}

// run reads what happened, replays it and shows what comes of it.
func (r *recommendation) run(cmd *cobra.Command) error {
	q, p, err := r.question(cmd)
	if err != nil {
		return err
	}
	client, err := dial(cmd, r.Console)
	if err != nil {
		return err
	}
	defer client.Close()
	line := r.NewProgress()
	q.History, err = advise.Read(cmd.Context(), client, *p, func(what string, n int) {
		if n == 0 {
			line.Set("reading %s", what)
			return
		}
		line.Set("reading %s: %d", what, n)
	})
	line.Done()
	if err != nil {
		return err
	}
	b := &bar{console: r.Console}
	if r.OnTerminal(r.Stderr) {
		b.line = r.NewProgress()
	}
	q.Progress, q.Clock = func(w whatif.Progress) { b.show(w) }, r.Clock
	report, err := advise.Advise(cmd.Context(), *q)
	b.end()
	if err != nil {
		return err
	}
	return r.Show(report, func() []string { return nil }, func() error { return showAdvice(r.Console, report) })
}

// question is what the flags ask.
func (r *recommendation) question(cmd *cobra.Command) (*advise.Question, *advise.Period, error) {
	q := &advise.Question{Seed: r.seed, Parallel: r.parallel, Prices: map[string]float64{}}
	q.Policy = func(text string) (func() place.Policy, error) { return policies().Make(text) }
	if r.parallel < 0 || r.last <= 0 || r.idle < 0 {
		return nil, nil, exit.Usagef(cmd, "--parallel and --idle cannot be less than 0, and --last must be more")
	}
	if q.Parallel == 0 {
		q.Parallel = runtime.GOMAXPROCS(0)
	}
	for kind, text := range r.prices {
		m, err := job.ParseMoney(text)
		if err != nil {
			return nil, nil, exit.Usagef(cmd, "--price %s: %v", kind, err)
		}
		q.Prices[kind] = float64(m) / 1e6
	}
	p := &advise.Period{Last: time.Duration(r.last), Idle: time.Duration(r.idle)}
	var err error
	if p.From, err = dayOrTime(r.from); err != nil {
		return nil, nil, exit.Usagef(cmd, "--from: %v", err)
	}
	if p.To, err = dayOrTime(r.to); err != nil {
		return nil, nil, exit.Usagef(cmd, "--to: %v", err)
	}
	if q.More, err = readOffers(r.offers); err != nil {
		return nil, nil, err
	}
	return q, p, nil
}

// readOffers reads a price file, if one is named.
func readOffers(path string) ([]fleet.Offer, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_offers", "the price file %s cannot be read: %v", path, err).WithField("offers")
	}
	return hire.ParseOffers(path, text)
}

// dayOrTime reads a day or a time in UTC; none if the text is empty.
func dayOrTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02 15:04", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no day and no time: write it as in 2026-10-01 or 2026-10-01T12:00", text)
}

// showAdvice shows what is advised to people: a table for each verdict, then a
// sentence for each line of it.
func showAdvice(c *console.Console, r *advise.Report) error {
	var out strings.Builder
	say := func(format string, args ...any) { out.WriteString(table.Plain(fmt.Sprintf(format, args...)) + "\n") }
	say("%s to %s, %s, policy %s", r.From.UTC().Format(time.DateOnly), r.To.UTC().Format(time.DateOnly), table.Count(r.Jobs, "job"), r.Policy)
	say("As it was: %s a month, %s of it for %.0f hours of on-demand nodes; jobs took %s on average, %s at the 95th percentile.",
		dollarText(r.Base.Cost), dollarText(r.Base.Rent), r.Base.OnDemand, table.Duration(job.Seconds(r.Base.Mean)), table.Duration(job.Seconds(r.Base.P95)))
	say("Trust: %s.", r.Trust.Sentence)
	for _, v := range []advise.Verdict{advise.Worth, advise.Trade, advise.NotWorth} {
		if err := adviceTable(c, &out, r.Advice, v); err != nil {
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
	list("Left out:", r.LeftOut)
	list("Replayed other than it was:", r.Gaps)
	_, err := fmt.Fprint(c.Stdout, out.String())
	return err
}

// adviceTable writes the advice with one verdict.
func adviceTable(c *console.Console, out *strings.Builder, all []advise.Advice, v advise.Verdict) error {
	t := c.NewTable("#", "WHAT", "SAVES A MONTH", "4 OF 5 MONTHS", "MEAN", "P95", "ON DEMAND", "WORTH BELOW", "PAID IN")
	var why []string
	for i := range all {
		a := &all[i]
		if a.Verdict != v {
			continue
		}
		even := ""
		if a.BreakEven != nil {
			even = fmt.Sprintf("$%.2f/h", *a.BreakEven)
		}
		number := fmt.Sprint(i + 1)
		t.Row(number, a.What, signed(a.Saved), signed(a.SavedLow)+" to "+signed(a.SavedHigh), laterText(a.Mean), laterText(a.P95), hoursText(a.OnDemand), even,
			fmt.Sprintf("%d of %s", a.Sure.Paid, table.Count(a.Sure.Of, a.Sure.Unit)))
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

// dollarText writes money for people: whole dollars where it is many.
func dollarText(f float64) string {
	if f >= 100 {
		return fmt.Sprintf("$%.0f", f)
	}
	return fmt.Sprintf("$%.2f", f)
}

// signed writes money that is saved, or added if it is less than nothing.
func signed(f float64) string {
	if f < 0 {
		return "-" + dollarText(-f)
	}
	return dollarText(f)
}

// laterText writes by how much jobs end later or sooner.
func laterText(seconds float64) string {
	switch d := job.Seconds(max(seconds, -seconds)); {
	case d < time.Second:
		return "same"
	case seconds > 0:
		return table.Duration(d) + " later"
	default:
		return table.Duration(d) + " sooner"
	}
}

// hoursText writes by how much less is hired.
func hoursText(h float64) string {
	switch {
	case h > -0.05 && h < 0.05:
		return "same"
	case h > 0:
		return fmt.Sprintf("%.0f h less", h)
	}
	return fmt.Sprintf("%.0f h more", -h)
}
