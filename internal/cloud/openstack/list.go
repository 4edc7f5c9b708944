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

// each calls fn for every server of the project that matches the options, page by page.
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

// List returns the servers of this yard in all regions. Nova cannot filter servers by metadata, so
// all servers of the project are read. If a region or a part of it does not answer, List fails: an
// incomplete list would mean that machines are gone.
//
// A server that could not be built, if that became known only after Create had returned, is removed
// here and listed as gone with the reason. Nova would keep it for ever.
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
				// The server still exists, and the next List tries again to remove it; Why says what
				// is wrong.
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

// instance converts a server. A server that has shut itself down, as the dead man's switch of a
// node does, is off but still exists: its memory and GPUs stay reserved, and billing continues. The
// yard sees it as up, with the reason, until it is terminated.
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

// failed reports whether a server could not be built. A server that ran before and is in error now
// may still run: an action on it failed, and its agent knows more about it than Nova does.
func failed(s *servers.Server) bool { return s.Status == "ERROR" && s.LaunchedAt.IsZero() }

// explained returns a server that could not be built, with the reason. Nova records the failure a
// moment before the reason, so it may have to be read again.
func (p *Provider) explained(ctx context.Context, nova *gophercloud.ServiceClient, s *servers.Server) *servers.Server {
	if !failed(s) || s.Fault.Message != "" || !clock.Sleep(ctx, p.poll) {
		return s
	}
	if again, err := servers.Get(ctx, nova, s.ID).Extract(); err == nil && failed(again) {
		return again
	}

	return s // it has failed even if the reason is unknown
}

// undecided reports whether Nova is still looking for a host for a new server.
func undecided(s *servers.Server) bool { return s.Status == "BUILD" && s.TaskState == "scheduling" }

// why says in Nova's words why a server is not simply active.
func why(s *servers.Server) string {
	text := strings.ToLower(s.Status)
	if s.Fault.Message != "" {
		text += ": " + s.Fault.Message
	}

	return text
}

// address returns an address of a server: the one that its owner set, or a floating one, or any.
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

			// The smallest, because Nova returns them in no order and the same server must always
			// have the same address.
			if fixed == "" || addr < fixed {
				fixed = addr
			}
		}
	}

	return fixed
}
