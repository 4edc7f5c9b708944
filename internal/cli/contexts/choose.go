package contexts

import (
	"net"
	"net/url"
	"os"
	"strings"

	"trainyard/internal/fault"
)

// The variables that stand in for a login.
const (
	VarServer = "TRAINYARD_SERVER"
	VarToken  = "TRAINYARD_TOKEN"
	VarCA     = "TRAINYARD_CA" // a PEM file, or the PEM text itself
)

// DefaultPort is used where an address names none.
const DefaultPort = "7443"

// Choose returns the yard to speak to: the context of this name; with no name
// the one that the environment says; else the current one. A name wins over
// the environment altogether, so that no token goes to another yard than its own.
func (f *File) Choose(name string, getenv func(key string) string) (Context, error) {
	if name != "" {
		c, ok := f.Get(name)
		if !ok {
			return c, NotFound(name)
		}

		return c, nil
	}

	c, ok := f.Get("")

	if server := getenv(VarServer); server != "" {
		address, err := ServerURL(server)
		if err != nil {
			return c, err
		}

		c, ok = f.ByServer(address)
		if !ok {
			c, ok = Context{Server: address}, true
		}

		c.CA, err = environCA(getenv(VarCA), c.CA)
		if err != nil {
			return c, err
		}
	}

	if !ok {
		return c, fault.New(fault.Unknown, "not_logged_in", "you are not logged in to a yard").
			WithRemedy("log in with: trainyard login https://HOST:%s, or start a yard here with: trainyard up", DefaultPort)
	}

	if token := getenv(VarToken); token != "" {
		c.Token = strings.TrimSpace(token)
	}

	return c, nil
}

// environCA returns the CA that the environment gives as a file or as text,
// else the one that is pinned.
func environCA(value, pinned string) (string, error) {
	if value == "" {
		return pinned, nil
	}
	if strings.HasPrefix(value, "-----BEGIN") {
		return value, nil
	}

	text, err := os.ReadFile(value)
	if err != nil {
		return "", fault.New(fault.Invalid, "ca_unreadable", "the CA that %s names cannot be read: %v", VarCA, err).
			WithCause(err)
	}

	return string(text), nil
}

// NotFound is the error for a name that no context has.
func NotFound(name string) error {
	return fault.New(fault.NotFound, "context_not_found", "there is no login called %q", name).
		WithRemedy("list them with: trainyard context")
}

// ServerURL makes a full address of what people write: host, host:port or https://host:port.
func ServerURL(text string) (string, error) {
	bad := fault.New(fault.Invalid, "address_invalid", "%.80q is not the address of a yard", text).
		WithRemedy("write it as in https://yard.example.org:%s", DefaultPort)

	if !strings.Contains(text, "://") {
		text = "https://" + text
	}

	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return "", bad
	}

	if u.Scheme != "https" {
		return "", bad.WithRemedy("a yard speaks https only")
	}

	port := u.Port()
	if port == "" {
		port = DefaultPort
	}

	return "https://" + net.JoinHostPort(u.Hostname(), port), nil
}
