package cli

import (
	"crypto/tls"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli/contexts"
)

// connect returns a client for the yard that was chosen: by --context, else by
// the environment, else the current login.
func (a *app) connect() (*api.Client, error) {
	file, err := a.logins()
	if err != nil {
		return nil, err
	}

	c, err := file.Choose(a.context, a.Getenv)
	if err != nil {
		return nil, err
	}

	client, err := open(c)
	if err != nil {
		return nil, err
	}

	client.UseServers(c.Servers, func(servers []string) {
		if err := a.remember(c, servers); err != nil {
			a.Note("warning: the addresses of the other servers of the yard could not be stored: %v", err)
		}
	})

	client.OnDemo(func() { a.Note("demo yard: its people, nodes, prices and jobs are simulated") })

	return client, nil
}

// pinnedHash returns the hash of the CA that is pinned for the yard that was chosen, "" if none is.
func (a *app) pinnedHash() (string, error) {
	file, err := a.logins()
	if err != nil {
		return "", err
	}

	c, err := file.Choose(a.context, a.Getenv)
	if err != nil || c.CA == "" {
		return "", err
	}

	return auth.PinnedHash([]byte(c.CA))
}

// open returns a client for a yard. Without a pinned CA the machine's own authorities count.
func open(c contexts.Context) (*api.Client, error) {
	var config *tls.Config

	if c.CA != "" {
		var err error
		config, err = auth.PinnedTLS([]byte(c.CA))
		if err != nil {
			return nil, err
		}
	}

	return api.NewClient(c.Server, c.Token, config), nil
}

// remember stores which servers a yard has with its login, so that it is reached when one of them is down.
func (a *app) remember(c contexts.Context, servers []string) error {
	if c.Name == "" {
		return nil
	}

	file, err := contexts.Load(a.ConfigDir)
	if err != nil {
		return err
	}

	stored, ok := file.Get(c.Name)
	if !ok || stored.Server != c.Server {
		return nil // it was changed meanwhile
	}

	stored.Servers = servers
	file.Put(stored)

	return file.Save()
}

// logins reads the file with the logins and warns if others may read it.
func (a *app) logins() (*contexts.File, error) {
	file, err := contexts.Load(a.ConfigDir)
	if err == nil && file.Exposed() {
		a.Note("warning: other users of this machine can read your tokens; fix it with: chmod 600 %s", file.Path())
	}

	return file, err
}

// withClient calls fn with a client for the chosen yard.
func (a *app) withClient(fn func(*api.Client) error) error {
	client, err := a.connect()
	if err != nil {
		return err
	}

	defer client.Close()

	return fn(client)
}
