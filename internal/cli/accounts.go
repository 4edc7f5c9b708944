package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

func (a *app) users() *cobra.Command {
	cmd := &cobra.Command{
		Use: "users [USER]", Short: "List the people who may use the yard, or show one", Args: exit.Args(0, 1, "user"),
		Example: "  trainyard users\n  trainyard users add ada --role researcher\n  trainyard users disable ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if len(args) == 1 {
					user, err := c.User(cmd.Context(), id.User(args[0]))
					if err != nil {
						return err
					}
					return a.showUsers(user, user)
				}
				return a.listUsers(cmd.Context(), c)
			})
		},
	}
	a.OutputFlag(cmd)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.addUser(), a.setRole(), a.able("disable", "Lock a user out; their jobs go on", true), a.able("enable", "Let a user in again", false))
	return cmd
}

func (a *app) listUsers(ctx context.Context, client *api.Client) error {
	all := api.UserPage{Users: []api.User{}}
	for {
		page, err := client.Users(ctx, api.Page{Cursor: all.Next, Limit: pageLimit})
		if err != nil {
			return err
		}
		all.Users, all.Next = append(all.Users, page.Users...), page.Next
		if page.Next == "" {
			return a.showUsers(all, all.Users...)
		}
	}
}

// showUsers shows users as a table; value is what programs get.
func (a *app) showUsers(value any, users ...api.User) error {
	names := func() []string {
		list := make([]string, len(users))
		for i, u := range users {
			list[i] = string(u.ID)
		}
		return list
	}
	return a.Show(value, names, func() error {
		now := a.Clock.Now()
		t := a.NewTable("USER", "ROLE", "STATE", "USAGE", "CREATED")
		for _, u := range users {
			state := table.Cell{Text: "active", Color: table.Green}
			if u.Disabled {
				state = table.Cell{Text: "disabled", Color: table.Gray}
			}
			t.Cells(table.Cell{Text: string(u.ID)}, table.Cell{Text: string(u.Role)}, state,
				table.Cell{Text: strconv.FormatFloat(u.Usage/3600, 'f', 1, 64) + " GPU-h"}, table.Cell{Text: table.Ago(u.Created, now)})
		}
		return a.WriteTable(t, "no users")
	})
}

func (a *app) addUser() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "add USER", Short: "Let a person use the yard", Args: exit.Args(1, 1, "user"),
		Example: "  trainyard users add ada\n  trainyard users add ada --role admin",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf(cmd, "role", role, tenant.Roles()); err != nil {
				return err
			}
			return a.withClient(func(c *api.Client) error {
				name := id.User(args[0])
				_, err := c.User(cmd.Context(), name)
				if err == nil {
					return fault.New(fault.Conflict, "user_exists", "there is a user %s already", name).
						WithRemedy("change the role with: trainyard users role %s ROLE", name)
				}
				if fault.KindOf(err) != fault.NotFound {
					return err
				}
				user, err := c.PutUser(cmd.Context(), name, api.UserRequest{Role: tenant.Role(role)})
				if err != nil {
					return err
				}
				if err := a.showUsers(user, user); err != nil {
					return err
				}
				a.Next(fmt.Sprintf("trainyard tokens create --owner %s     a token for them to log in with", name))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", string(tenant.Researcher), "admin or researcher")
	a.OutputFlag(cmd)
	return cmd
}

func (a *app) setRole() *cobra.Command {
	cmd := &cobra.Command{
		Use: "role USER ROLE", Short: "Change a user's role", Args: exit.Args(2, 2, "user and which role"),
		Example: "  trainyard users role ada admin",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf(cmd, "role", args[1], tenant.Roles()); err != nil {
				return err
			}
			return a.changeUser(cmd.Context(), args[0], func(u *api.UserRequest) { u.Role = tenant.Role(args[1]) })
		},
	}
	a.OutputFlag(cmd)
	return cmd
}

func (a *app) able(verb, short string, disabled bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " USER", Short: short, Args: exit.Args(1, 1, "user"),
		Example: "  trainyard users " + verb + " ada",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeUser(cmd.Context(), args[0], func(u *api.UserRequest) { u.Disabled = disabled })
		},
	}
	a.OutputFlag(cmd)
	return cmd
}

// changeUser changes one thing about a user and leaves the rest as it is.
func (a *app) changeUser(ctx context.Context, name string, change func(*api.UserRequest)) error {
	return a.withClient(func(c *api.Client) error {
		user, err := c.User(ctx, id.User(name))
		if err != nil {
			return err
		}
		request := api.UserRequest{Role: user.Role, Disabled: user.Disabled}
		change(&request)
		if user, err = c.PutUser(ctx, user.ID, request); err != nil {
			return err
		}
		return a.showUsers(user, user)
	})
}

func (a *app) tokens() *cobra.Command {
	var owner string
	cmd := &cobra.Command{
		Use: "tokens", Short: "List tokens, make or revoke them", Args: exit.NoArgs,
		Long:    "List the tokens that were handed out: your own, or for admins everybody's. Secrets are shown once, when a token is made.",
		Example: "  trainyard tokens\n  trainyard tokens create --scope read --ttl 7d --note dashboard\n  trainyard tokens create --join --uses 10\n  trainyard tokens revoke abcdefghij",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error { return a.listTokens(cmd.Context(), c, id.User(owner)) })
		},
	}
	cmd.Flags().StringVar(&owner, "owner", "", "only tokens of this user")
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
		t := a.NewTable("ID", "KIND", "OWNER", "STATE", "FOR", "CREATED", "EXPIRES", "LAST USED", "NOTE")
		for _, k := range all.Tokens {
			state := table.Cell{Text: "good", Color: table.Green}
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
				used = table.Ago(*k.LastUsed, now)
			}
			t.Cells(table.Cell{Text: string(k.ID)}, table.Cell{Text: string(k.Kind)}, table.Cell{Text: string(k.Owner)}, state,
				table.Cell{Text: tokenFor(k)}, table.Cell{Text: table.Ago(k.Created, now)}, table.Cell{Text: table.Ago(k.Expires, now)},
				table.Cell{Text: used}, table.Cell{Text: k.Note})
		}
		return a.WriteTable(t, "no tokens", "trainyard tokens create")
	})
}

// tokenFor says what a token may be used for.
func tokenFor(k api.Token) string {
	if k.Kind != tenant.JoinToken {
		return string(k.Scope)
	}
	text := table.Count(k.UsesLeft, "more "+k.Class+" node")
	if k.Pool != "" {
		text += " of pool " + k.Pool
	}
	return text
}

func (a *app) createToken() *cobra.Command {
	var join bool
	var scope, owner, class string
	request := api.TokenRequest{Kind: tenant.AccessToken}
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token for a person, a program, or machines that join", Args: exit.NoArgs,
		Long:    "Make a token. Its secret is shown this once. With --join it lets machines join as nodes, else people and programs call the yard with it.",
		Example: "  trainyard tokens create --ttl 90d --note laptop\n  trainyard tokens create --owner ada\n  trainyard tokens create --join --class reserved --pool a100 --uses 8",
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			if join {
				request.Kind = tenant.JoinToken
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
	flags.BoolVar(&join, "join", false, "a token by which machines join")
	flags.StringVar(&scope, "scope", "", "what it may be used for: read, submit or admin (submit)")
	flags.StringVar(&owner, "owner", "", "whose token (yourself)")
	flags.StringVar(&request.Note, "note", "", "what it is for")
	flags.StringVar(&request.TTL, "ttl", "", "how long it is good, as in 12h or 30d (30d; join tokens 1h)")
	flags.StringVar(&class, "class", "", "of nodes that join: local, reserved or ondemand (local)")
	flags.StringVar(&request.Pool, "pool", "", "of nodes that join")
	flags.IntVar(&request.Uses, "uses", 0, "how many machines may join (1)")
	a.OutputFlag(cmd)
	cmd.Flags().BoolVarP(&a.Quiet, "quiet", "q", false, "print the secret only")
	cmd.MarkFlagsMutuallyExclusive("quiet", "output")
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
		a.Note("This is shown once. Token %s expires %s.", made.ID, table.Ago(made.Expires, a.Clock.Now()))
		if made.Kind == tenant.JoinToken {
			a.Next(fmt.Sprintf("trainyard agent join %s --token %s     on the machine", client.Base(), made.Text))
		} else {
			a.Next(fmt.Sprintf("trainyard login %s --token %s", client.Base(), made.Text))
		}
		return nil
	})
}

func (a *app) revokeToken() *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN...", Short: "Make tokens useless from now on", Args: exit.Args(1, 0, "token, by its id"),
		Example: "  trainyard tokens revoke abcdefghij",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				for _, arg := range args {
					name := id.Token(arg)
					if whole, err := auth.Parse(arg); err == nil {
						name = whole.ID // somebody gave the secret itself; it is not repeated
					}
					if err := c.RevokeToken(cmd.Context(), name); err != nil {
						return fmt.Errorf("revoke %s: %w", name, err)
					}
					if _, err := fmt.Fprintf(a.Stdout, "%s revoked\n", name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
