// Package office holds the commands about machines, money and data: nodes, offers,
// leases, limits, datasets, and the reports from the books.
//
// They are as thin as all commands: flags in, one call through api, a table out. The
// package cli adds them to its root and gives them its console and its way to the yard.
package office

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/job"
)

// Office is what its commands share.
type Office struct {
	*console.Console
	connect func() (*api.Client, error)
}

// New returns the office. connect returns a client for the yard that was chosen.
func New(c *console.Console, connect func() (*api.Client, error)) *Office {
	return &Office{Console: c, connect: connect}
}

// Machines returns the commands about nodes and what they are hired by.
func (o *Office) Machines() []*cobra.Command {
	return []*cobra.Command{o.nodes(), o.drain(), o.undrain(), o.offers(), o.leases(), o.giveBack()}
}

// Money returns the commands about who may have what, and what was spent.
func (o *Office) Money() []*cobra.Command {
	return []*cobra.Command{o.usage(), o.books(), o.savings(), o.limits(), o.limit()}
}

// Data returns the commands about datasets and their rules.
func (o *Office) Data() []*cobra.Command { return []*cobra.Command{o.data(), o.override()} }

// call connects, and calls fn.
func (o *Office) call(fn func(*api.Client) error) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	return fn(client)
}

// sure asks before something is done that cannot be undone.
func (o *Office) sure(ctx context.Context, question string) error {
	ok, err := o.Confirm(ctx, table.Plain(question))
	if err != nil || ok {
		return err
	}
	o.Note("Nothing was changed.")
	return exit.With(exit.Error)
}

// pageLimit is the most entries that the server gives at once.
const pageLimit = 500

// collect reads all pages of a list.
func collect[T any](read func(api.Page) (list []T, next string, err error)) ([]T, error) {
	all := []T{}
	for page := (api.Page{Limit: pageLimit}); ; {
		list, next, err := read(page)
		if err != nil {
			return nil, err
		}
		if all = append(all, list...); next == "" {
			return all, nil
		}
		page.Cursor = next
	}
}

// span is the period that a report is of, as flags say it.
type span struct{ from, to, last string }

func (s *span) flags(cmd *cobra.Command, last string) {
	f := cmd.Flags()
	f.StringVar(&s.from, "from", "", "from this `time` on: 2026-11-01 or 2026-11-01T08:00")
	f.StringVar(&s.to, "to", "", "until this `time`; now if left out")
	f.StringVar(&s.last, "last", last, "the last so `long`, as in 24h or 7d; all for everything")
	cmd.MarkFlagsMutuallyExclusive("from", "last")
}

// read returns the two ends of the period; zero for no end.
func (s *span) read(cmd *cobra.Command, now time.Time) (from, to time.Time, err error) {
	if to, err = moment(s.to); err != nil {
		return from, to, exit.Usagef(cmd, "--to: %v", err)
	}
	if s.from != "" {
		if from, err = moment(s.from); err != nil {
			return from, to, exit.Usagef(cmd, "--from: %v", err)
		}
		return from, to, nil
	}
	if s.last == "all" {
		return from, to, nil
	}
	d, err := job.ParseDuration(s.last)
	if err != nil || d <= 0 {
		return from, to, exit.Usagef(cmd, "--last: %q is no length of time: write 24h, 7d or all", s.last)
	}
	if !to.IsZero() {
		now = to
	}
	return now.Add(-time.Duration(d)), to, nil
}

// moment reads a time in UTC.
func moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, &badTime{text}
}

type badTime struct{ text string }

func (e *badTime) Error() string {
	return strconv.Quote(e.text) + " is no time: write 2026-11-01 or 2026-11-01T08:00, in UTC"
}

// few writes some of a list, and how many there are beyond.
func few[T ~string](list []T) string {
	var words []string
	for i, w := range list {
		if i == 2 && len(list) > 3 {
			words = append(words, "+"+strconv.Itoa(len(list)-2))
			break
		}
		words = append(words, string(w))
	}
	return strings.Join(words, ",")
}

// stamp writes a time and how long ago it was.
func stamp(at *time.Time, now time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05 UTC") + " (" + table.Ago(*at, now) + ")"
}
