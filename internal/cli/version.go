package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
)

// versions is the output of the version command.
type versions struct {
	Version    string    `json:"version"`
	Commit     string    `json:"commit,omitempty"`
	GoVersion  string    `json:"go,omitempty"`
	Capability int       `json:"capability"`
	Server     *api.Info `json:"server,omitempty"`
}

func (a *app) version() *cobra.Command {
	var server bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version; with --server also that of the server", Args: exit.NoArgs,
		Example: "  trainyard version\n  trainyard version --server -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Version: a.Version, Commit: a.Commit, GoVersion: a.GoVersion, Capability: api.Capability}
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
				pairs := []string{
					"trainyard", v.Version, "commit", v.Commit, "go", v.GoVersion, "protocol", fmt.Sprint(v.Capability),
				}
				if v.Server != nil {
					pairs = append(pairs,
						"server", v.Server.Version, "server protocol", fmt.Sprint(v.Server.Capability),
						"store", v.Server.Store, "policy", v.Server.Policy,
						"up since", stamp(&v.Server.Started, a.Clock.Now()), "CA", v.Server.CAHash)
				}

				return a.Pairs(pairs...)
			})
		},
	}

	cmd.Flags().BoolVar(&server, "server", false, "also show the server's version")
	a.OutputFlag(cmd)

	return cmd
}
