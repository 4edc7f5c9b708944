package aws

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// maxScript is the size limit of user data, before it is encoded.
const maxScript = 16 << 10

// maxToken is the length limit of a client token.
const maxToken = 64

// Create asks for one machine, once. Amazon gives the same machine to whoever asks again
// with the same client token in the same zone, and a lease keeps its zone; a request that
// is the same in its lease but not in its words (a newer image, another end) is answered
// with a mismatch, and the machine of the lease is looked up.
func (p *Provider) Create(ctx context.Context, r cloud.Request) (cloud.Instance, error) {
	doing := "provision " + r.Offer.Type + " in " + r.Offer.Region + " for " + string(r.Lease)
	if err := ctx.Err(); err != nil {
		return cloud.Instance{}, unclear(ctx, doing, err)
	}
	if err := p.accepts(r); err != nil {
		return cloud.Instance{}, err
	}

	reg := p.region(r.Offer.Region)
	in, err := p.runRequest(ctx, reg, r)
	if err != nil {
		return cloud.Instance{}, translate(ctx, doing, err)
	}

	out, err := reg.client.RunInstances(ctx, in, p.plain)
	switch {
	case codeOf(err) == "IdempotentParameterMismatch":
		return p.provisioned(ctx, reg, r.Lease, err)
	case err != nil && reg.forget(ctx, err):
		return cloud.Instance{}, fault.New(fault.Unavailable, "provider_changed",
			"%s: %v; the image and security group will be looked up again", doing, err).
			WithCause(err)
	case err != nil:
		return cloud.Instance{}, translate(ctx, doing, err)
	case len(out.Instances) != 1:
		return cloud.Instance{}, fault.New(
			fault.Internal,
			"provider_answer",
			"%s: requested 1 instance, got %d",
			doing,
			len(out.Instances),
		)
	}

	made := instance(&out.Instances[0], reg.name)
	made.Lease = r.Lease

	return made, nil
}

// accepts refuses what would never work, before Amazon is asked.
func (p *Provider) accepts(r cloud.Request) error {
	bad := func(format string, args ...any) error { return fault.New(fault.Invalid, "bad_offer", format, args...) }
	switch {
	case r.Yard != p.cfg.Yard:
		return bad("the request is for yard %q, but this provider provisions for %q", r.Yard, p.cfg.Yard)
	case r.Lease == "":
		return bad("the request has no lease")
	case !slices.Contains(p.cfg.Regions, r.Offer.Region):
		return bad("region %q is not configured; configured regions: %s", r.Offer.Region, strings.Join(p.cfg.Regions, ", "))
	case len(r.Boot.Script) > maxScript:
		return bad("the boot script must have at most %[2]d bytes, got %[1]d", len(r.Boot.Script), maxScript)
	}

	return nil
}

// runRequest builds the request. Everything in it follows from the lease and the settings, so
// that a retry is the same request.
func (p *Provider) runRequest(ctx context.Context, reg *region, r cloud.Request) (*ec2.RunInstancesInput, error) {
	img, err := p.image(ctx, reg)
	if err != nil {
		return nil, err
	}

	subnet := p.subnet(r.Offer.Region, r.Offer.Zone, r.Lease)
	group, err := p.group(ctx, reg, subnet)
	if err != nil {
		return nil, err
	}

	in := &ec2.RunInstancesInput{
		ClientToken:      sdk.String(token(r.Yard, r.Lease)),
		ImageId:          sdk.String(img.id),
		InstanceType:     types.InstanceType(r.Offer.Type),
		MinCount:         sdk.Int32(1),
		MaxCount:         sdk.Int32(1),
		SecurityGroupIds: []string{group},
		UserData:         sdk.String(base64.StdEncoding.EncodeToString([]byte(r.Boot.Script))),
		// A machine whose lease is over shuts itself down, and must be gone then.
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
		// Without a token of its own a job could be tricked into reading the machine's credentials.
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens:              types.HttpTokensStateRequired,
			HttpEndpoint:            types.InstanceMetadataEndpointStateEnabled,
			HttpPutResponseHopLimit: sdk.Int32(1),
		},
		TagSpecifications: p.tags(r),
	}

	switch {
	case subnet != "":
		in.SubnetId = sdk.String(subnet)
	case r.Offer.Zone != "":
		in.Placement = &types.Placement{AvailabilityZone: sdk.String(r.Offer.Zone)}
	}

	if p.cfg.KeyName != "" {
		in.KeyName = sdk.String(p.cfg.KeyName)
	}

	if p.cfg.InstanceProfile != "" {
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: sdk.String(p.cfg.InstanceProfile)}
	}

	if p.cfg.DiskGB > 0 {
		in.BlockDeviceMappings = []types.BlockDeviceMapping{
			{
				DeviceName: sdk.String(img.device),
				Ebs: &types.EbsBlockDevice{
					VolumeSize:          sdk.Int32(int32(p.cfg.DiskGB)),
					VolumeType:          types.VolumeTypeGp3,
					DeleteOnTermination: sdk.Bool(true),
				},
			},
		}
	}

	if r.Offer.Spot {
		in.InstanceMarketOptions = p.spotOptions(r)
	}

	return in, nil
}

// spotOptions requests a spot instance that is terminated when it is reclaimed: the yard starts
// its job elsewhere, and a stopped machine would still cost its disk.
func (p *Provider) spotOptions(r cloud.Request) *types.InstanceMarketOptionsRequest {
	spot := &types.SpotMarketOptions{
		SpotInstanceType:             types.SpotInstanceTypeOneTime,
		InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
	}

	if p.cfg.SpotMax > 0 && r.Offer.Hourly > 0 {
		spot.MaxPrice = sdk.String(strconv.FormatFloat(float64(r.Offer.PerHour().Times(p.cfg.SpotMax)), 'f', 6, 64))
	}

	return &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: spot}
}

// tags are those of the machine and of all that comes with it.
func (p *Provider) tags(r cloud.Request) []types.TagSpecification {
	all := maps.Clone(p.cfg.Tags)
	if all == nil {
		all = map[string]string{}
	}

	all["Name"] = r.Name
	all[cloud.TagYard] = r.Yard
	all[cloud.TagLease] = string(r.Lease)
	all[cloud.TagUntil] = r.Until.UTC().Format(time.RFC3339)

	var list []types.Tag
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, types.Tag{Key: sdk.String(key), Value: sdk.String(all[key])})
	}

	on := []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume}
	if r.Offer.Spot {
		on = append(on, types.ResourceTypeSpotInstancesRequest)
	}

	var specs []types.TagSpecification
	for _, kind := range on {
		specs = append(specs, types.TagSpecification{ResourceType: kind, Tags: list})
	}

	return specs
}

// token names the request to Amazon.
func token(yard string, lease id.Lease) string {
	name := yard + "-" + string(lease)
	if len(name) <= maxToken {
		return name
	}

	sum := sha256.Sum256([]byte(name))

	return hex.EncodeToString(sum[:])
}

// provisioned looks the machine of a lease up, after Amazon said that it had given one.
func (p *Provider) provisioned(
	ctx context.Context,
	reg *region,
	lease id.Lease,
	mismatch error,
) (cloud.Instance, error) {
	doing := "find the instance of " + string(lease) + " in " + reg.name
	all, err := reg.list(ctx, filter(cloud.TagYard, p.cfg.Yard), filter(cloud.TagLease, string(lease)))
	if err != nil {
		return cloud.Instance{}, unclear(ctx, doing, err)
	}

	// The list may lag, and then nothing is known; of several the one that lives is meant.
	slices.SortStableFunc(all, func(a, b cloud.Instance) int { return ended(a) - ended(b) })
	if len(all) == 0 {
		return cloud.Instance{}, unclear(ctx, doing, mismatch)
	}

	return all[0], nil
}

func ended(i cloud.Instance) int {
	if i.State == cloud.Gone || i.State == cloud.Ending {
		return 1
	}

	return 0
}
