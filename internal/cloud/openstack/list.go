package openstack

import (
	"context"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// each calls fn for every server of the project that the options let through, page by page.
func each(
	ctx context.Context,
	nova *gophercloud.ServiceClient,
	opts servers.ListOpts,
	fn func(*servers.Server) error,
) error {
	err := servers.List(nova, opts).EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
		all, err := servers.ExtractServers(page)
		if err != nil {
			return false, err
		}

		for i := range all {
			if err := fn(&all[i]); err != nil {
				return false, err
			}
		}

		return true, nil
	})
	if err != nil {
		return callFault(ctx, "list servers", err)
	}

	return nil
}

// List returns the servers of this yard in all regions. Nova cannot be asked for servers by
// their metadata, so all of the project's are read. If one region or a part of it does
// not answer there is no list: one with holes would say that machines are gone.
//
// A server that could not be built is removed here, if that came out only after Create had
// answered, and listed as gone with the reason. Nova would keep it for ever.
func (p *Provider) List(ctx context.Context) ([]cloud.Instance, error) {
	found := []cloud.Instance{}
	for _, region := range p.config.Regions {
		nova, err := p.compute(ctx, region)
		if err != nil {
			return nil, err
		}

		err = each(ctx, nova, servers.ListOpts{}, func(s *servers.Server) error {
			if s.Status == "UNKNOWN" && s.Metadata == nil {
				return fault.New(fault.Unavailable, "openstack_partial",
					"a cell of region %s is not responding, so server %s has no details", region, s.ID)
			}

			if s.Metadata[cloud.TagYard] != p.yard {
				return nil
			}

			s = p.explained(ctx, nova, s)
			one := p.instance(region, s)
			if one.State == cloud.Gone && failed(s) && remove(ctx, nova, s.ID) != nil {
				// It is there still, and the next list tries again; Why tells what is wrong with it.
				one.State, one.Ended = cloud.Ending, time.Time{}
			}

			found = append(found, one)

			return nil
		})
		if err != nil {
			return nil, err
		}
	}

	return found, nil
}

// instance is a server as the yard sees it. A server that has shut itself down, as the dead
// man's switch of a node does, is off and still there: its memory and GPUs stay taken, and
// whoever bills goes on. It is up for the yard, with the reason, until it is ended.
func (p *Provider) instance(region string, s *servers.Server) cloud.Instance {
	one := cloud.Instance{
		ID: s.ID, Lease: id.Lease(s.Metadata[cloud.TagLease]), Region: region, Zone: s.AvailabilityZone,
		State: cloud.Up, Address: address(s), Launched: s.LaunchedAt, Billed: -1,
	}

	one.Type, _ = s.Flavor["original_name"].(string)
	if one.Launched.IsZero() {
		one.Launched = s.Created
	}

	switch s.Status {
	case "ACTIVE":
	case "BUILD":
		one.State = cloud.Pending
	case "DELETED", "SOFT_DELETED":
		one.State, one.Ended = cloud.Gone, s.TerminatedAt
	default:
		one.Why = why(s)
	}

	switch {
	case s.TaskState == "deleting" || s.TaskState == "soft-deleting":
		one.State = cloud.Ending
	case failed(s):
		one.State, one.Ended = cloud.Gone, s.Updated
	}

	return one
}

// failed reports whether a server could not be built. One that ran before and is in error now may
// still run: an action on it went wrong, and its agent tells more than Nova does.
func failed(s *servers.Server) bool { return s.Status == "ERROR" && s.LaunchedAt.IsZero() }

// explained returns a server that could not be built with the reason: Nova writes down that it
// failed a moment before it writes why.
func (p *Provider) explained(ctx context.Context, nova *gophercloud.ServiceClient, s *servers.Server) *servers.Server {
	if !failed(s) || s.Fault.Message != "" || !clock.Sleep(ctx, p.poll) {
		return s
	}
	if again, err := servers.Get(ctx, nova, s.ID).Extract(); err == nil && failed(again) {
		return again
	}

	return s // without the reason it has failed nevertheless
}

// undecided reports whether it is open if there is a host for a new server: while one is looked for.
func undecided(s *servers.Server) bool { return s.Status == "BUILD" && s.TaskState == "scheduling" }

// why says in Nova's words why a server is not simply active.
func why(s *servers.Server) string {
	text := strings.ToLower(s.Status)
	if s.Fault.Message != "" {
		text += ": " + s.Fault.Message
	}

	return text
}

// address returns an address of a server: that which its owner set, a floating one, or any.
func address(s *servers.Server) string {
	if s.AccessIPv4 != "" {
		return s.AccessIPv4
	}

	fixed := ""
	for _, nics := range s.Addresses {
		list, _ := nics.([]any)
		for _, nic := range list {
			a, _ := nic.(map[string]any)
			addr, _ := a["addr"].(string)
			if kind, _ := a["OS-EXT-IPS:type"].(string); kind == "floating" {
				return addr
			}

			// The least, because they come in no order and the same server must look the same twice.
			if fixed == "" || addr < fixed {
				fixed = addr
			}
		}
	}

	return fixed
}
