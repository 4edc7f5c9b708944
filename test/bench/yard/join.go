package yard

import (
	"context"
	"fmt"

	"trainyard/internal/api"
	"trainyard/internal/auth"
)

// Join makes up a machine, lets it join by the token and returns a client with
// its certificate. The request's name and inventory are the caller's.
func (y *Yard) Join(ctx context.Context, token string, req api.JoinRequest) (*api.Client, error) {
	identity, err := auth.NewNodeIdentity(y.ca)
	if err != nil {
		return nil, err
	}

	csr, err := identity.CSR(req.Name)
	if err != nil {
		return nil, err
	}

	req.Capability, req.Token, req.CSR = api.Capability, token, string(csr)
	stranger := api.NewClient(y.url, "", identity.TLS())
	defer stranger.Close()

	reply, err := stranger.Join(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	if err := identity.Install([]byte(reply.Certificate)); err != nil {
		return nil, err
	}

	return api.NewClient(y.url, "", identity.TLS()), nil
}
