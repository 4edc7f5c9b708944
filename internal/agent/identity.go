package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
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

		// The address is stored before the first report, so that the next start needs no flag.
		if err := a.saveMemory(memory{Server: a.cfg.Server}); err != nil {
			return err
		}
	} else {
		if err := a.checkSameServer(identity); err != nil {
			return err
		}
		if err := a.joinIfExpired(ctx, identity); err != nil {
			return err
		}

		if a.cfg.Name != "" && a.cfg.Name != string(identity.Node()) {
			a.log.Warn("this machine has joined as a node already and keeps its name", "node", identity.Node(),
				"requested", a.cfg.Name, "remedy", "to join under another name, start with an empty data directory and a join "+
					"token, then remove the old node")
		}
	}

	a.identity = identity
	a.servers = newServers(a.cfg.Server, a.memory.Server, a.memory.Servers)
	a.client.Store(a.newClient())

	return nil
}

// joinIfExpired gets a new certificate with the join token, if there is one and the certificate has expired: with its
// own key the machine is the same node as before. A server that is away is not a failure; renewLoop tries again.
func (a *Agent) joinIfExpired(ctx context.Context, identity *auth.NodeIdentity) error {
	if a.cfg.JoinToken == "" || !identity.Expired(a.clk.Now()) {
		return nil
	}

	_, err := a.joinWithToken(ctx, identity)
	if fault.KindOf(err) == fault.Unavailable {
		a.noteProblem("certificate renewal", err)
		return nil
	}

	return err
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

// joinWithToken joins by the token. old is the identity of a join that was not finished or whose certificate has
// expired, nil if there is none.
func (a *Agent) joinWithToken(ctx context.Context, old *auth.NodeIdentity) (*auth.NodeIdentity, error) {
	token, err := a.joinToken()
	if err != nil {
		return nil, err
	}

	identity := old

	if old == nil || old.CAHash() != token.CAHash {
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

	name := string(identity.Node())
	if name == "" {
		name, err = a.nodeName()
		if err != nil {
			return nil, err
		}
	}

	csr, err := identity.CSR(name)
	if err != nil {
		return nil, err
	}

	yard := api.NewClient(a.cfg.Server, "", identity.JoinTLS()).As(&a.process)
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

	if reply.Notice != "" {
		a.log.Warn("the server knows this machine", "notice", reply.Notice)
	}

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

// renewLoop gets a new certificate when two thirds of the old one's life are over. One that has expired needs the join
// token; whether it has is decided by the server's clock, so without a token the renewal is tried all the same.
func (a *Agent) renewLoop(ctx context.Context) {
	for ctx.Err() == nil {
		now := a.clk.Now()
		expired := a.identity.Expired(now) || a.expired.Load()

		switch {
		case expired && a.cfg.JoinToken != "":
			a.noteProblem("certificate renewal", a.rejoin(ctx))
		case expired || a.identity.NeedsRenewal(now):
			a.noteProblem("certificate renewal", a.renew(ctx))
		}

		clock.Wait(ctx, renewalCheck, a.renewSoon)
	}
}

// rejoin gets a new certificate with the join token.
func (a *Agent) rejoin(ctx context.Context) error {
	if _, err := a.joinWithToken(ctx, a.identity); err != nil {
		return err
	}

	a.reconnect()

	return nil
}

// reconnect makes all connections anew: one that is open goes on to the address that was tried before, and presents
// the old certificate.
func (a *Agent) reconnect() {
	a.expired.Store(false)
	old := a.client.Swap(a.newClient())
	old.Close()
	a.newStream()
}

// expiredAlert is how Go's TLS prints the alert with which a server refuses an expired certificate.
const expiredAlert = "tls: expired certificate"

// explain replaces an error that comes from the node's expired certificate by one that says so and what to do: to a
// person, a handshake that fails looks like a server that is not there.
func (a *Agent) explain(err error) error {
	if err == nil || a.client.Load() == nil { // it has not joined yet
		return err
	}

	alert := strings.Contains(err.Error(), expiredAlert)
	if alert && !a.expired.Swap(true) {
		notify(a.renewSoon)
	}

	lapsed := a.identity.Expired(a.clk.Now()) && isUnreachable(err) && !errors.Is(err, syscall.ECONNREFUSED)
	if !alert && !lapsed {
		return err
	}

	return fault.New(fault.Unknown, "node_certificate_expired",
		"the certificate of node %s was valid until %s and the server does not accept it any more",
		a.identity.Node(), a.identity.Expires().UTC().Format(time.RFC3339)).
		WithRemedy("check this machine's clock; if it is right, create a join token (trainyard tokens create --join) and "+
			"start the agent with: trainyard agent join %s --token-file FILE; the node keeps its name and its runs",
			a.cfg.Server).
		WithCause(err)
}

// isUnreachable reports whether no answer of the server came back.
func isUnreachable(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == "unreachable"
}

// renew asks for a certificate for a new key over a connection that the old one makes, so that a key that was stolen is
// worth nothing after the next renewal. The new identity is saved before it is used: the first use of it ends the old
// one.
func (a *Agent) renew(ctx context.Context) error {
	next, err := a.identity.Successor()
	if err != nil {
		return err
	}

	csr, err := next.CSR(string(a.identity.Node()))
	if err != nil {
		return err
	}

	proof, err := a.identity.Prove(csr)
	if err != nil {
		return err
	}

	reply, err := a.client.Load().Renew(ctx, api.RenewRequest{CSR: string(csr), Proof: proof})
	if err != nil {
		return err
	}
	if err := next.Install([]byte(reply.Certificate)); err != nil {
		return err
	}
	if err := next.Save(a.path("identity")); err != nil {
		return err
	}

	a.identity.Become(next)
	a.reconnect()
	a.log.Info("certificate renewed", "certificate_until", reply.Expires)

	return nil
}
