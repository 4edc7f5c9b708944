package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// numbers are those of lines.
type numbers struct {
	first, last int64
}

// parseNumbers reads "12-30", or "12" for one line.
func parseNumbers(cmd *cobra.Command, text string) (numbers, error) {
	if text == "" {
		return numbers{}, nil
	}

	left, right, several := strings.Cut(text, "-")
	if !several {
		right = left
	}

	first, err1 := strconv.ParseInt(left, 10, 64)

	last, err2 := strconv.ParseInt(right, 10, 64)
	if err1 != nil || err2 != nil || first < 1 || last < first {
		return numbers{}, exit.Usagef(cmd, "--lines must be numbers such as 1200-1300, counted from 1; got %q", text)
	}

	return numbers{first, last}, nil
}

// printLines writes lines of a rank by their numbers.
func (a *app) printLines(
	ctx context.Context, client *api.Client, j id.Job, f api.LogFilter, n numbers, style logStyle,
) error {
	detail, err := client.Job(ctx, j)
	if err != nil {
		return err
	}
	if err := checkRank(&detail, &f); err != nil {
		return err
	}

	run, rank := f.Run, 0
	if run == "" && detail.Epoch > 0 {
		run = id.NewRun(j, detail.Epoch)
	}
	if run == "" {
		return fault.New(fault.NotFound, "run_not_found", "job %s has not run yet", j)
	}

	if f.Rank != nil {
		rank = *f.Rank
	}

	out := bufio.NewWriterSize(a.Stdout, outputBuffer)
	p := &follow.Printer{
		Out:      out,
		Stamps:   style.stamps,
		JSON:     a.Output == console.JSON,
		Ranks:    style.ranks,
		Terminal: a.OnTerminal(a.Stdout) && !style.raw,
		Collapse: true,
	}

	for from := n.first; from > 0 && from <= n.last; {
		page, err := client.LogLines(ctx, run, rank, api.LogRange{From: from, Limit: int(min(n.last-from+1, pageLimit))})
		if err != nil {
			return errors.Join(err, out.Flush())
		}

		for _, l := range page.Lines {
			if err := p.Line("", l); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}

		from = page.Next
	}

	return errors.Join(p.Close(), out.Flush())
}
