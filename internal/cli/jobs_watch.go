package cli

import (
	"bytes"
	"context"
	"io"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/cli/table"
	"trainyard/internal/clock"
)

// watchEvery is the pause between two looks of a watch.
const watchEvery = 2 * time.Second

// watchJobs shows the list again and again until Ctrl-C.
func (a *app) watchJobs(ctx context.Context, client *api.Client, q jobsQuery) error {
	return a.watch(ctx, func(ctx context.Context, now time.Time) ([]byte, error) {
		return a.jobsScreen(ctx, client, q, now)
	})
}

// watch shows a screen again and again until Ctrl-C: in place on a terminal, one below the other elsewhere and then
// only when it changed.
func (a *app) watch(ctx context.Context, screen func(ctx context.Context, now time.Time) ([]byte, error)) error {
	outer := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	inPlace := a.OnTerminal(a.Stdout)
	var before []byte
	clock.Every(ctx, a.Clock, watchEvery, func(now time.Time) {
		text, err := screen(ctx, now)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !follow.Retries(err):
			stop(err)
			return
		case err != nil:
			text = append(bytes.Clone(before), []byte("(not fresh: "+table.Plain(err.Error())+")\n")...)
		case bytes.Equal(text, before) && !inPlace:
			return
		default:
			before = text
		}

		if inPlace {
			// From the top left, clearing the rest of each line and of the screen.
			text = append([]byte("\x1b[H"), bytes.ReplaceAll(text, []byte("\n"), []byte("\x1b[K\n"))...)
			text = append(text, "\x1b[J"...)
		}

		if _, err := a.Stdout.Write(text); err != nil {
			stop(err)
		}
	})

	if outer.Err() != nil {
		return exit.With(exit.Interrupted) // the way to end it; there is nothing to say
	}

	return context.Cause(ctx)
}

// jobsScreen is one look of a watch.
func (a *app) jobsScreen(ctx context.Context, client *api.Client, q jobsQuery, now time.Time) ([]byte, error) {
	page, _, err := a.listFolded(ctx, client, q)
	if err != nil {
		return nil, err
	}

	q.view.sort(page.Jobs, now)
	lines := page.lines()
	q.view.sort(lines, now)

	var out bytes.Buffer
	screen := a.screen(&out, now)
	err = screen.Show(page, page.names, func() error {
		if len(lines) == 0 {
			_, err := out.WriteString("no jobs\n")
			return err
		}

		return screen.jobTable(lines, q.view).Write(&out)
	})

	return out.Bytes(), err
}

// screen is an app that writes one screen of this moment.
func (a *app) screen(out io.Writer, now time.Time) *app {
	look := *a.Console
	look.Stdout = out
	look.Clock = still{now}
	look.IsTerminal = func(any) bool { return a.OnTerminal(a.Stdout) }

	return &app{Console: &look}
}

// still is a clock that stands: all of one screen is of one time.
type still struct{ at time.Time }

func (s still) Now() time.Time { return s.at }
