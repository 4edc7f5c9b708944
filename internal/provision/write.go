package provision

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// WriteOffers writes a price file that ParseOffers reads back as the same offers
// in the same order. Offers that follow each other and share provider, region and
// terms stand under one provider; an offer on demand and the same on spot right
// after it are one line.
func WriteOffers(offers []fleet.Offer) []byte {
	var out bytes.Buffer

	if len(offers) == 0 {
		return []byte("providers: []\n")
	}

	out.WriteString("providers:\n")

	var group terms
	for i := 0; i < len(offers); i++ {
		o := &offers[i]
		if t := termsOf(o); i == 0 || t != group {
			group = t
			t.write(&out)
		}

		if next := i + 1; next < len(offers) && twins(o, &offers[next]) {
			writeType(&out, o, &offers[next])
			i = next
			continue
		}

		if o.Spot {
			writeType(&out, nil, o)
		} else {
			writeType(&out, o, nil)
		}
	}

	return out.Bytes()
}

// terms are what the offers under one provider have in common.
type terms struct {
	provider, region   string
	boot, bills, least job.Duration
	fake               bool
}

func termsOf(o *fleet.Offer) terms {
	return terms{o.Provider, o.Region, o.Boot, o.BillingIncrement, o.MinBilling, o.Fake}
}

func (t terms) write(out *bytes.Buffer) {
	line := func(key, val string, given bool) {
		if given {
			out.WriteString("    " + key + ": " + val + "\n")
		}
	}

	out.WriteString("  - provider: " + scalar(t.provider) + "\n")
	line("region", scalar(t.region), t.region != "")
	line("boot", t.boot.String(), t.boot != 0)
	line("billing_increment", t.bills.String(), t.bills != 0)
	line("min_billing", t.least.String(), t.least != 0)
	line("fake", "true", t.fake)
	out.WriteString("    types:\n")
}

// twins reports whether the second is the first on spot and they differ in nothing
// that one line cannot say.
func twins(a, b *fleet.Offer) bool {
	if a.Spot || !b.Spot {
		return false
	}

	same := *b
	same.Name = a.Name
	same.Spot = false
	same.Hourly = a.Hourly
	same.LossRate = 0

	return same == *a
}

// writeType writes one line of a type: on demand, on spot, or both.
func writeType(out *bytes.Buffer, onDemand, spot *fleet.Offer) {
	o := onDemand
	if o == nil {
		o = spot
	}

	sep := "      - {"
	put := func(key, val string, given bool) {
		if given {
			out.WriteString(sep + key + ": " + val)
			sep = ", "
		}
	}

	put("type", scalar(o.Type), true)
	put("zone", scalar(o.Zone), o.Zone != "")
	put("gpu", scalar(o.GPU), o.GPU != "")
	put("gpus", strconv.Itoa(o.GPUs), o.GPUs != 0)
	put("gpu_memory", o.GPUMemory.String(), o.GPUMemory != 0)
	put("tflops", plain(o.TFLOPS), o.TFLOPS != 0)
	put("cpus", o.CPUs.String(), true)
	put("memory", o.Memory.String(), true)

	if onDemand != nil {
		put("hourly", onDemand.Hourly.String(), true)
	}

	if spot != nil {
		put("spot", spot.Hourly.String(), true)
		put("loss_rate", plain(spot.LossRate), spot.LossRate != 0)
	}

	put("max_nodes", strconv.Itoa(o.MaxNodes), o.MaxNodes != 0)
	out.WriteString("}\n")
}

// bare are words that mean themselves in YAML, wherever they stand.
var bare = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// scalar writes a text so that YAML reads it as it is.
func scalar(s string) string {
	if bare.MatchString(s) && !strings.EqualFold(s, "null") {
		return s
	}

	return strconv.Quote(s)
}
