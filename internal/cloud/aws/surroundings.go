package aws

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// image is what machines of a region start from.
type image struct {
	id     string
	device string // of its first disk
}

// image finds the image of a region, once: the newest that the settings' words fit, or the
// one they name.
func (p *Provider) image(ctx context.Context, reg *region) (image, error) {
	unlock, err := reg.lock(ctx)
	if err != nil {
		return image{}, err
	}

	defer unlock()

	if reg.image.id != "" {
		return reg.image, nil
	}

	in := &ec2.DescribeImagesInput{
		Owners: []string{p.cfg.ImageOwner},
		Filters: []types.Filter{
			{Name: sdk.String("name"), Values: []string{p.cfg.ImageName}},
			{Name: sdk.String("state"), Values: []string{"available"}},
			{Name: sdk.String("architecture"), Values: []string{string(types.ArchitectureValuesX8664)}},
		},
	}

	what := "named " + p.cfg.ImageName + " of " + p.cfg.ImageOwner
	if named := p.cfg.Images[reg.name]; named != "" {
		in = &ec2.DescribeImagesInput{ImageIds: []string{named}}
		what = named
	}

	out, err := reg.client.DescribeImages(ctx, in)
	if err != nil {
		return image{}, err
	}

	if len(out.Images) == 0 {
		return image{}, fault.New(fault.Invalid, "bad_image", "no image %s in %s", what, reg.name).
			WithRemedy("set images, or correct image_owner and image_name")
	}

	// Dates are written so that their order is that of their letters.
	newest := slices.MaxFunc(out.Images, func(a, b types.Image) int {
		return cmp.Or(strings.Compare(sdk.ToString(a.CreationDate), sdk.ToString(b.CreationDate)),
			strings.Compare(sdk.ToString(a.ImageId), sdk.ToString(b.ImageId)))
	})

	reg.image = image{id: sdk.ToString(newest.ImageId), device: cmp.Or(sdk.ToString(newest.RootDeviceName), "/dev/sda1")}

	return reg.image, nil
}

// subnet returns the subnet for a machine, "" for the default network. Where several zones
// have one and the offer names no zone, leases take turns; the same lease always gets the same.
func (p *Provider) subnet(region, zone string, lease id.Lease) string {
	if zone != "" {
		return cmp.Or(p.cfg.Subnets[zone], p.cfg.Subnets[region])
	}
	if whole := p.cfg.Subnets[region]; whole != "" {
		return whole
	}

	var zones []string
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Subnets)) {
		// us-east-1a is a zone of us-east-1.
		if rest, ok := strings.CutPrefix(name, region); ok && len(rest) == 1 {
			zones = append(zones, name)
		}
	}

	if len(zones) == 0 {
		return ""
	}

	n, _ := lease.Number()

	return p.cfg.Subnets[zones[n%uint64(len(zones))]]
}

// group finds the security group for a network, once, and makes it where it is absent.
func (p *Provider) group(ctx context.Context, reg *region, subnet string) (string, error) {
	name := cmp.Or(p.cfg.SecurityGroup, "trainyard-"+p.cfg.Yard)
	if strings.HasPrefix(name, "sg-") {
		return name, nil
	}

	unlock, err := reg.lock(ctx)
	if err != nil {
		return "", err
	}

	defer unlock()

	if known := reg.groups[subnet]; known != "" {
		return known, nil
	}

	vpc, err := reg.network(ctx, subnet)
	if err != nil {
		return "", err
	}

	group, err := reg.findGroup(ctx, name, vpc)
	if err == nil && group == "" {
		group, err = p.makeGroup(ctx, reg, name, vpc)
	}

	if err != nil {
		return "", err
	}

	reg.groups[subnet] = group

	return group, nil
}

// network returns the network of a subnet, or the default one.
func (r *region) network(ctx context.Context, subnet string) (string, error) {
	if subnet != "" {
		out, err := r.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}})
		if err != nil {
			return "", err
		}
		if len(out.Subnets) != 1 {
			return "", fault.New(fault.Invalid, "bad_subnet", "no subnet %s in %s", subnet, r.name)
		}

		return sdk.ToString(out.Subnets[0].VpcId), nil
	}

	out, err := r.client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{
		Filters: []types.Filter{{Name: sdk.String("is-default"), Values: []string{"true"}}},
	})
	if err != nil {
		return "", err
	}

	if len(out.Vpcs) == 0 {
		return "", fault.New(fault.Invalid, "bad_subnet", "region %s has no default VPC", r.name).
			WithRemedy("set a subnet of the region in subnets")
	}

	return sdk.ToString(out.Vpcs[0].VpcId), nil
}

// findGroup returns the security group of this name in a network, "" if there is none.
func (r *region) findGroup(ctx context.Context, name, vpc string) (string, error) {
	out, err := r.client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{
		{Name: sdk.String("group-name"), Values: []string{name}}, {Name: sdk.String("vpc-id"), Values: []string{vpc}},
	}})
	if err != nil || len(out.SecurityGroups) == 0 {
		return "", err
	}

	return sdk.ToString(out.SecurityGroups[0].GroupId), nil
}

// makeGroup makes a security group. A new one lets everything out and nothing in, which is
// what agents need. Another server of the same yard may have made it just now.
func (p *Provider) makeGroup(ctx context.Context, reg *region, name, vpc string) (string, error) {
	out, err := reg.client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		GroupName: sdk.String(name), VpcId: sdk.String(vpc),
		Description: sdk.String("Trainyard nodes of " + p.cfg.Yard + ": no inbound traffic"),
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeSecurityGroup,
			Tags:         []types.Tag{{Key: sdk.String(cloud.TagYard), Value: sdk.String(p.cfg.Yard)}},
		}},
	}, p.plain)

	switch {
	case codeOf(err) == "InvalidGroup.Duplicate":
		group, err := reg.findGroup(ctx, name, vpc)
		if err == nil && group == "" {
			err = fault.New(
				fault.Unavailable,
				"provider_busy",
				"security group %s has just been created and is not visible yet",
				name,
			)
		}

		return group, err
	case err != nil:
		return "", err
	}

	return sdk.ToString(out.GroupId), nil
}

// forget drops what was known of a region when Amazon says that it is not so: someone
// has deleted the image or the group, or the group is so new that Amazon has not caught up.
// It reports whether asking again would look it up again.
func (r *region) forget(ctx context.Context, err error) bool {
	code := codeOf(err)
	ofImage := strings.HasPrefix(code, "InvalidAMIID")

	ofGroup := strings.HasPrefix(code, "InvalidGroup") || strings.HasPrefix(code, "InvalidSecurityGroup")
	if !ofImage && !ofGroup {
		return false
	}

	unlock, err := r.lock(ctx)
	if err != nil {
		return true // the next call gets the same error and looks it up then
	}

	defer unlock()

	dropped := ofImage && r.image.id != "" || ofGroup && len(r.groups) > 0

	if ofImage {
		r.image = image{}
	} else {
		clear(r.groups)
	}

	return dropped
}
