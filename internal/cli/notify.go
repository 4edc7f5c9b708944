package cli

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/tenant"
)

// notify says where people are notified of what happens to their jobs.
func (a *app) notify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Be notified of failed, finished or stalled jobs by webhook, Slack or mail",
		Args:  exit.NoArgs,
		Long: `Set channels over which you are notified of what happens to your jobs, or a project of its jobs. Topics are
done, failed, stalled (no progress is reported), nan (a metric is not a number), idle (an interactive job will be
stopped), needs_you (the inbox has a question) and budget (a quota or budget is nearly used up).

A notification that the receiver does not accept is sent again, with growing pauses, for a day; then
it is given up, and the event notify.gave_up says so.`,
		Example: `  trainyard notify add phone --slack
  trainyard notify add inbox --mail ada@example.org --on failed,needs_you
  trainyard notify test phone
  trainyard notify list`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(a.addChannel(), a.listChannels(), a.removeChannel(), a.testChannel())

	return cmd
}

// addChannelFlags say what a new channel is like.
type addChannelFlags struct {
	webhook, mail, smtp, from, file string
	slack                           bool
	on                              []string
}

func (a *app) addChannel() *cobra.Command {
	var of secretFlags
	var f addChannelFlags
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a channel, or replace the one of this name",
		Args:  exit.Args(1, 1, "name of the channel, e.g. phone"),
		Long: `Add a channel: a webhook, Slack or mail. What is secret of it is read from a prompt, from standard input or
from a file, never from the command line, and is stored encrypted: the URL of Slack's incoming
webhook (Mattermost and others accept the same form), the key of a webhook if --file names it
(otherwise the server makes one and shows it once), the password of your own SMTP server.

Messages to webhooks are signed as Standard Webhooks says. Their webhook-id is the same in every
attempt.`,
		Example: `  trainyard notify add phone --slack
  trainyard notify add ci --webhook https://ci.example.org/hooks/trainyard --on done,failed
  trainyard notify add inbox --mail ada@example.org
  trainyard notify add team --slack --project vision < url.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				kind, subject, err := of.subject(cmd.Context(), cmd, c)
				if err != nil {
					return err
				}

				request, err := a.channelRequest(cmd, args[0], &f)
				if err != nil {
					return err
				}

				set, err := c.PutChannel(cmd.Context(), kind, subject, args[0], request)
				if err != nil {
					return err
				}

				return a.Show(set, nil, func() error { return a.channelAdded(&set) })
			})
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&f.webhook, "webhook", "", "send JSON, signed, to this `URL`")
	flags.BoolVar(&f.slack, "slack", false, "send text to Slack or Mattermost; the URL is read from a prompt or --file")
	flags.StringVar(&f.mail, "mail", "", "send mail to this `address`")
	flags.StringVar(&f.smtp, "smtp", "", "send mail over this `server`, as in smtps://ada@mail.example.org "+
		"(default: the yard's)")
	flags.StringVar(&f.from, "from", "", "`address` of the sender, with --smtp (default: the recipient's)")
	flags.StringSliceVar(&f.on, "on", nil, "`topics` to be notified of, separated by commas (default: all)")
	flags.StringVar(&f.file, "file", "", "`file` with the secret part; - for standard input")
	flags.StringVar(&of.project, "project", "", "channel of this `project`, for the jobs in it; for its leads")
	flags.StringVar(&of.owner, "owner", "", "channel of this `user`; for admins (default: you)")
	a.OutputFlag(cmd)

	return cmd
}

// channelRequest makes a request of the flags, and reads what is secret.
func (a *app) channelRequest(cmd *cobra.Command, name string, f *addChannelFlags) (r api.ChannelRequest, err error) {
	kinds := 0
	for _, given := range []bool{f.webhook != "", f.slack, f.mail != ""} {
		if given {
			kinds++
		}
	}

	if kinds != 1 {
		return r, exit.Usagef(cmd, "give one of --webhook, --slack and --mail")
	}
	if f.mail == "" && f.smtp+f.from != "" {
		return r, exit.Usagef(cmd, "--smtp and --from are for --mail")
	}

	r = api.ChannelRequest{Kind: tenant.WebhookChannel, URL: f.webhook, To: f.mail, SMTP: f.smtp, From: f.from}
	for _, topic := range f.on {
		r.Topics = append(r.Topics, tenant.Topic(strings.TrimSpace(topic)))
	}

	switch {
	case f.slack:
		r.Kind = tenant.SlackChannel
		r.URL, err = a.readSecretValue(cmd.Context(), "the URL of Slack's incoming webhook", f.file)
	case f.mail != "":
		r.Kind = tenant.MailChannel
		if hasUser(f.smtp) {
			r.Password, err = a.readSecretValue(cmd.Context(), "the password for "+f.smtp, f.file)
		}
	case f.file != "":
		r.Key, err = a.readSecretValue(cmd.Context(), "the key of "+name, f.file)
	}

	return r, err
}

// hasUser reports whether a URL says as whom to log in.
func hasUser(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User != nil
}

// channelAdded shows a channel that was set.
func (a *app) channelAdded(c *api.Channel) error {
	_, err := fmt.Fprintf(a.Stdout, "Channel %s of %s: %s on %s.\n", c.Name, c.Subject, receiver(c), topicList(c))
	if err != nil {
		return err
	}

	if c.Key != "" {
		if _, err := fmt.Fprintf(a.Stdout, "\nKey for verifying signatures, shown only now:\n\n  %s\n", c.Key); err != nil {
			return err
		}
	}

	kind, of, _ := strings.Cut(c.Subject, "/")
	flag := ""
	if kind == "project" {
		flag = " --project " + of
	}

	a.Next("trainyard notify test " + c.Name + flag)

	return nil
}

// receiver is where messages go, as far as that is not secret.
func receiver(c *api.Channel) string {
	switch {
	case c.Kind != tenant.MailChannel:
		return string(c.Kind) + " at " + c.Host
	case c.Host != "":
		return "mail to " + c.To + " over " + c.Host
	}

	return "mail to " + c.To
}

func topicList(c *api.Channel) string {
	list := make([]string, len(c.Topics))
	for i := range c.Topics {
		list[i] = string(c.Topics[i])
	}

	return strings.Join(list, ",")
}

func (a *app) listChannels() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List channels",
		Args:    exit.NoArgs,
		Long:    `List your channels and those of projects that you lead, and for admins those of all users and projects.`,
		Example: "  trainyard notify list\n  trainyard notify list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error {
				all, err := collect(func(p api.Page) ([]api.Channel, string, error) {
					page, err := c.Channels(cmd.Context(), p)
					return page.Channels, page.Next, err
				})
				if err != nil {
					return err
				}

				return a.Show(api.ChannelPage{Channels: all}, nil, func() error {
					t := a.NewTable("NAME", "OF", "RECEIVER", "ON", "PROBLEM")
					for i := range all {
						one := &all[i]
						t.Cells(table.Cell{Text: one.Name}, table.Cell{Text: one.Subject}, table.Cell{Text: receiver(one)},
							table.Cell{Text: topicList(one)}, table.Cell{Text: one.Problem, Color: table.Red})
					}

					return a.WriteTable(t, "no channels", "trainyard notify add phone --slack")
				})
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

// channelCommand is a command about one channel that is there.
func (a *app) channelCommand(cmd *cobra.Command, act func(c *api.Client, kind, of, name string) error) *cobra.Command {
	var f secretFlags
	cmd.Args = exit.Args(1, 1, "name of the channel")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withClient(func(c *api.Client) error {
			kind, of, err := f.subject(cmd.Context(), cmd, c)
			if err != nil {
				return err
			}

			return act(c, kind, of, args[0])
		})
	}

	cmd.Flags().StringVar(&f.project, "project", "", "channel of this `project`")
	cmd.Flags().StringVar(&f.owner, "owner", "", "channel of this `user`; for admins (default: you)")

	return cmd
}

func (a *app) removeChannel() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Delete a channel",
		Long:    `Delete a channel with its secret. What was not delivered yet is not delivered any more.`,
		Example: "  trainyard notify remove phone\n  trainyard notify remove team --project vision",
	}

	return a.channelCommand(cmd, func(c *api.Client, kind, of, name string) error {
		if err := c.RemoveChannel(cmd.Context(), kind, of, name); err != nil {
			return err
		}

		_, err := fmt.Fprintf(a.Stdout, "Deleted channel %s of %s/%s.\n", name, kind, of)

		return err
	})
}

func (a *app) testChannel() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "test NAME",
		Short:   "Send a test message over a channel",
		Long:    `Send a test message over a channel, and say whether the receiver has accepted it.`,
		Example: "  trainyard notify test phone\n  trainyard notify test team --project vision",
	}

	return a.channelCommand(cmd, func(c *api.Client, kind, of, name string) error {
		if err := c.TestChannel(cmd.Context(), kind, of, name); err != nil {
			return err
		}

		_, err := fmt.Fprintf(a.Stdout, "Delivered a test message over channel %s of %s/%s.\n", name, kind, of)

		return err
	})
}
