package openstack

import (
	"context"
	"fmt"
	"regexp"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"trainyard/internal/fault"
)

// Names are looked up for every server and not cached: a rebuilt image has the same name and
// another ID, and servers are not created often.

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}$`)

// allFlavors returns the flavors that the project may use.
func allFlavors(ctx context.Context, nova *gophercloud.ServiceClient) ([]flavors.Flavor, error) {
	var all []flavors.Flavor

	err := flavors.ListDetail(nova, nil).EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
		some, err := flavors.ExtractFlavors(page)
		all = append(all, some...)
		return true, err
	})
	if err != nil {
		return nil, callFault(ctx, "list flavors", err)
	}

	return all, nil
}

// flavor returns the id of a flavor by its name, which is unique in a cloud.
func (p *Provider) flavor(ctx context.Context, nova *gophercloud.ServiceClient, name string) (string, error) {
	all, err := allFlavors(ctx, nova)
	if err != nil {
		return "", err
	}

	for i := range all {
		if all[i].Name == name {
			return all[i].ID, nil
		}
	}

	return "", fault.New(fault.Invalid, "openstack_no_flavor", "%s has no flavor %q for this project", p.Name(), name).
		WithRemedy("see `openstack flavor list`")
}

// image returns the ID of the image from which servers boot.
func (p *Provider) image(ctx context.Context, region string) (string, error) {
	name := p.config.Image
	if uuid.MatchString(name) {
		return name, nil
	}

	glance, err := p.session.service(ctx, "image", region)
	if err != nil {
		return "", err
	}

	// Newest first: an image that is rebuilt every week shares its name with the old ones.
	var found []images.Image

	err = images.List(glance, images.ListOpts{Name: name, Status: images.ImageStatusActive, Sort: "created_at:desc",
		Limit: 1}).
		EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
			var err error
			found, err = images.ExtractImages(page)
			return false, err
		})
	if err != nil {
		return "", callFault(ctx, fmt.Sprintf("find image %s", name), err)
	}

	if len(found) == 0 {
		return "", fault.New(fault.Invalid, "openstack_no_image", "%s has no image %q that this project may use in region "+
			"%s", p.Name(), name, region).
			WithField("image").
			WithRemedy("see `openstack image list`")
	}

	return found[0].ID, nil
}

// network returns the value that Nova expects for networks: "auto", "none" or a list of IDs.
func (p *Provider) network(ctx context.Context, region string) (any, error) {
	name := p.config.Network
	switch {
	case name == "":
		return "auto", nil
	case name == "auto" || name == "none":
		return name, nil
	case uuid.MatchString(name):
		return []servers.Network{{UUID: name}}, nil
	}

	neutron, err := p.session.service(ctx, "network", region)
	if err != nil {
		return nil, err
	}

	var found []networks.Network
	err = networks.List(neutron, networks.ListOpts{Name: name}).
		EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
			some, err := networks.ExtractNetworks(page)
			found = append(found, some...)
			return true, err
		})

	switch {
	case err != nil:
		return nil, callFault(ctx, fmt.Sprintf("find network %s", name), err)
	case len(found) == 0:
		return nil, fault.New(fault.Invalid, "openstack_no_network",
			"%s has no network %q that this project sees in region %s", p.Name(), name, region).
			WithField("network").
			WithRemedy("see `openstack network list`, or write \"none\" or \"auto\"")
	case len(found) > 1:
		return nil, fault.New(fault.Invalid, "openstack_two_networks", "%s has %d networks %q in region %s", p.Name(),
			len(found), name, region).
			WithField("network").
			WithRemedy("give its id")
	}

	return []servers.Network{{UUID: found[0].ID}}, nil
}
