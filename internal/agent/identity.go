package agent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// renewalCheck is how often the certificate's age is looked at.
const renewalCheck = time.Minute

// join makes the machine a node, unless it is one already. Its key is saved
// before it asks, so that an answer that is lost does not leave two nodes.
func (a *Agent) join(ctx context.Context) error {
	identity, err := auth.LoadNodeIdentity(a.path("identity"))
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}

	if identity == nil || identity.Node() == "" {
		identity, err = a.joinWithToken(ctx, identity)
		if err != nil {
			return err
		}
	} else if err := a.checkSameServer(identity); err != nil {
		return err
	}

	if err := a.saveMemory(a.memory.ContactLease); err != nil {
		return err
	}

	a.identity = identity
	a.client.Store(api.NewClient(a.cfg.Server, "", identity.TLS()))

	return nil
}

// checkSameServer refuses a join token of another yard than the one joined before.
func (a *Agent) checkSameServer(identity *auth.NodeIdentity) error {
	if a.cfg.JoinToken == "" {
		return nil
	}

	token, err := auth.Parse(a.cfg.JoinToken)
	if err != nil {
		return err
	}

	if token.CAHash != identity.CAHash() {
		return fault.New(fault.Conflict, "joined_elsewhere", "this machine has already joined another server as %s",
			identity.Node()).
			WithRemedy("use another data directory, or remove %s to leave that server", a.path("identity"))
	}

	return nil
}

// joinWithToken joins by the token. half is the identity of a join that was not
// finished, nil if there is none.
func (a *Agent) joinWithToken(ctx context.Context, half *auth.NodeIdentity) (*auth.NodeIdentity, error) {
	token, err := a.joinToken()
	if err != nil {
		return nil, err
	}

	identity := half

	if half == nil || half.CAHash() != token.CAHash {
		addr, err := serverAddr(a.cfg.Server)
		if err != nil {
			return nil, err
		}

		ca, _, err := auth.FetchCA(ctx, addr, token.CAHash)
		if err != nil {
			return nil, err
		}

		identity, err = auth.NewNodeIdentity(ca)
		if err != nil {
			return nil, err
		}
		if err := identity.Save(a.path("identity")); err != nil {
			return nil, err
		}
	}

	name, err := a.nodeName()
	if err != nil {
		return nil, err
	}

	csr, err := identity.CSR(name)
	if err != nil {
		return nil, err
	}

	yard := api.NewClient(a.cfg.Server, "", identity.TLS())
	defer yard.Close()

	renew := a.nodeLease.renewal()

	reply, err := yard.Join(ctx, api.JoinRequest{
		Capability: api.Capability,
		Token:      strings.TrimSpace(a.cfg.JoinToken),
		Name:       name,
		CSR:        string(csr),
		Inventory:  a.inventory(),
	})
	if err != nil {
		return nil, err
	}
	if err := identity.Install([]byte(reply.Certificate)); err != nil {
		return nil, err
	}
	if err := identity.Save(a.path("identity")); err != nil {
		return nil, err
	}

	if reply.LeaseLeft == nil {
		err = a.nodeLease.clear() // of an earlier life of this data folder
	} else {
		err = renew(reply.LeaseLeft)
	}

	if err != nil {
		return nil, err
	}

	a.log.Info("joined the server", "node", reply.Node, "server", a.cfg.Server, "certificate_until", reply.Expires)

	return identity, nil
}

func (a *Agent) joinToken() (auth.Parsed, error) {
	if a.cfg.JoinToken == "" {
		return auth.Parsed{}, fault.New(fault.Invalid, "join_token_missing",
			"join token is missing and this machine has not joined a server yet").
			WithField("token").
			WithRemedy("create one with: trainyard tokens create --join")
	}

	token, err := auth.Parse(a.cfg.JoinToken)
	if err != nil {
		return token, err
	}

	if token.Kind != tenant.JoinToken {
		return token, fault.New(fault.Invalid, "token_kind_wrong", "token must be a join token, got a token for %s",
			token.Kind).
			WithField("token").
			WithRemedy("create one with: trainyard tokens create --join")
	}

	return token, nil
}

// serverAddr is the host and port of the yard's URL.
func serverAddr(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return "", fault.New(fault.Invalid, "server_invalid", "server must be an https URL, got %.80q", server).
			WithField("server").WithRemedy("write it as https://yard.example.org:7443").WithCause(err)
	}

	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), nil
}

// nodeName is the configured name, or what of the host's can be one.
func (a *Agent) nodeName() (string, error) {
	if a.cfg.Name != "" {
		if !id.Name(a.cfg.Name) {
			return "", fault.New(fault.Invalid, "node_name_invalid", "invalid node name %.80q", a.cfg.Name).
				WithField("name").
				WithRemedy("use up to %d lower-case letters, digits, '-', '_' and '.', with a letter or digit at both ends",
					id.MaxName)
		}

		return a.cfg.Name, nil
	}

	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("get host name: %w", err)
	}

	short, _, _ := strings.Cut(strings.ToLower(host), ".")
	if id.Name(short) {
		return short, nil
	}

	return "node", nil
}

// renewLoop gets a new certificate when two thirds of the old one's life are over.
func (a *Agent) renewLoop(ctx context.Context) {
	clock.Every(ctx, a.clk, renewalCheck, func(now time.Time) {
		if a.identity.NeedsRenewal(now) {
			a.noteProblem("certificate renewal", a.renew(ctx))
		}
	})
}

// renew asks for a certificate and makes all connections anew: one that is open
// goes on to present the old certificate.
func (a *Agent) renew(ctx context.Context) error {
	csr, err := a.identity.CSR(string(a.identity.Node()))
	if err != nil {
		return err
	}

	old := a.client.Load()
	reply, err := old.Renew(ctx, api.RenewRequest{CSR: string(csr)})
	if err != nil {
		return err
	}
	if err := a.identity.Install([]byte(reply.Certificate)); err != nil {
		return err
	}

	a.client.Store(api.NewClient(a.cfg.Server, "", a.identity.TLS()))
	old.Close()
	a.newStream()
	a.log.Info("certificate renewed", "certificate_until", reply.Expires)

	return a.identity.Save(a.path("identity"))
}
