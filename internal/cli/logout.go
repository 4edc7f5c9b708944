package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/auth"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/cli/exit"
)

func (a *app) logout() *cobra.Command {
	var revoke bool
	cmd := &cobra.Command{
		Use:   "logout [CONTEXT]",
		Short: "Log out",
		Long: "Remove a login from this machine, by default the current one. Its token stays valid unless --revoke is " +
			"given.",
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
					return fmt.Errorf("revoke the token (the login is kept): %w", err)
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

	cmd.Flags().BoolVar(&revoke, "revoke", false, "also revoke the token")

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
