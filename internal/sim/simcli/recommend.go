package simcli

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/cli"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/sim/advise"
	"trainyard/internal/sim/whatif"
)

// recommendation is a call of the command recommend.
type recommendation struct {
	*console.Console
	registry place.Registry
	last     lasting
	from, to string
	idle     lasting
	offers   string
	prices   map[string]string
	seed     uint64
	parallel int
}

// recommendCommand is `trainyard recommend`.
func recommendCommand(env cli.Env, registry place.Registry) *cobra.Command {
	r := &recommendation{
		Console:  console.New(env),
		registry: registry,
		last:     lasting(30 * 24 * time.Hour),
		idle:     lasting(5 * time.Minute),
	}

	cmd := &cobra.Command{
		Use:     "recommend",
		Short:   "Recommend changes that would have been cheaper or faster",
		GroupID: cli.GroupYard,
		Args:    exit.NoArgs,
		Long: `Replay a past period in the simulator, as it was and with one change at a time: one more or one less
reserved node, other GPUs, spot nodes, another idle timeout, another value of time. Report for each change
what it would have saved or added, how much earlier or later jobs would have finished, the price at which
a node pays off, and after how many weeks.

Changes are compared with the replay, and the difference between the replay and what really happened is
shown beside it. Requires an admin's login, because the replay uses everyone's jobs.`,
		Example: "  trainyard recommend\n" +
			"  trainyard recommend --last 90d --price A100:80GB=9.80\n" +
			"  trainyard recommend --from 2026-10-01 --to 2026-11-01 --offers spot-prices.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}

	f := cmd.Flags()
	f.Var(&r.last, "last", "duration to look back from now or from --to")
	f.StringVar(&r.from, "from", "", "start of the period, e.g. 2026-10-01 or 2026-10-01T12:00")
	f.StringVar(&r.to, "to", "", "end of the period (default: now)")
	f.Var(&r.idle, "idle", "idle timeout of provisioned nodes, as in the clouds file")
	f.StringVar(&r.offers, "offers", "", "price file with further offers to consider: spot nodes, other GPUs")
	f.StringToStringVar(
		&r.prices,
		"price",
		nil,
		"hourly price of an additional reserved node by GPU type, e.g. A100:80GB=9.80 (default: the tariff, then the "+
			"on-demand price)",
	)

	f.Uint64Var(&r.seed, "seed", 1, "random seed: when spot nodes are reclaimed, and how weeks are resampled")
	f.IntVar(&r.parallel, "parallel", 0, "number of parallel replays; 0 for one per core; does not change the results")
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

	return r.Show(report, func() []string { return nil }, func() error { return report.Write(r.Stdout, r.NewTable) })
}

// question is what the flags ask.
func (r *recommendation) question(cmd *cobra.Command) (*advise.Question, *advise.Period, error) {
	q := &advise.Question{Seed: r.seed, Parallel: r.parallel, Prices: map[string]money.PerHour{}}
	q.Policy = func(text string) (func() place.Policy, error) { return r.registry.Make(text) }

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

		q.Prices[kind] = m.PerHour()
	}

	p := &advise.Period{Last: time.Duration(r.last), Idle: time.Duration(r.idle)}
	var err error
	p.From, err = dayOrTime(r.from)
	if err != nil {
		return nil, nil, exit.Usagef(cmd, "--from: %v", err)
	}

	p.To, err = dayOrTime(r.to)
	if err != nil {
		return nil, nil, exit.Usagef(cmd, "--to: %v", err)
	}

	q.ExtraOffers, err = readOffers(r.offers)
	if err != nil {
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
		return nil, fault.New(fault.Invalid, "bad_offers", "the price file %s cannot be read: %v", path, err).
			WithField("offers")
	}

	return provision.ParseOffers(path, text)
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

	return time.Time{}, fmt.Errorf("invalid time %q: use a day or a time, e.g. 2026-10-01 or 2026-10-01T12:00", text)
}
