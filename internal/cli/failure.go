package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

const (
	failureLooked = 100 // lines of the output of a rank in which its failure is looked for
	failureShown  = 12  // lines that are shown of it
)

// failureLines returns the last lines of the rank that failed first in the newest run of a job on several nodes, with a
// heading; nothing if the job has not failed so.
func failureLines(ctx context.Context, client *api.Client, j *api.JobDetail) ([]string, error) {
	if j.State != job.Failed || len(j.Runs) == 0 {
		return nil, nil
	}

	run := slices.MaxFunc(j.Runs, func(x, y api.Run) int { return x.Epoch - y.Epoch })
	if run.FailedRank == nil || *run.FailedRank >= len(run.Ranks) {
		return nil, nil
	}

	k := run.Ranks[*run.FailedRank]
	page, err := client.Logs(ctx, j.ID, api.LogFilter{Run: run.ID, Rank: &k.Rank, Tail: failureLooked, Collapse: true})
	if err != nil {
		return nil, err
	}

	var lines []string
	for i := range page.Lines {
		if l := &page.Lines[i]; l.Stream != "yard" {
			lines = append(lines, "  "+l.Text)
		}
	}

	if len(lines) == 0 {
		return nil, nil
	}

	heading := fmt.Sprintf("Last lines of rank %d on %s (all of them: trainyard logs %s --rank %d):", k.Rank, k.Node,
		run.ID, k.Rank)

	return append([]string{"", heading}, tellingLines(lines)...), nil
}

// tellingLines returns the first traceback of some lines of output, otherwise the last lines: after the traceback of a
// program come those of who started it.
func tellingLines(lines []string) []string {
	at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "Traceback (most recent call last)") })
	if at < 0 {
		return lines[max(0, len(lines)-failureShown):]
	}

	return lines[at:min(len(lines), at+failureShown)]
}
