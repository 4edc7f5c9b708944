package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
)

// versions is what version tells.
type versions struct {
	Version    string    `json:"version"`
	Capability int       `json:"capability"`
	Server     *api.Info `json:"server,omitempty"`
}

func (a *app) version() *cobra.Command {
	var server bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version, with --server also the server's", Args: exit.NoArgs,
		Example: "  trainyard version\n  trainyard version --server -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Version: a.Version, Capability: api.Capability}
			if server {
				err := a.withClient(func(c *api.Client) error {
					info, err := c.Info(cmd.Context())
					v.Server = &info
					return err
				})
				if err != nil {
					return err
				}
			}
			return a.Show(v, nil, func() error {
				if v.Server == nil {
					return a.Pairs("trainyard", v.Version, "protocol", fmt.Sprint(v.Capability))
				}
				return a.Pairs("trainyard", v.Version, "protocol", fmt.Sprint(v.Capability), "server", v.Server.Version,
					"server protocol", fmt.Sprint(v.Server.Capability), "store", v.Server.Store, "policy", v.Server.Policy,
					"up since", stamp(&v.Server.Started, a.Clock.Now()), "CA", v.Server.CAHash)
			})
		},
	}
	cmd.Flags().BoolVar(&server, "server", false, "also show the server's version")
	a.OutputFlag(cmd)
	return cmd
}
