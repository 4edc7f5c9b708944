// Package openstack provisions servers of an OpenStack cloud: Nova's servers, reached with a
// token from Keystone, booted from an image in Glance.
//
// It is an adapter of cloud.Provider: where the yard's leases say that a node is wanted,
// the desk calls Create here, the server boots with the lease's script and its agent
// joins the yard. Nova has no request tokens, keeps servers that have shut themselves down
// and those that could not be built; how this package deals with each is told at
// Create, List and instance.
package openstack

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

// Microversion is the version of Nova's API that is spoken, of the release Stein of 2019.
// It is the first that shows servers in a part of the cloud that does not answer, instead of
// leaving them out; earlier ones brought networks "none" and "auto" (2.37), the flavor's
// name in a server (2.47), tags at creation (2.52) and extra specs in the list of flavors (2.61).
const Microversion = "2.69"

// Nova's limit for user data is on its base64 form.
const maxUserData = 65535

// Provider provisions servers of one OpenStack cloud, in one or more of its regions.
type Provider struct {
	yard    string
	config  Config
	session *session

	settle time.Duration // how long Create waits to learn whether a host was found
	poll   time.Duration // how often it looks meanwhile
}

// New returns a provider for a yard. Nobody is asked yet: a cloud that is down must not keep
// the yard from starting.
func New(yard string, c Config) (*Provider, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}

	if c.Name == "" {
		c.Name = "openstack"
	}

	if len(c.Regions) == 0 {
		c.Regions = []string{s.region}
	}

	switch {
	case yard == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "yard is required: servers are tagged with it")
	case c.Image == "":
		return nil, fault.New(fault.Invalid, "openstack_config", "image is required").
			WithField("image").WithRemedy("set image to one of `openstack image list`")
	}

	return &Provider{yard: yard, config: c, session: s, settle: 20 * time.Second, poll: time.Second}, nil
}

// Name returns the name under which offers mean this provider.
func (p *Provider) Name() string { return p.config.Name }

// leaseTag is the tag by which the server of a lease is found without reading all servers.
func leaseTag(r *cloud.Request) string { return cloud.TagLease + "=" + string(r.Lease) }

// Create makes a server, or returns the one that the lease has.
//
// Nova knows no request tokens, so it is asked first whether the lease has a server. That
// makes asking again after an answer, or after one that was lost, harmless. Two that
// ask at the same moment may still both find none and make one each, and so may one whose
// first request sits in a proxy while it asks again. Both servers then carry the
// lease; the yardmaster keeps the one that it was told of and gives the other back.
func (p *Provider) Create(ctx context.Context, r cloud.Request) (cloud.Instance, error) {
	script, err := userData(&r)
	if err != nil {
		return cloud.Instance{}, err
	}

	r.Offer.Region = cmp.Or(r.Offer.Region, p.config.Regions[0])
	nova, err := p.compute(ctx, r.Offer.Region)
	if err != nil {
		return cloud.Instance{}, err
	}

	have, err := p.ofLease(ctx, nova, &r)
	if err != nil {
		return cloud.Instance{}, err
	}
	if have != nil {
		return p.settled(ctx, nova, &r, have)
	}

	opts, err := p.options(ctx, nova, &r, script)
	if err != nil {
		return cloud.Instance{}, err
	}

	made, err := servers.Create(ctx, nova, opts, nil).Extract()
	if err != nil {
		return cloud.Instance{}, createFault(ctx, err)
	}

	if made.ID == "" {
		return cloud.Instance{}, fault.New(
			fault.Unavailable,
			"openstack_failed",
			"OpenStack accepted the server but returned no id",
		)
	}

	// Nova answers with little more than the name; the rest is known from what was asked.
	made.Status, made.TaskState, made.Metadata = "BUILD", "scheduling", p.metadata(&r)
	made.Flavor = map[string]any{"original_name": r.Offer.Type}

	return p.settled(ctx, nova, &r, made)
}

// compute returns Nova of a region.
func (p *Provider) compute(ctx context.Context, region string) (*gophercloud.ServiceClient, error) {
	if !slices.Contains(p.config.Regions, region) {
		return nil, fault.New(fault.Invalid, "openstack_region", "%s is not configured for region %q", p.Name(), region).
			WithRemedy("configured regions: %s", strings.Join(p.config.Regions, ", "))
	}

	return p.session.service(ctx, "compute", region)
}

// ofLease returns the server that the lease has, the oldest if there are several, nil if none.
func (p *Provider) ofLease(
	ctx context.Context,
	nova *gophercloud.ServiceClient,
	r *cloud.Request,
) (*servers.Server, error) {
	var oldest *servers.Server
	err := each(ctx, nova, servers.ListOpts{Tags: leaseTag(r)}, func(s *servers.Server) error {
		if s.Metadata[cloud.TagYard] != p.yard || s.Metadata[cloud.TagLease] != string(r.Lease) {
			return nil // another yard counts its leases too
		}

		if oldest == nil || s.Created.Before(oldest.Created) {
			oldest = s
		}

		return nil
	})

	return oldest, err
}

// settled looks at a new server until a host was found for it or none: Nova accepts a
// request before it has looked for one. What could not be built is removed, because Nova
// keeps it, and it counts against the quota.
func (p *Provider) settled(
	ctx context.Context,
	nova *gophercloud.ServiceClient,
	r *cloud.Request,
	s *servers.Server,
) (cloud.Instance, error) {
	wait, cancel := context.WithTimeout(ctx, p.settle)
	defer cancel()

	for undecided(s) {
		now, err := servers.Get(wait, nova, s.ID).Extract()
		if err == nil {
			s = now
		}

		// The server is there, whatever else goes wrong now: what becomes of it is told by List.
		if undecided(s) && !clock.Sleep(wait, p.poll) {
			break
		}
	}

	if !failed(s) {
		return p.instance(r.Offer.Region, s), nil
	}

	s = p.explained(ctx, nova, s)
	if err := remove(ctx, nova, s.ID); err != nil {
		return cloud.Instance{}, fault.New(fault.Unavailable, "openstack_failed",
			"server %s could not be built (%s) and could not be deleted", s.ID, why(s)).WithCause(err)
	}

	return cloud.Instance{}, buildFault(s, r)
}

// userData returns the boot script as Nova wants it, and refuses what need not be asked for.
func userData(r *cloud.Request) ([]byte, error) {
	if r.Offer.Spot {
		return nil, fault.New(
			fault.Invalid,
			"openstack_spot",
			"OpenStack has no spot servers, but offer %s is for one",
			r.Offer.Name,
		)
	}

	// Encoded here, because the library takes a script that could be base64 for one that is.
	data := base64.StdEncoding.AppendEncode(nil, []byte(r.Boot.Script))
	if len(data) > maxUserData {
		return nil, fault.New(
			fault.Invalid,
			"openstack_user_data",
			"the boot script must have at most %[2]d bytes, got %[1]d",
			len(r.Boot.Script),
			maxUserData/4*3,
		)
	}

	return data, nil
}

// options says what the new server is.
func (p *Provider) options(
	ctx context.Context,
	nova *gophercloud.ServiceClient,
	r *cloud.Request,
	script []byte,
) (servers.CreateOptsBuilder, error) {
	flavor, err := p.flavor(ctx, nova, r.Offer.Type)
	if err != nil {
		return nil, err
	}

	image, err := p.image(ctx, r.Offer.Region)
	if err != nil {
		return nil, err
	}

	network, err := p.network(ctx, r.Offer.Region)
	if err != nil {
		return nil, err
	}

	opts := servers.CreateOpts{
		Name: r.Name, FlavorRef: flavor, ImageRef: image, Networks: network,
		SecurityGroups: p.config.SecurityGroups, AvailabilityZone: r.Offer.Zone,
		Metadata: p.metadata(r), Tags: []string{leaseTag(r)}, UserData: script,
	}

	if p.config.ConfigDrive {
		opts.ConfigDrive = &p.config.ConfigDrive
	}

	return keypairs.CreateOptsExt{CreateOptsBuilder: opts, KeyName: p.config.KeyPair}, nil
}

func (p *Provider) metadata(r *cloud.Request) map[string]string {
	return map[string]string{
		cloud.TagYard:  p.yard,
		cloud.TagLease: string(r.Lease),
		cloud.TagUntil: r.Until.UTC().Format(time.RFC3339),
	}
}

// Terminate ends a server. Nova removes it a while after it has answered; List tells when.
// One that Nova does not know is fault.NotFound: it is gone, unless it was made
// a moment ago and this answer came from a database that has not heard of it.
func (p *Provider) Terminate(ctx context.Context, region, instance string) error {
	nova, err := p.compute(ctx, cmp.Or(region, p.config.Regions[0]))
	if err != nil {
		return err
	}

	err = servers.Delete(ctx, nova, instance).ExtractErr()
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return fault.New(fault.NotFound, "openstack_no_server", "%s has no server %s", p.Name(), instance).WithCause(err)
	}
	if err != nil {
		return callFault(ctx, fmt.Sprintf("delete server %s", instance), err)
	}

	return nil
}

// remove ends a server of which it is known that it was there.
func remove(ctx context.Context, nova *gophercloud.ServiceClient, server string) error {
	err := servers.Delete(ctx, nova, server).ExtractErr()
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil
	}

	return err
}
