package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/tenant"
)

func (a *app) login() *cobra.Command {
	var token, tokenFile, caHash, name string
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Log in to a yard",
		Long: `Log in to a yard and store the login on this machine.

The token comes from --token-file, from the variable TRAINYARD_TOKEN or from a
prompt; "--token -" reads it from standard input. Do not put the token itself on
the command line, where other users of the machine see it. The server's CA is
pinned: a token of tokens create --login and a bootstrap token carry its hash; an
access token does not, so give the hash with --ca-hash, or compare the one that is
shown. It is in the login line that trainyard tokens create printed, and in what
trainyard whoami shows to those who are logged in. Later calls accept no other CA.`,
		Example: `  trainyard login https://yard.example.org:7443 --token-file bootstrap-token
  trainyard login yard.example.org --ca-hash 5f0c... --name lab < token.txt
  trainyard --context lab jobs`,
		Args: exit.Args(1, 1, "server URL, e.g. https://yard.example.org:7443"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.readToken(cmd.Context(), token, tokenFile)
			if err != nil {
				return err
			}

			return a.doLogin(cmd.Context(), args[0], text, strings.ToLower(caHash), name)
		},
	}

	cmd.Flags().StringVar(&token, "token", "", "bootstrap or access token; - reads it from standard input")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`file` with the token")
	cmd.MarkFlagsMutuallyExclusive("token", "token-file")
	cmd.Flags().StringVar(&caHash, "ca-hash", "", "`hash` that the server's CA must have")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the login (default: the server's address)")
	cmd.Flags().BoolVarP(&a.Yes, "yes", "y", false, "trust the CA that the server presents without asking")
	a.OutputFlag(cmd)

	return cmd
}

func (a *app) doLogin(ctx context.Context, address, token, caHash, name string) error {
	server, err := contexts.ServerURL(address)
	if err != nil {
		return err
	}

	parsed, err := auth.Parse(token)
	if err != nil {
		return err
	}

	if parsed.Kind == tenant.JoinToken {
		return fault.New(fault.Invalid, "token_kind", "this is a join token, for nodes").
			WithRemedy("log in with a bootstrap or access token")
	}

	file, err := a.logins()
	if err != nil {
		return err
	}

	known, _ := file.ByServer(server)
	ca, pinned, err := a.pin(ctx, server, parsed.CAHash, caHash, known.CA)
	if err != nil {
		return err
	}

	login := contexts.Context{Name: name, Server: server, Token: token, CA: string(ca)}
	who, err := a.identify(ctx, &login, parsed.Kind)
	if err != nil {
		return err
	}

	if login.Name == "" {
		login.Name = known.Name
	}

	if login.Name == "" {
		login.Name = strings.TrimPrefix(server, "https://")
	}

	file.Put(login)

	if err := file.Save(); err != nil {
		return err
	}

	return a.Show(who, nil, func() error {
		_, err := fmt.Fprintf(a.Stdout, "Logged in to %s as %s (%s).\nPinned the CA %s.\n", server, who.User, who.Role,
			pinned)
		a.Next(
			"trainyard nodes                list the nodes",
			"trainyard run -- hostname       run a first job",
			"trainyard submit job.yaml       submit a job file",
		)

		return err
	})
}

// readToken returns the token from the flags, the environment, standard input or a question.
func (a *app) readToken(ctx context.Context, token, file string) (string, error) {
	if token == "" && file == "" {
		token = a.Getenv(contexts.VarToken)
	}

	if token == "" && file == "" {
		if a.OnTerminal(a.Stdin) {
			return a.Secret(ctx, "Token: ")
		}

		token = contexts.FromStdin
	}

	return contexts.ReadToken(token, file, a.In)
}

// pin fetches the server's CA and makes sure that it is the right one: the one
// whose hash came with the token or the flag, the one pinned before, or one that the person accepts. It returns the
// hash too.
func (a *app) pin(ctx context.Context, server, tokenHash, flagHash, known string) (ca []byte, hash string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, "", fmt.Errorf("read address: %w", err)
	}

	want := tokenHash
	if flagHash != "" {
		if want != "" && want != flagHash {
			return nil, "", fault.New(fault.Denied, "ca_mismatch", "the token belongs to a server with CA %s, expected %s", want,
				flagHash).
				WithRemedy("use a token of the server you log in to")
		}

		want = flagHash
	}

	ca, hash, err = auth.FetchCA(ctx, u.Host, want)
	if err != nil || want != "" || string(ca) == known {
		return ca, hash, err
	}

	if known != "" {
		return nil, "", fault.New(fault.Denied, "ca_changed", "the server at %s has a different CA than at the last login: "+
			"it may be another server or a man-in-the-middle attack", u.Host).
			WithRemedy("ask an admin; if the new CA is right, log in with --ca-hash %s", hash)
	}

	if a.Yes {
		return ca, hash, nil
	}

	if !a.OnTerminal(a.Stdin) || !a.OnTerminal(a.Stderr) {
		return nil, "", fault.New(fault.Denied, "ca_unknown", "cannot verify the server at %s: unknown CA %s", server, hash).
			WithRemedy("use the whole login line that trainyard tokens create printed, or compare the hash with what "+
				"trainyard whoami shows to somebody who is logged in and use: --ca-hash %s", hash)
	}

	a.Note(
		"The server at %s is not known yet. Its CA has the hash\n\n  %s\n\nIt is in the login line that trainyard tokens "+
			"create printed, and in trainyard whoami of anybody who is logged in.",
		u.Host,
		hash,
	)

	answer, err := a.Ask(ctx, "Is it the same? [y/N] ")
	if err != nil {
		return nil, "", err
	}

	answer = strings.ToLower(answer)
	if answer != "y" && answer != "yes" {
		return nil, "", fault.New(fault.Denied, "ca_refused", "the server's CA was not accepted; nothing was sent")
	}

	return ca, hash, nil
}

// identify asks the yard who the token stands for. A bootstrap token is
// exchanged for an access token first.
func (a *app) identify(ctx context.Context, login *contexts.Context, kind tenant.TokenKind) (api.Whoami, error) {
	if kind == tenant.BootstrapToken {
		anonymous := *login
		anonymous.Token = ""
		client, err := open(anonymous)
		if err != nil {
			return api.Whoami{}, err
		}

		defer client.Close()

		given, err := client.Login(ctx, api.LoginRequest{Token: login.Token, Note: "login"})
		if err != nil {
			return api.Whoami{}, err
		}

		login.Token = given.Text
	}

	client, err := open(*login)
	if err != nil {
		return api.Whoami{}, err
	}

	defer client.Close()

	who, err := client.Whoami(ctx)
	login.User = string(who.User)

	return who, err
}
