// Package openstack provisions servers of an OpenStack cloud: Nova's servers, reached with a token
// from Keystone, booted from an image in Glance.
//
// It is an adapter of cloud.Provider: when a lease of the yard needs a node, package reconcile
// calls Create here, the server boots with the lease's script, and its agent joins the yard. Nova
// has no request tokens, and it keeps servers that have shut themselves down and servers that could
// not be built; the comments of Create, List and instance say how this package deals with that.
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

// Microversion is the version of Nova's API in use, of the release Stein of 2019. It is the first
// that lists servers in a part of the cloud that does not answer, instead of omitting them; earlier
// ones introduced networks "none" and "auto" (2.37), the flavor's name in a server (2.47), tags at
// creation (2.52) and extra specs in the list of flavors (2.61).
const Microversion = "2.69"

// Nova's limit for user data applies to its base64 form, in bytes.
const maxUserData = 65535

// Provider provisions servers of one OpenStack cloud, in one or more of its regions.
type Provider struct {
	yard    string
	config  Config
	session *session

	settle time.Duration // how long Create waits until a host was found
	poll   time.Duration // how often it checks meanwhile
}

// New returns a provider for a yard. It does not contact the cloud: a cloud that is down must not
// keep the yard from starting.
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

// Name returns the name of this provider in offers.
func (p *Provider) Name() string { return p.config.Name }

// leaseTag is the tag by which the server of a lease is found without reading all servers.
func leaseTag(r *cloud.Request) string { return cloud.TagLease + "=" + string(r.Lease) }

// Create creates a server, or returns the one that the lease already has.
//
// Nova has no request tokens, so Create first looks for a server of the lease. That makes it safe
// to repeat, also after a lost answer. Two calls at the same time may still both find none and
// create one each, and so may a repeated call whose first request is delayed in a proxy. Both
// servers then carry the lease; the yardmaster keeps the one that was reported to it and releases
// the other.
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

	// Nova answers with little more than the name; the rest is known from the request.
	made.Status, made.TaskState, made.Metadata = "BUILD", "scheduling", p.metadata(&r)
	made.Flavor = map[string]any{"original_name": r.Offer.Type}

	return p.settled(ctx, nova, &r, made)
}

// compute returns the Nova client for a region.
func (p *Provider) compute(ctx context.Context, region string) (*gophercloud.ServiceClient, error) {
	if !slices.Contains(p.config.Regions, region) {
		return nil, fault.New(fault.Invalid, "openstack_region", "%s is not configured for region %q", p.Name(), region).
			WithRemedy("configured regions: %s", strings.Join(p.config.Regions, ", "))
	}

	return p.session.service(ctx, "compute", region)
}

// ofLease returns the server of a lease, the oldest if there are several, nil if there is none.
func (p *Provider) ofLease(
	ctx context.Context,
	nova *gophercloud.ServiceClient,
	r *cloud.Request,
) (*servers.Server, error) {
	var oldest *servers.Server
	err := each(ctx, nova, servers.ListOpts{Tags: leaseTag(r)}, func(s *servers.Server) error {
		if s.Metadata[cloud.TagYard] != p.yard || s.Metadata[cloud.TagLease] != string(r.Lease) {
			return nil // another yard numbers its leases in the same way
		}

		if oldest == nil || s.Created.Before(oldest.Created) {
			oldest = s
		}

		return nil
	})

	return oldest, err
}

// settled polls a new server until Nova has found a host for it or failed: Nova accepts a request
// before it looks for a host. A server that could not be built is removed, because Nova keeps it
// and counts it against the quota.
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

		// The server exists, whatever goes wrong from here on; List reports what becomes of it.
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

// userData returns the boot script in the form that Nova expects, and refuses requests that Nova
// would refuse.
func userData(r *cloud.Request) ([]byte, error) {
	if r.Offer.Spot {
		return nil, fault.New(
			fault.Invalid,
			"openstack_spot",
			"OpenStack has no spot servers, but offer %s is for one",
			r.Offer.Name,
		)
	}

	// Encoded here, because the library would take a script that happens to be valid base64 for
	// encoded data.
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

// options returns the properties of the new server.
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

// Terminate ends a server. Nova removes it some time after its answer; List shows when. A server
// that Nova does not know is fault.NotFound: it is gone, unless it was created a moment ago and the
// answer came from a database replica that does not have it yet.
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

// remove terminates a server that is known to have existed.
func remove(ctx context.Context, nova *gophercloud.ServiceClient, server string) error {
	err := servers.Delete(ctx, nova, server).ExtractErr()
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil
	}

	return err
}
