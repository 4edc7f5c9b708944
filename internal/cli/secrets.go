package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/tenant"
)

// secrets lists the names of secrets, sets and removes them.
func (a *app) secrets() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Store secrets that jobs get, list or remove them",
		Args:  exit.NoArgs,
		Long: `Store values such as API keys, which jobs get if their file lists them under secrets. They are stored
encrypted, given only to the nodes that run such a job, and masked in its output. Nobody can read
a value back, only set another one.`,
		Example: `  trainyard secrets set WANDB_API_KEY
  trainyard secrets set SSH_KEY --file ~/.ssh/id_ed25519
  trainyard secrets list
  trainyard secrets rm WANDB_API_KEY`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(a.setSecret(), a.listSecrets(), a.removeSecret(), a.rotateSecretKey())

	return cmd
}

// secretFlags say whose secret it is.
type secretFlags struct{ project, owner string }

func (f *secretFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.project, "project", "", "secret of this `project`, for the jobs of its members")
	cmd.Flags().StringVar(&f.owner, "owner", "", "secret of this `user`; for admins (default: you)")
}

// secretName accepts the name of a secret. What follows it is likely to be the value, so it is not repeated.
func secretName(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return exit.Usagef(cmd, "the value of a secret is not taken from the command line: pipe it in, or use --file")
	}

	return exit.Args(1, 1, "name of the secret, e.g. WANDB_API_KEY")(cmd, args)
}

// subject returns the kind and the name of whose secret it is.
func (f *secretFlags) subject(ctx context.Context, cmd *cobra.Command, c *api.Client) (kind, of string, err error) {
	switch {
	case f.project != "" && f.owner != "":
		return "", "", exit.Usagef(cmd, "--project and --owner exclude each other")
	case f.project != "":
		return "project", f.project, nil
	case f.owner != "":
		return "user", f.owner, nil
	}

	who, err := c.Whoami(ctx)

	return "user", string(who.User), err
}

func (a *app) setSecret() *cobra.Command {
	var f secretFlags
	var file string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Store a secret, or a new value of one",
		Args:  secretName,
		Long: `Store a secret. NAME is the environment variable in which jobs get it. The value is read from a prompt, from
standard input or from a file, never from the command line, where others could see it. The end of a
single line is not part of it. Jobs that run keep the former value; later runs, retries and moves
get the new one.`,
		Example: `  trainyard secrets set WANDB_API_KEY
  pass show wandb | trainyard secrets set WANDB_API_KEY
  trainyard secrets set DEPLOY_KEY --file deploy.pem --project vision`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				kind, of, err := f.subject(cmd.Context(), cmd, c)
				if err != nil {
					return err
				}

				value, err := a.readSecretValue(cmd.Context(), args[0], file)
				if err != nil {
					return err
				}

				set, err := c.PutSecret(cmd.Context(), kind, of, args[0], value)
				if err != nil {
					return err
				}

				return a.Show(set, nil, func() error {
					_, err := fmt.Fprintf(a.Stdout, "Stored secret %s of %s.\n", set.Name, set.Subject)
					a.Next("secrets: [" + set.Name + "]      in a job file")

					return err
				})
			})
		},
	}

	f.add(cmd)
	cmd.Flags().StringVar(&file, "file", "", "`file` with the value; - for standard input")
	a.OutputFlag(cmd)

	return cmd
}

// readSecretValue reads the value of a secret from a file, from standard input or from a prompt.
func (a *app) readSecretValue(ctx context.Context, name, file string) (string, error) {
	if file == "" && a.OnTerminal(a.Stdin) {
		return a.Secret(ctx, "Value of "+name+": ")
	}

	var in io.Reader = a.In
	if file != "" && file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read the value: %w", err)
		}

		defer func() { _ = f.Close() }()

		in = f
	}

	text, err := io.ReadAll(io.LimitReader(in, 2*tenant.MaxSecret))
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}

	value := string(text)
	if line := strings.TrimRight(value, "\r\n"); !strings.Contains(line, "\n") {
		value = line // whoever writes one line does not mean its end
	}

	return value, nil
}

func (a *app) listSecrets() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the names of stored secrets",
		Args:    exit.NoArgs,
		Long:    `List your secrets, and for admins those of all users and projects. Values are never shown.`,
		Example: "  trainyard secrets list\n  trainyard secrets list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error {
				all, err := collect(func(p api.Page) ([]api.Secret, string, error) {
					page, err := c.Secrets(cmd.Context(), p)
					return page.Secrets, page.Next, err
				})
				if err != nil {
					return err
				}

				return a.Show(api.SecretPage{Secrets: all}, nil, func() error { return a.secretTable(all) })
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

func (a *app) secretTable(all []api.Secret) error {
	now := a.Clock.Now()
	t := a.NewTable("NAME", "OF", "SET", "BY", "PROBLEM")
	for i := range all {
		s := &all[i]
		t.Cells(
			table.Cell{Text: s.Name}, table.Cell{Text: s.Subject}, table.Cell{Text: humanize.Ago(s.Updated, now)},
			table.Cell{Text: string(s.By)}, table.Cell{Text: s.Problem, Color: table.Red},
		)
	}

	return a.WriteTable(t, "no secrets", "trainyard secrets set WANDB_API_KEY")
}

func (a *app) removeSecret() *cobra.Command {
	var f secretFlags
	cmd := &cobra.Command{
		Use:   "rm NAME",
		Short: "Delete a secret",
		Args:  exit.Args(1, 1, "name of the secret"),
		Long: `Delete a secret. Queued jobs that ask for it are held until it is set again; those that run keep what
they have.`,
		Example: "  trainyard secrets rm WANDB_API_KEY\n  trainyard secrets rm DEPLOY_KEY --project vision",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				kind, of, err := f.subject(cmd.Context(), cmd, c)
				if err == nil {
					err = c.RemoveSecret(cmd.Context(), kind, of, args[0])
				}
				if err == nil {
					_, err = fmt.Fprintf(a.Stdout, "Deleted secret %s of %s/%s.\n", args[0], kind, of)
				}

				return err
			})
		},
	}

	f.add(cmd)

	return cmd
}

func (a *app) rotateSecretKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Encrypt all secrets with a new master key",
		Args:  exit.NoArgs,
		Long: `Make a new master key in the server's key file and encrypt the data keys of all secrets with it. Earlier
master keys are removed from the file when no secret needs them any more. Copy the file afterwards:
backups of the database from now on need the new one, earlier backups the former one.`,
		Example: "  trainyard secrets rotate-key",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *api.Client) error {
				done, err := c.RotateSecretKey(cmd.Context())
				if err != nil {
					return err
				}

				return a.Show(done, nil, func() error {
					_, err := fmt.Fprintf(a.Stdout, "New master key %s; %s encrypted with it.\n", done.Key,
						humanize.Count(done.Secrets, "secret"))

					return err
				})
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}
