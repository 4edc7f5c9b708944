package aws

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// OfferFilter chooses the offers that are read.
type OfferFilter struct {
	Regions []string  // those of the settings if empty
	Types   []string  // such as p4d.24xlarge, or g5.* where * stands for anything; every type with a GPU if empty
	At      time.Time // spot prices are those of this time
	Quotas  bool      // leave out what the account may not have, and say how many it may
}

// minBilling is the shortest time that AWS bills for an instance.
const minBilling = job.Duration(time.Minute)

// Offers reads what there is to provision: types from EC2, prices from the price list, spot prices
// from their history. A type without a price in a region is not sold there and gives no
// offer. A spot offer is of a zone, because each zone has its own price.
func (p *Provider) Offers(ctx context.Context, w OfferFilter) ([]fleet.Offer, error) {
	if err := w.check(); err != nil {
		return nil, err
	}

	regions := w.Regions
	if len(regions) == 0 {
		regions = p.cfg.Regions
	}

	var all []fleet.Offer
	for _, name := range regions {
		offers, err := p.offersIn(ctx, p.region(name), w)
		if err != nil {
			return nil, translate(ctx, "list offers in "+name, err)
		}

		all = append(all, offers...)
	}

	slices.SortFunc(all, func(a, b fleet.Offer) int { return strings.Compare(a.Name, b.Name) })

	return all, nil
}

func (w *OfferFilter) check() error {
	if w.At.IsZero() {
		return fault.New(fault.Invalid, "bad_time", "a time is required to read spot prices")
	}

	for _, pattern := range w.Types {
		if pattern == "" || strings.ContainsAny(pattern, `[]\`) {
			return fault.New(fault.Invalid, "bad_pattern", "instance types must be a pattern such as g5.*, got %q", pattern)
		}
	}

	return nil
}

// matches reports whether offers of a type are wanted, where types were not named.
func (w *OfferFilter) matches(t *types.InstanceTypeInfo) bool {
	_, gpus, _ := gpuOf(t)
	return len(w.Types) > 0 || gpus > 0
}

func (p *Provider) offersIn(ctx context.Context, reg *region, w OfferFilter) ([]fleet.Offer, error) {
	prices, err := p.prices(ctx, reg.name)
	if err != nil {
		return nil, err
	}

	kinds, err := reg.types(ctx, w)
	if err != nil || len(kinds) == 0 {
		return nil, err
	}

	names := make([]types.InstanceType, len(kinds))
	for i := range kinds {
		names[i] = kinds[i].InstanceType
	}

	spot, err := reg.spotPrices(ctx, names, w.At)
	if err != nil {
		return nil, err
	}

	var offers []fleet.Offer
	for i := range kinds {
		base := p.offer(&kinds[i], reg.name)
		if hourly, ok := prices[base.Type]; ok {
			offers = append(offers, priced(base, "", false, hourly))
		}

		zones := spot[base.Type]
		for _, zone := range slices.Sorted(maps.Keys(zones)) {
			offers = append(offers, priced(base, zone, true, zones[zone].hourly))
		}
	}

	if w.Quotas {
		limits, err := p.limits(ctx, reg.name, offers)
		if err != nil {
			return nil, err
		}

		offers = within(offers, limits)
	}

	return offers, nil
}

// types lists the types of a region that are wanted and that our agents run on.
func (r *region) types(ctx context.Context, w OfferFilter) ([]types.InstanceTypeInfo, error) {
	in := &ec2.DescribeInstanceTypesInput{MaxResults: sdk.Int32(page)}
	if len(w.Types) > 0 {
		in.Filters = []types.Filter{{Name: sdk.String("instance-type"), Values: w.Types}}
	}

	var all []types.InstanceTypeInfo

	pages := ec2.NewDescribeInstanceTypesPaginator(r.client, in)
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for i := range out.InstanceTypes {
			if t := &out.InstanceTypes[i]; w.matches(t) && runsAgents(t) {
				all = append(all, *t)
			}
		}
	}

	return all, nil
}

// runsAgents reports whether a type has the processor that images are looked up for.
func runsAgents(t *types.InstanceTypeInfo) bool {
	return t.ProcessorInfo != nil && slices.Contains(t.ProcessorInfo.SupportedArchitectures, types.ArchitectureTypeX8664)
}

// offer describes a type, without price.
func (p *Provider) offer(t *types.InstanceTypeInfo, region string) fleet.Offer {
	o := fleet.Offer{Provider: p.cfg.Name, Type: string(t.InstanceType), Region: region, MinBilling: minBilling}
	o.GPU, o.GPUs, o.GPUMemory = gpuOf(t)
	if t.VCpuInfo != nil {
		o.CPUs = job.CPUs(sdk.ToInt32(t.VCpuInfo.DefaultVCpus)) * 1000
	}

	if t.MemoryInfo != nil {
		o.Memory = job.Bytes(sdk.ToInt64(t.MemoryInfo.SizeInMiB)) << 20
	}

	return o
}

func priced(o fleet.Offer, zone string, spot bool, hourly job.Money) fleet.Offer {
	o.Zone, o.Spot, o.Hourly = zone, spot, hourly
	o.Name = o.NameOf()
	return o
}

// gpuOf returns the GPUs of a type: whole ones of one kind, since jobs ask for such.
func gpuOf(t *types.InstanceTypeInfo) (name string, count int, memory job.Bytes) {
	if t.GpuInfo == nil || len(t.GpuInfo.Gpus) != 1 {
		return "", 0, 0
	}

	g := t.GpuInfo.Gpus[0]
	if g.GpuPartitionSize != nil && *g.GpuPartitionSize < 1 || sdk.ToInt32(g.Count) < 1 {
		return "", 0, 0
	}

	if g.MemoryInfo != nil {
		memory = job.Bytes(sdk.ToInt32(g.MemoryInfo.SizeInMiB)) << 20
	}

	return sdk.ToString(g.Name), int(*g.Count), memory
}

// quote is the spot price of a zone since some time.
type quote struct {
	hourly job.Money
	since  time.Time
}

// linux are the names under which the price of a machine without a licence is listed.
var linux = []string{string(types.RIProductDescriptionLinuxUnix), string(types.RIProductDescriptionLinuxUnixAmazonVpc)}

// spotPrices returns the newest spot price by type and zone at a time.
func (r *region) spotPrices(
	ctx context.Context,
	names []types.InstanceType,
	at time.Time,
) (map[string]map[string]quote, error) {
	// What holds at a time is told, although it began before.
	in := &ec2.DescribeSpotPriceHistoryInput{
		InstanceTypes:       names,
		ProductDescriptions: linux,
		StartTime:           &at,
		EndTime:             &at,
	}

	var history []types.SpotPrice

	pages := ec2.NewDescribeSpotPriceHistoryPaginator(r.client, in)
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		history = append(history, out.SpotPriceHistory...)
	}

	return newest(history)
}

// newest keeps the last price of each type in each zone. A price of nothing is none.
func newest(history []types.SpotPrice) (map[string]map[string]quote, error) {
	found := map[string]map[string]quote{}

	for _, h := range history {
		hourly, err := job.ParseMoney(sdk.ToString(h.SpotPrice))
		if err != nil {
			return nil, fault.New(fault.Internal, "provider_answer", "invalid spot price of %s: %v", h.InstanceType, err).
				WithCause(err)
		}

		kind := string(h.InstanceType)
		zone := sdk.ToString(h.AvailabilityZone)
		since := sdk.ToTime(h.Timestamp)

		if hourly <= 0 || zone == "" {
			continue
		}

		if found[kind] == nil {
			found[kind] = map[string]quote{}
		}

		if known, ok := found[kind][zone]; !ok || known.since.Before(since) {
			found[kind][zone] = quote{hourly, since}
		}
	}

	return found, nil
}
