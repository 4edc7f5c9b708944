// Command gpushare measures shares of one NVIDIA GPU: the broker and the preload library, without an agent or a yard.
//
//	go run ./test/bench/gpushare -library libtrainyard-gpu.so -out build/bench/gpushare.json
//
// It starts programs (train.py, with PyTorch) alone and beside each other: with shares, with the driver's time-slicing
// and with MPS. It prints a table and writes the figures. As gpushare serve it is the broker of such a run, which can
// be killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "gpushare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 && args[0] == "serve" {
		return serve(args[1:], stdin, stdout)
	}

	b := bench{out: stdout}
	flags := flag.NewFlagSet("gpushare", flag.ContinueOnError)
	flags.StringVar(&b.library, "library", "", "the preload library, made by native/gpushare/build.sh")
	flags.StringVar(&b.python, "python", "python3", "a Python with PyTorch")
	flags.IntVar(&b.windows, "windows", 3, "how often each case is measured")
	flags.DurationVar(&b.window, "window", 4*time.Second, "for how long each time")
	path := flags.String("out", "", "file for the figures")
	only := flags.String("only", "", "regular expression for the cases to run")

	if err := flags.Parse(args); err != nil {
		return err
	}

	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}

	return b.run(ctx, wanted, *path)
}
