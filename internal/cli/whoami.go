package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/cli/exit"
	"trainyard/internal/humanize"
)

func (a *app) whoami() *cobra.Command {
	cmd := &cobra.Command{
		Use: "whoami", Short: "Show your user, role and token", Args: exit.NoArgs,
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

			ca, err := a.pinnedHash()
			if err != nil {
				return err
			}

			return a.Show(who, nil, func() error {
				now := a.Clock.Now()
				return a.Pairs("User", string(who.User), "Role", string(who.Role), "Scope", string(who.Scope),
					"Token", fmt.Sprintf("%s, expires %s", who.Token, humanize.Ago(who.Expires, now)), "Server", client.Base(),
					"CA", ca)
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}
