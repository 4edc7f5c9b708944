package aws

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// page is how many machines are asked for at a time.
const page = 100

// Terminate ends a machine. One that Amazon does not know gives an error of kind
// fault.NotFound: it ended more than an hour ago, or it is so new that Amazon has not
// caught up. The caller knows how old it is.
func (p *Provider) Terminate(ctx context.Context, region, instance string) error {
	doing := "terminate " + instance + " in " + region
	if err := ctx.Err(); err != nil {
		return unclear(ctx, doing, err)
	}

	if region == "" || instance == "" {
		return fault.New(
			fault.Invalid,
			"no_such_machine",
			"region and instance id must not be empty, got %q and %q",
			region,
			instance,
		)
	}

	_, err := p.region(region).client.TerminateInstances(
		ctx,
		&ec2.TerminateInstancesInput{InstanceIds: []string{instance}},
		p.plain,
	)

	return translate(ctx, doing, err)
}

// List returns the machines of this yard in all regions, those that ended within about
// the last hour too. If one region does not answer there is no list: a machine that is
// missing from it must be gone.
func (p *Provider) List(ctx context.Context) ([]cloud.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, unclear(ctx, "list instances", err)
	}

	lists := make([][]cloud.Instance, len(p.cfg.Regions))
	errs := make([]error, len(p.cfg.Regions))

	var wg sync.WaitGroup
	for i, name := range p.cfg.Regions {
		wg.Go(func() {
			lists[i], errs[i] = p.region(name).list(ctx, filter(cloud.TagYard, p.cfg.Yard))
			errs[i] = translate(ctx, "list instances in "+name, errs[i])
		})
	}

	wg.Wait()

	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}

	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b cloud.Instance) int {
		return cmp.Or(strings.Compare(a.Region, b.Region), strings.Compare(a.ID, b.ID))
	})

	return all, nil
}

func filter(tag, value string) types.Filter {
	return types.Filter{Name: sdk.String("tag:" + tag), Values: []string{value}}
}

// list returns the machines of a region that have these tags, in whatever state.
func (r *region) list(ctx context.Context, filters ...types.Filter) ([]cloud.Instance, error) {
	var all []cloud.Instance
	pages := ec2.NewDescribeInstancesPaginator(
		r.client,
		&ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(page)},
	)

	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, reservation := range out.Reservations {
			for i := range reservation.Instances {
				all = append(all, instance(&reservation.Instances[i], r.name))
			}
		}
	}

	return all, nil
}

// instance reads a machine as Amazon shows it.
func instance(from *types.Instance, region string) cloud.Instance {
	to := cloud.Instance{
		ID:      sdk.ToString(from.InstanceId),
		Region:  region,
		Type:    string(from.InstanceType),
		Spot:    from.InstanceLifecycle == types.InstanceLifecycleTypeSpot,
		Address: cmp.Or(sdk.ToString(from.PublicIpAddress), sdk.ToString(from.PrivateIpAddress)),
		Billed:  -1, // Amazon's bill comes a day later and in another place
	}

	for _, tag := range from.Tags {
		if sdk.ToString(tag.Key) == cloud.TagLease {
			to.Lease = id.Lease(sdk.ToString(tag.Value))
		}
	}

	if from.Placement != nil {
		to.Zone = sdk.ToString(from.Placement.AvailabilityZone)
	}

	if from.LaunchTime != nil {
		to.Launched = from.LaunchTime.UTC()
	}

	to.State = state(from.State)
	if to.State == cloud.Ending || to.State == cloud.Gone {
		to.Why = why(from)
		to.Ended = endOf(sdk.ToString(from.StateTransitionReason))
	}

	return to
}

// state maps Amazon's states. A machine that is stopped has not ended: its disk is paid
// for and it may start again.
func state(s *types.InstanceState) cloud.State {
	if s == nil {
		return cloud.Pending
	}

	switch s.Name {
	case types.InstanceStateNameRunning, types.InstanceStateNameStopping, types.InstanceStateNameStopped:
		return cloud.Up
	case types.InstanceStateNameShuttingDown:
		return cloud.Ending
	case types.InstanceStateNameTerminated:
		return cloud.Gone
	case types.InstanceStateNamePending:
	}

	return cloud.Pending
}

// why says why a machine ended.
func why(i *types.Instance) string {
	reason := sdk.ToString(i.StateTransitionReason)
	if i.StateReason != nil {
		if strings.HasPrefix(sdk.ToString(i.StateReason.Code), "Server.SpotInstance") {
			return "spot"
		}

		reason = cmp.Or(sdk.ToString(i.StateReason.Message), reason)
	}

	return reason
}

// endTime is how Amazon tells when a machine was ended: "User initiated (2026-11-15 08:00:00 GMT)".
var endTime = regexp.MustCompile(`\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)`)

func endOf(reason string) time.Time {
	found := endTime.FindStringSubmatch(reason)
	if found == nil {
		return time.Time{}
	}

	at, err := time.ParseInLocation(time.DateTime, found[1], time.UTC)
	if err != nil {
		return time.Time{} // no time that exists: not told
	}

	return at
}
