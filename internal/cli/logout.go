package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/auth"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
)

func (a *app) logout() *cobra.Command {
	var revoke bool
	cmd := &cobra.Command{
		Use:   "logout [CONTEXT]",
		Short: "Forget a login",
		Long:  "Forget a login of this machine: the current one if none is named. Its token stays good unless it is revoked.",
		Example: `  trainyard logout
  trainyard logout lab --revoke`,
		Args: exit.Args(0, 1, "login"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.logins()
			if err != nil {
				return err
			}
			name := a.context
			if len(args) > 0 {
				name = args[0]
			}
			login, ok := file.Get(name)
			if !ok {
				return contexts.NotFound(name)
			}
			if revoke {
				if err := revokeOwn(cmd.Context(), login); err != nil {
					return fmt.Errorf("revoke the token, the login is kept: %w", err)
				}
			}
			file.Remove(login.Name)
			if err := file.Save(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Stdout, "Logged out of %s.\n", login.Server)
			return err
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke", false, "also make the token useless")
	return cmd
}

func revokeOwn(ctx context.Context, login contexts.Context) error {
	client, err := open(login)
	if err != nil {
		return err
	}
	defer client.Close()
	parsed, err := auth.Parse(login.Token)
	if err != nil {
		return err
	}
	return client.RevokeToken(ctx, parsed.ID)
}

func (a *app) whoami() *cobra.Command {
	cmd := &cobra.Command{
		Use: "whoami", Short: "Show who you are to the yard", Args: exit.NoArgs,
		Example: "  trainyard whoami\n  trainyard whoami -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.connect()
			if err != nil {
				return err
			}
			defer client.Close()
			who, err := client.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			return a.Show(who, nil, func() error {
				now := a.Clock.Now()
				return a.Pairs("User", string(who.User), "Role", string(who.Role), "Scope", string(who.Scope),
					"Token", fmt.Sprintf("%s, expires %s", who.Token, table.Ago(who.Expires, now)), "Yard", client.Base())
			})
		},
	}
	a.OutputFlag(cmd)
	return cmd
}

func (a *app) contexts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "context", Short: "List the logins of this machine, or choose one", Args: exit.NoArgs,
		Long:    "List the logins of this machine. The current one has a star; choose another with \"context use NAME\" or for one command with --context.",
		Example: "  trainyard context\n  trainyard context use lab",
		RunE:    func(*cobra.Command, []string) error { return a.listContexts() },
	}
	use := &cobra.Command{
		Use: "use NAME", Short: "Make a login the current one", Args: exit.Args(1, 1, "login"),
		Example: "  trainyard context use lab",
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := a.logins()
			if err != nil {
				return err
			}
			login, ok := file.Get(args[0])
			if !ok {
				return contexts.NotFound(args[0])
			}
			file.Current = login.Name
			if err := file.Save(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Stdout, "The current yard is %s at %s.\n", login.Name, login.Server)
			return err
		},
	}
	cmd.AddCommand(use)
	a.OutputFlag(cmd)
	return cmd
}

// shownContext is a login without its secret.
type shownContext struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	User    string `json:"user"`
	Current bool   `json:"current"`
}

func (a *app) listContexts() error {
	file, err := a.logins()
	if err != nil {
		return err
	}
	list := struct {
		Contexts []shownContext `json:"contexts"`
	}{[]shownContext{}}
	for _, c := range file.Contexts {
		list.Contexts = append(list.Contexts, shownContext{c.Name, c.Server, c.User, c.Name == file.Current})
	}
	return a.Show(list, nil, func() error {
		t := a.NewTable("CURRENT", "NAME", "USER", "SERVER")
		for _, c := range list.Contexts {
			star := ""
			if c.Current {
				star = "*"
			}
			t.Row(star, c.Name, c.User, c.Server)
		}
		return a.WriteTable(t, "no logins", "trainyard login https://HOST:7443")
	})
}
