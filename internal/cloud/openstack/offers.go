package openstack

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// Keys of a flavor's extra specs with which the operator of a cloud states what Nova does not know:
// `openstack flavor set --property trainyard:hourly=3.25 gpu.large`.
const (
	keyGPU    = "trainyard:gpu"        // model
	keyGPUs   = "trainyard:gpus"       // number; otherwise counted from Nova's own keys
	keyMemory = "trainyard:gpu_memory" // of one GPU
	keyTFLOPS = "trainyard:tflops"     // peak of one GPU; otherwise looked up by model
	keyHourly = "trainyard:hourly"     // price; without it the flavor is free
)

// Offers returns an offer for every flavor of every region.
func (p *Provider) Offers(ctx context.Context) ([]fleet.Offer, error) {
	var offers []fleet.Offer

	for _, region := range p.config.Regions {
		nova, err := p.compute(ctx, region)
		if err != nil {
			return nil, err
		}

		all, err := allFlavors(ctx, nova)
		if err != nil {
			return nil, err
		}

		for i := range all {
			o, err := offer(&all[i])
			if err != nil {
				return nil, err
			}

			o.Provider, o.Region = p.Name(), region
			o.Name = o.NameOf()
			offers = append(offers, o)
		}
	}

	slices.SortFunc(offers, func(a, b fleet.Offer) int { return cmp.Compare(a.Name, b.Name) })

	return offers, nil
}

// offer converts a flavor to an offer.
func offer(f *flavors.Flavor) (fleet.Offer, error) {
	o := fleet.Offer{Type: f.Name, CPUs: job.CPUs(f.VCPUs) * 1000, Memory: job.Bytes(f.RAM) << 20}
	count, alias, err := devices(f)
	if err != nil {
		return o, err
	}

	o.GPUs = count
	if o.GPUs > 0 {
		o.GPU = cmp.Or(f.ExtraSpecs[keyGPU], alias)
	}

	for _, field := range []struct {
		key string
		set func(text string) error
	}{
		{keyMemory, func(text string) (err error) {
			o.GPUMemory, err = job.ParseBytes(text)
			return err
		}},
		{keyTFLOPS, func(text string) (err error) {
			o.TFLOPS, err = strconv.ParseFloat(text, 64)
			return err
		}},
		{keyHourly, func(text string) (err error) {
			o.Hourly, err = job.ParseMoney(text)
			return err
		}},
	} {
		if text, ok := f.ExtraSpecs[field.key]; ok {
			if err := field.set(text); err != nil {
				return o, badSpec(f, field.key, text).WithCause(err)
			}
		}
	}

	return o, nil
}

func badSpec(f *flavors.Flavor, key, text string) *fault.Error {
	return fault.New(fault.Invalid, "openstack_flavor", "flavor %s has an invalid property %s: %q", f.Name, key, text).
		WithRemedy("correct it with `openstack flavor set --property %s=… %s`", key, f.Name)
}

// devices counts the GPUs of a flavor and returns the alias under which Nova passes them through. A
// flavor that names a GPU model but no number has one.
func devices(f *flavors.Flavor) (count int, alias string, err error) {
	if text, ok := f.ExtraSpecs[keyGPUs]; ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return 0, "", badSpec(f, keyGPUs, text).WithCause(err)
		}

		return int(n), "", nil
	}

	for key, text := range f.ExtraSpecs {
		switch {
		case key == "pci_passthrough:alias": // NAME:COUNT,NAME:COUNT
			for part := range strings.SplitSeq(text, ",") {
				name, number, _ := strings.Cut(strings.TrimSpace(part), ":")
				n, err := strconv.ParseUint(number, 10, 16)
				if err != nil {
					return 0, "", badSpec(f, key, text).WithCause(err)
				}

				count += int(n)
				alias = cmp.Or(alias, name)
			}
		case strings.HasPrefix(key, "resources") && strings.HasSuffix(key, ":VGPU"): // also resources1:VGPU
			n, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return 0, "", badSpec(f, key, text).WithCause(err)
			}

			count += int(n)
		}
	}

	if count == 0 && f.ExtraSpecs[keyGPU] != "" {
		count = 1
	}

	return count, alias, nil
}
