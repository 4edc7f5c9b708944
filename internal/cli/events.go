package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/follow"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

func (a *app) events() *cobra.Command {
	var f api.EventFilter
	var follow bool
	var j, node, cursorFile string
	var limit int
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show events: what changed in the yard, and who changed it",
		Long: `Show the newest events of the yard, oldest first: what changed, when, and
who or what changed it. --after goes on after an entry by its number. With -f new
entries are shown as they come, over restarts of the server; -o json then writes
one object a line.

--audit leaves what callers of the API did, or tried: with the token and the address,
and what was before and after. Calls that were refused are counted (access.refused),
and so is reading what belongs to others (access.read). Who entered a running job, and
how that ended, is access.tunnel.

-o jsonl writes one object a line, for exports. With --cursor-file all entries since
the last export are written, and the file keeps the number of the last one: run it
again and again, or with -f, and no entry is left out. An export that was interrupted
writes its last entries again; their numbers (seq) are the same.`,
		Example: `  trainyard events
  trainyard events -f --job j7
  trainyard events --after 1200 --limit 500 -o json
  trainyard events --audit --actor ada
  trainyard events --audit -o jsonl --cursor-file audit.cursor >> audit.jsonl
  trainyard events --after 0 --limit 1000000 --specs -o json > history.json   # to simulate it`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return exit.Usagef(cmd, "--limit must be 1 or more")
			}

			f.Node = id.Node(node)

			if cursorFile != "" && a.Output != jsonLines {
				return exit.Usagef(cmd, "--cursor-file needs -o jsonl")
			}

			return a.withClient(func(c *api.Client) error {
				if j != "" {
					var err error
					f.Job, err = c.FindJob(cmd.Context(), j)
					if err != nil {
						return err
					}
				}

				if cursorFile != "" {
					return a.exportEvents(cmd, c, f, follow, cursorFile)
				}
				if follow {
					return a.followEvents(cmd.Context(), c, f)
				}

				return a.listEvents(cmd.Context(), c, f, limit)
			})
		},
	}

	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "follow until Ctrl-C")
	flags.StringVar(&f.Kind, "kind", "",
		"only entries of this `kind`, or of all kinds that begin so, e.g. job or job.checkpoint")
	flags.StringVar(&j, "job", "", "only entries about this `job`")
	flags.StringVar(&node, "node", "", "only entries about this `node`")
	flags.StringVar(&f.Cursor, "after", "", "start after the entry with this `number`")
	flags.IntVar(&limit, "limit", 50, "`number` of entries to show at most")
	flags.BoolVar(&f.Specs, "specs", false, "with -o json: add job specs to submissions")
	flags.BoolVar(&f.Audit, "audit", false, "only what callers did or tried, with their tokens and addresses")
	flags.StringVar(&f.Actor, "actor", "", "only what this `actor` did: a user, node/NAME or token/ID")
	flags.StringVar(&cursorFile, "cursor-file", "",
		"with -o jsonl: continue after the entry whose number is in this `file`")
	a.OutputFlag(cmd, jsonLines)

	return cmd
}

func (a *app) listEvents(ctx context.Context, client *api.Client, f api.EventFilter, limit int) error {
	all, err := collectEvents(ctx, client, f, limit)
	if err != nil {
		return err
	}

	if a.Output == jsonLines {
		for _, e := range all.Events {
			if err := a.event(e); err != nil {
				return fmt.Errorf("write event: %w", err)
			}
		}

		return nil
	}

	return a.Show(all, nil, func() error {
		now := a.Clock.Now()
		head := []string{"SEQ", "WHEN", "KIND", "ACTOR", "ABOUT", "CHANGE", "REASON"}
		if f.Audit {
			head = slices.Insert(head, 4, "TOKEN", "ADDRESS")
		}

		t := a.NewTable(head...)
		for _, e := range all.Events {
			row := []string{
				fmt.Sprint(e.Seq), humanize.Ago(e.At, now), e.Kind, e.Actor, about(e), changeOf(e), e.Reason,
			}
			if f.Audit {
				row = slices.Insert(row, 4, string(e.Token), e.Address)
			}

			t.Row(row...)
		}

		return a.WriteTable(t, "no events")
	})
}

// collectEvents reads the feed: from the cursor as many entries as wanted, or
// without one the newest. A server that gives the newest at once is asked for
// them; else the feed is read to its end.
func collectEvents(ctx context.Context, client *api.Client, f api.EventFilter, limit int) (api.EventPage, error) {
	newest := f.Cursor == ""
	if newest {
		f.Tail = limit
	}

	all := api.EventPage{Events: []api.Event{}}
	for newest || len(all.Events) < limit {
		f.Limit = pageLimit
		if !newest {
			f.Limit = min(limit-len(all.Events), pageLimit)
		}

		page, err := client.Events(ctx, f)
		if err != nil {
			return page, err
		}

		all.Events, all.Next = append(all.Events, page.Events...), page.Next
		if newest && len(all.Events) > limit {
			all.Events = slices.Clone(all.Events[len(all.Events)-limit:])
		}

		if len(page.Events) == 0 || page.Next == "" {
			break
		}

		f.Cursor, f.Tail = page.Next, 0
	}

	return all, nil
}

// about says what an entry is about: the run or job, the node, or the user.
func about(e api.Event) string {
	text := string(e.Run)
	if text == "" {
		text = string(e.Job)
	}

	if e.Node != "" {
		if text != "" {
			text += " on "
		}

		text += string(e.Node)
	}

	if text == "" {
		text = string(e.Owner)
	}

	return text
}

func changeOf(e api.Event) string {
	switch {
	case e.From != "" && e.To != "":
		return e.From + " -> " + e.To
	case e.To != "":
		return e.To
	}

	return e.From
}

// backlog is how many entries a follower sees of what was before.
const backlog = 10

func (a *app) followEvents(ctx context.Context, client *api.Client, f api.EventFilter) error {
	if f.Cursor == "" {
		f.Tail = backlog
	}

	return a.persistEvents(ctx, client, f, a.event)
}

// persistEvents follows the feed over lost connections and passes on every entry once.
func (a *app) persistEvents(
	ctx context.Context, client *api.Client, f api.EventFilter, write func(api.Event) error,
) error {
	err := follow.Follower{Note: a.Note}.Persist(ctx, func(alive func()) (bool, error) {
		over := false
		err := client.FollowEvents(ctx, f, func(e api.Event, cursor string) error {
			alive()

			if cursor != "" {
				f.Cursor, f.Tail = cursor, 0
			}

			if err := write(e); err != nil {
				over = true
				return fmt.Errorf("write event: %w", err)
			}

			return nil
		})

		return over, err
	})

	if ctx.Err() != nil {
		return exit.With(exit.Interrupted) // the way to end it; there is nothing to say
	}

	return err
}

// event writes one entry of a feed that is followed.
func (a *app) event(e api.Event) error {
	switch a.Output {
	case console.JSON, jsonLines:
		encoder := json.NewEncoder(a.Stdout)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(e)
	case console.YAML:
		if _, err := fmt.Fprintln(a.Stdout, "---"); err != nil {
			return err
		}

		return console.WriteYAML(a.Stdout, e)
	}

	line := fmt.Sprintf("%s  %-16s %-10s %-18s", e.At.UTC().Format("2006-01-02 15:04:05"), e.Kind, e.Actor, about(e))
	if change := changeOf(e); change != "" {
		line += "  " + change
	}

	if e.Reason != "" {
		line += "  " + e.Reason
	}

	_, err := fmt.Fprintln(a.Stdout, table.Plain(line))

	return err
}
