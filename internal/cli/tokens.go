package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

func (a *app) tokens() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "List, create or revoke tokens",
		Args:  exit.NoArgs,
		Long:  `List tokens: your own, or for admins those of all users. Secrets are shown once, when a token is created.`,
		Example: "  trainyard tokens\n  trainyard tokens create --scope read --ttl 7d --note dashboard\n  trainyard " +
			"tokens create --join --uses 10\n  trainyard tokens revoke abcdefghij\n  trainyard tokens revoke --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error { return a.listTokens(cmd.Context(), c, id.User(owner)) })
		},
	}

	cmd.Flags().StringVar(&owner, "owner", "", "only tokens of this `user`")
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.createToken(), a.revokeToken())

	return cmd
}

func (a *app) listTokens(ctx context.Context, client *api.Client, owner id.User) error {
	all := api.TokenPage{Tokens: []api.Token{}}
	for {
		page, err := client.Tokens(ctx, owner, api.Page{Cursor: all.Next, Limit: pageLimit})
		if err != nil {
			return err
		}

		all.Tokens, all.Next = append(all.Tokens, page.Tokens...), page.Next
		if page.Next == "" {
			break
		}
	}

	names := func() []string {
		list := make([]string, len(all.Tokens))
		for i, t := range all.Tokens {
			list[i] = string(t.ID)
		}

		return list
	}

	return a.Show(all, names, func() error {
		now := a.Clock.Now()
		t := a.NewTable("ID", "KIND", "OWNER", "STATE", "FOR", "CREATED", "EXPIRES", "LAST USED", "ENDS WITH", "NOTE")

		for _, k := range all.Tokens {
			state := table.Cell{Text: "valid", Color: table.Green}
			switch {
			case k.Revoked:
				state = table.Cell{Text: "revoked", Color: table.Gray}
			case !now.Before(k.Expires):
				state = table.Cell{Text: "expired", Color: table.Gray}
			case k.Kind != tenant.AccessToken && k.UsesLeft == 0:
				state = table.Cell{Text: "used up", Color: table.Gray}
			}

			used := ""
			if k.LastUsed != nil {
				used = humanize.Ago(*k.LastUsed, now)
			}

			t.Cells(
				table.Cell{Text: string(k.ID)},
				table.Cell{Text: string(k.Kind)},
				table.Cell{Text: string(k.Owner)},
				state,
				table.Cell{
					Text: tokenFor(k),
				},
				table.Cell{Text: humanize.Ago(k.Created, now)},
				table.Cell{Text: humanize.Ago(k.Expires, now)},
				table.Cell{Text: used},
				table.Cell{Text: string(k.Parent)},
				table.Cell{Text: k.Note},
			)
		}

		return a.WriteTable(t, "no tokens", "trainyard tokens create")
	})
}

// tokenFor says what a token may be used for.
func tokenFor(k api.Token) string {
	switch k.Kind {
	case tenant.AccessToken:
		return string(k.Scope)
	case tenant.BootstrapToken:
		return "a login of scope " + string(k.Scope)
	case tenant.JoinToken:
	}

	text := humanize.Count(k.UsesLeft, "more "+k.Class+" node")
	if k.Pool != "" {
		text += " of pool " + k.Pool
	}

	return text
}

func (a *app) createToken() *cobra.Command {
	var join, login bool
	var scope, owner, class string
	request := api.TokenRequest{Kind: tenant.AccessToken}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a token for a person, a program, or nodes that join",
		Args:  exit.NoArgs,
		Long: `Create a token. Its secret is shown only once. With --join it lets machines join as nodes; with --login
a person logs in with it, once; otherwise people and programs use it to call the API.

A token ends with the one with which it was created, and never later. Only within 15 minutes after a login are tokens
created that stand for themselves. Creating tokens needs a token of scope tokens or admin.`,
		Example: "  trainyard tokens create --ttl 90d --note laptop\n  trainyard tokens create --login --owner ada\n" +
			"  trainyard tokens create --join --class reserved --pool a100 --uses 8",
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed

			switch {
			case join:
				request.Kind = tenant.JoinToken
			case login:
				request.Kind = tenant.BootstrapToken
			}

			if join && (given("scope") || given("owner")) || !join && (given("class") || given("pool") || given("uses")) {
				return exit.Usagef(cmd, "--class, --pool and --uses are for join tokens, --scope and --owner for others")
			}
			if err := oneOf(cmd, "scope", scope, tenant.Scopes()); err != nil {
				return err
			}
			if err := oneOf(cmd, "class", class, fleet.Classes()); err != nil {
				return err
			}
			if _, err := job.ParseDuration(request.TTL); err != nil && request.TTL != "" {
				return exit.Usagef(cmd, "--ttl: %v", err)
			}

			request.Scope, request.Owner, request.Class = tenant.Scope(scope), id.User(owner), class

			return a.withClient(func(c *api.Client) error { return a.doCreateToken(cmd.Context(), c, request) })
		},
	}

	flags := cmd.Flags()
	flags.BoolVar(&join, "join", false, "create a token with which machines join")
	flags.BoolVar(&login, "login", false, "create a token with which a person logs in, once")
	flags.StringVar(&scope, "scope", "", "`scope`: read, submit, tokens or admin (default submit, with --login tokens)")
	flags.StringVar(&owner, "owner", "", "`user` who owns the token (default yourself)")
	flags.StringVar(&request.Note, "note", "", "`text` that says what it is for")
	flags.StringVar(&request.TTL, "ttl", "",
		"lifetime as a `duration`, e.g. 12h or 30d (default 30d, with --join or --login 1h)")
	flags.StringVar(&class, "class", "", "`class` of nodes that join: local, reserved or ondemand (default local)")
	flags.StringVar(&request.Pool, "pool", "", "`pool` of nodes that join")
	flags.IntVar(&request.Uses, "uses", 0, "`number` of machines that may join (default 1)")
	a.OutputFlag(cmd)
	cmd.Flags().BoolVarP(&a.Quiet, "quiet", "q", false, "print the secret only")
	cmd.MarkFlagsMutuallyExclusive("quiet", "output")
	cmd.MarkFlagsMutuallyExclusive("join", "login")

	return cmd
}

func (a *app) doCreateToken(ctx context.Context, client *api.Client, request api.TokenRequest) error {
	made, err := client.CreateToken(ctx, request)
	if err != nil {
		return err
	}

	return a.Show(made, func() []string { return []string{made.Text} }, func() error {
		if _, err := fmt.Fprintln(a.Stdout, made.Text); err != nil {
			return err
		}

		a.Note("The secret is shown only once. Token %s expires %s.", made.ID, humanize.Ago(made.Expires, a.Clock.Now()))

		if made.Parent != "" {
			a.Note("It ends with token %s, with which it was created.", made.Parent)
		}

		if made.Kind == tenant.JoinToken {
			a.Next(fmt.Sprintf("trainyard agent join %s --token -     on the machine; it reads the token", client.Base()))
		} else {
			line, err := a.loginLine(client, made.Kind)
			if err != nil {
				return err
			}

			a.Next(line + "     it asks for the token")
		}

		return nil
	})
}

// loginLine is the whole command with which somebody logs in with a new token. An access token does not carry the hash
// of the server's CA, so the line does.
func (a *app) loginLine(client *api.Client, kind tenant.TokenKind) (string, error) {
	line := "trainyard login " + client.Base()
	if kind != tenant.AccessToken {
		return line, nil
	}

	hash, err := a.pinnedHash()
	if err != nil || hash == "" {
		return line, err
	}

	return line + " --ca-hash " + hash, nil
}

func (a *app) revokeToken() *cobra.Command {
	var all bool
	var owner string
	cmd := &cobra.Command{
		Use: "revoke [TOKEN...]", Short: "Revoke tokens and those that were created with them",
		Long: `Revoke tokens, and with each those that were created with it. With --all these are all of your tokens but the
one that you are logged in with, or all of another user's.`,
		Args: cobra.ArbitraryArgs,
		Example: "  trainyard tokens revoke abcdefghij\n  trainyard tokens revoke --all\n" +
			"  trainyard tokens revoke --all --owner ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return exit.Usagef(cmd, "give tokens or --all, not both")
			case !all && owner != "":
				return exit.Usagef(cmd, "--owner is for --all")
			case !all && len(args) == 0:
				return exit.Usagef(cmd, "give the IDs of tokens, or --all")
			}

			return a.withClient(func(c *api.Client) error {
				if all {
					return a.revokeAll(cmd.Context(), c, id.User(owner))
				}

				return a.revokeTokens(cmd.Context(), c, args)
			})
		},
	}

	cmd.Flags().BoolVar(&all, "all", false, "all tokens of a user, except the one that you are logged in with")
	cmd.Flags().StringVar(&owner, "owner", "", "with --all: `user` whose tokens are revoked (default yourself)")

	return cmd
}

func (a *app) revokeTokens(ctx context.Context, client *api.Client, args []string) error {
	for _, arg := range args {
		name := id.Token(arg)
		if whole, err := auth.Parse(arg); err == nil {
			name = whole.ID // somebody gave the secret itself; it is not repeated
		}

		if err := client.RevokeToken(ctx, name); err != nil {
			return fmt.Errorf("revoke %s: %w", name, err)
		}
		if _, err := fmt.Fprintf(a.Stdout, "%s revoked\n", name); err != nil {
			return err
		}
	}

	return nil
}

func (a *app) revokeAll(ctx context.Context, client *api.Client, owner id.User) error {
	done, err := client.RevokeTokens(ctx, owner)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(a.Stdout, "%s revoked\n", humanize.Count(done.Revoked, "token"))

	return err
}
