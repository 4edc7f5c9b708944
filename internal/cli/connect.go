package cli

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
)

// The variables that stand in for a login.
const (
	varServer = "TRAINYARD_SERVER"
	varToken  = "TRAINYARD_TOKEN"
	varCA     = "TRAINYARD_CA" // a PEM file, or the PEM text itself
)

// defaultPort is used where an address names none.
const defaultPort = "7443"

// connect returns a client for the yard that was chosen: by --context, else by
// the environment, else the current login.
func (a *app) connect() (*api.Client, error) {
	c, err := a.chosen()
	if err != nil {
		return nil, err
	}
	return open(c)
}

// open returns a client for a yard. Without a pinned CA the machine's own authorities count.
func open(c contexts.Context) (*api.Client, error) {
	var config *tls.Config
	if c.CA != "" {
		var err error
		if config, err = auth.PinnedTLS([]byte(c.CA)); err != nil {
			return nil, err
		}
	}
	return api.NewClient(c.Server, c.Token, config), nil
}

// chosen returns the yard to speak to.
func (a *app) chosen() (contexts.Context, error) {
	file, err := a.logins()
	if err != nil {
		return contexts.Context{}, err
	}
	if a.context != "" {
		c, ok := file.Get(a.context)
		if !ok {
			return c, noContext(a.context)
		}
		return c, nil
	}
	c, ok := file.Get("")
	if server := a.getenv(varServer); server != "" {
		address, err := serverURL(server)
		if err != nil {
			return c, err
		}
		if c, ok = file.ByServer(address); !ok {
			c, ok = contexts.Context{Server: address}, true
		}
		if c.CA, err = a.environCA(c.CA); err != nil {
			return c, err
		}
	}
	if !ok {
		return c, fault.New(fault.Unknown, "not_logged_in", "you are not logged in to a yard").
			WithRemedy("log in with: trainyard login https://HOST:%s, or start a yard here with: trainyard up", defaultPort)
	}
	if token := a.getenv(varToken); token != "" {
		c.Token = strings.TrimSpace(token)
	}
	return c, nil
}

// environCA returns the CA that the environment names, else the one given.
func (a *app) environCA(pinned string) (string, error) {
	value := a.getenv(varCA)
	if value == "" || strings.HasPrefix(value, "-----BEGIN") {
		if value != "" {
			return value, nil
		}
		return pinned, nil
	}
	text, err := os.ReadFile(value)
	if err != nil {
		return "", fault.New(fault.Invalid, "ca_unreadable", "the CA that %s names cannot be read: %v", varCA, err).WithCause(err)
	}
	return string(text), nil
}

// logins reads the file with the logins and warns if others may read it.
func (a *app) logins() (*contexts.File, error) {
	file, err := contexts.Load(a.env.ConfigDir)
	if err == nil && file.Exposed() {
		a.note("warning: others on this machine may read your tokens; mend it with: chmod 600 %s", file.Path())
	}
	return file, err
}

func noContext(name string) error {
	return fault.New(fault.NotFound, "context_not_found", "there is no login called %q", name).
		WithRemedy("list them with: trainyard context")
}

// serverURL makes a full address of what people write: host, host:port or https://host:port.
func serverURL(text string) (string, error) {
	bad := fault.New(fault.Invalid, "address_invalid", "%.80q is not the address of a yard", text).
		WithRemedy("write it as in https://yard.example.org:%s", defaultPort)
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", bad
	}
	if u.Scheme != "https" {
		return "", bad.WithRemedy("a yard speaks https only")
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	return "https://" + net.JoinHostPort(u.Hostname(), port), nil
}

// backoff waits before attempt n (from 1) at what failed, longer each time, and
// reports whether it may be tried.
func backoff(ctx context.Context, n int) bool {
	const first, most = 250 * time.Millisecond, 15 * time.Second
	d := first
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	return clock.Sleep(ctx, min(d, most))
}
