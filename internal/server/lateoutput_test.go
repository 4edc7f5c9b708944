package server

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/logs"
)

// readers are the ways to read the output of a job that do not follow it. Each returns the lines that it got.
var readers = map[string]func(ctx context.Context, c *api.Client, j id.Job, run id.Run) ([]string, error){
	"search": func(ctx context.Context, c *api.Client, j id.Job, _ id.Run) ([]string, error) {
		page, err := c.Logs(ctx, j, api.LogFilter{Grep: "."})

		return textOf(page.Lines), err
	},
	"tail": func(ctx context.Context, c *api.Client, j id.Job, _ id.Run) ([]string, error) {
		page, err := c.Logs(ctx, j, api.LogFilter{Tail: 2})

		return textOf(page.Lines), err
	},
	"numbers": func(ctx context.Context, c *api.Client, _ id.Job, run id.Run) ([]string, error) {
		page, err := c.LogLines(ctx, run, 0, api.LogRange{From: 1})

		return textOf(page.Lines), err
	},
	"download": func(ctx context.Context, c *api.Client, _ id.Job, run id.Run) ([]string, error) {
		body, size, err := c.OpenLog(ctx, run, 0, 0)
		if err != nil {
			return nil, err
		}

		defer func() { _ = body.Close() }()

		var lines []string

		for frames := logs.NewDecoder(io.LimitReader(body, size)); ; {
			frame, err := frames.Next()
			if err != nil {
				return lines, nil // the log ends here
			}

			lines = append(lines, strings.TrimSpace(string(frame.Data)))
		}
	},
}

func textOf(lines []api.LogLine) (texts []string) {
	for i := range lines {
		texts = append(texts, lines[i].Text)
	}

	return texts
}

// TestTheLastLinesOfAJobAreWaitedFor ends a job before the server has its last line. The clock stands still, so that
// the time for which a reader waits is as long as the test takes.
func TestTheLastLinesOfAJobAreWaitedFor(t *testing.T) {
	t.Parallel()

	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			c, n := y.researcher("ada"), y.join("n1")
			n.listen()
			j, run := n.started(c)
			first, second := output(t, "o:one\n"), output(t, "o:two\n")
			n.upload(run, 0, 0, first, false)
			t.Cleanup(y.clock.hold())
			n.ends(run, 0, 0)

			answer := make(chan []string, 1)

			go func() {
				lines, err := read(t.Context(), c, j, run)
				if err != nil {
					t.Error(err)
				}

				answer <- lines
			}()

			select {
			case lines := <-answer:
				t.Fatalf("the reader got %q before the last line had come", lines)
			case <-time.After(300 * time.Millisecond): // one that does not wait has its answer by now
			}

			n.upload(run, 0, int64(len(first)), second, true)

			if lines := strings.Join(<-answer, " "); lines != "one two" {
				t.Errorf("the reader got %q, want both lines", lines)
			}
		})
	}
}

// Output that does not come is not waited for when the job ended a while ago.
func TestOutputThatStaysAwayIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)
	n.upload(run, 0, 0, output(t, "o:one\n"), false)
	t.Cleanup(y.clock.hold())
	n.ends(run, 0, 0)
	y.advance(lateOutput)

	for name, read := range readers {
		lines, err := read(t.Context(), c, j, run) // waits for ever if it does: the clock stands still
		if err != nil || strings.Join(lines, " ") != "one" {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}

	page, err := c.Logs(t.Context(), j, api.LogFilter{})
	if err != nil || page.Ended {
		t.Errorf("the output is said to be complete: %+v, %v", page, err)
	}
}
