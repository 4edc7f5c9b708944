// Command soak lets short jobs flow through a real yard for an hour and looks for what grows: memory, goroutines, open
// files, disk and inodes of the server and of two agents.
//
//	go run ./test/bench/soak -span 1h -out build/bench/bench-soak.json
//
// It prints a line now and then and at the end a verdict against the bounds that it states; if one is exceeded it
// fails and writes no figures. `make bench-soak` calls it, and a test runs a short form that goes by the number of
// jobs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"trainyard/internal/clock"
	"trainyard/test/bench/report"
	"trainyard/test/bench/yard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()

	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "build/bench/bench-soak.json", "write the figures to `file`")
	span := flags.Duration("span", time.Hour, "how long jobs flow; a quarter of it is not judged")
	rate := flags.Float64("rate", 5, "jobs that are submitted in a second")
	binary := flags.String("binary", "", "measure this `file`, a built trainyard, instead of building one")

	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	clk := clock.Wall{}

	origin, err := report.Begin(ctx, *out, fmt.Sprintf("%s, %g jobs a second", *span, *rate), clk.Now())
	if err != nil {
		return err
	}

	o := options{binary: *binary, rate: *rate, patience: 3 * time.Minute, clock: clk, out: stdout}
	o.warm.span, o.judged.span = *span/4, *span-*span/4
	o.every = *span / 30
	o.keepFinal = min(10*time.Minute, max(time.Second, o.warm.span/2))

	if o.binary == "" {
		dir, err := os.MkdirTemp("", "trainyard-soak-build-")
		if err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}

		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

		if o.binary, err = yard.Build(ctx, dir); err != nil {
			return err
		}
	}

	if _, err := fmt.Fprintln(stdout, origin.Describe()); err != nil {
		return fmt.Errorf("print: %w", err)
	}

	figures, err := soak(ctx, &o)
	if err != nil {
		return err
	}

	r := report.Report{Origin: origin, Figures: figures}

	return r.Save(*out)
}
