package openstack

import (
	"context"
	"errors"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"trainyard/internal/fault"
)

// session is a login, made when it is first needed and renewed when its token has expired.
type session struct {
	auth   gophercloud.AuthOptions
	access gophercloud.Availability
	region string // from clouds.yaml
	http   http.Client

	turn    chan struct{} // a lock for logging in, for which a context can bound the wait
	client  *gophercloud.ProviderClient
	catalog *tokens.ServiceCatalog
}

// login returns a client with a token, and Keystone's catalogue of services.
func (s *session) login(ctx context.Context) (*gophercloud.ProviderClient, *tokens.ServiceCatalog, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, nil, callFault(ctx, "log in", context.Cause(ctx))
	}

	if s.client != nil {
		return s.client, s.catalog, nil
	}

	client, err := openstack.NewClient(s.auth.IdentityEndpoint)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "openstack_config", "auth_url must be the address of Keystone, got %q",
			s.auth.IdentityEndpoint).
			WithCause(err)
	}

	client.HTTPClient = s.http
	client.UserAgent.Prepend("trainyard")

	if err := openstack.AuthenticateV3(ctx, client, &s.auth, gophercloud.EndpointOpts{}); err != nil {
		return nil, nil, callFault(ctx, "log in", err)
	}

	result, ok := client.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return nil, nil, fault.New(fault.Internal, "openstack_failed", "unexpected response from Keystone")
	}

	catalog, err := result.ExtractServiceCatalog()
	if err != nil {
		return nil, nil, callFault(ctx, "read the service catalog", err)
	}

	s.client, s.catalog = client, catalog

	return client, catalog, nil
}

// versions are the version paths of services for which the catalogue omits them.
var versions = map[string]string{"image": "v2/", "network": "v2.0/"}

// service returns the client for a service of a region. The library's own lookup asks the service
// for its versions without a context; the catalogue has enough information.
func (s *session) service(ctx context.Context, kind, region string) (*gophercloud.ServiceClient, error) {
	client, catalog, err := s.login(ctx)
	if err != nil {
		return nil, err
	}

	opts := gophercloud.EndpointOpts{Region: region, Availability: s.access}
	opts.ApplyDefaults(kind)
	address, err := openstack.V3Endpoint(ctx, client, catalog, opts)

	var missing *gophercloud.ErrEndpointNotFound
	if errors.As(err, &missing) {
		return nil, fault.New(fault.Invalid, "openstack_region", "the cloud has no %s service in region %q", kind, region).
			WithRemedy("see `openstack catalog list` for its regions and interfaces").WithCause(err)
	}

	if err != nil {
		return nil, callFault(ctx, "find the "+kind+" service", err)
	}

	service := &gophercloud.ServiceClient{ProviderClient: client, Endpoint: address, Type: kind}
	if kind == "compute" {
		service.Microversion = Microversion
	}

	if v, ok := versions[kind]; ok {
		service.ResourceBase = address + v
	}

	return service, nil
}
