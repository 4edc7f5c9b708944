package aws

import (
	"context"
	"math"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// Amazon limits how many vCPUs of a group of families an account may have at once, apart for
// machines that are spot. These are the names of the limits, by the letters with which
// a family begins and, where it matters, its generation.
const (
	quotaStandard, quotaStandardSpot = "L-1216C47A", "L-34B43A08"
	quotaG, quotaGSpot               = "L-DB2E81BA", "L-3819A6DF"
	quotaP, quotaPSpot, quotaP5Spot  = "L-417A185B", "L-7212CCBC", "L-C4BD4855"
)

// quotaOf names the limit that an offer counts against, "" if it is not known: then
// Amazon is asked, and says no where it is too much.
func quotaOf(o *fleet.Offer) string {
	digit := strings.IndexAny(o.Type, "0123456789")
	if digit < 0 {
		return ""
	}

	pick := func(plain, spot string) string {
		if o.Spot {
			return spot
		}

		return plain
	}

	switch o.Type[:digit] {
	case "g", "gr", "vt":
		return pick(quotaG, quotaGSpot)
	case "p":
		switch o.Type[digit] {
		case '2', '3', '4':
			return pick(quotaP, quotaPSpot)
		case '5':
			return pick(quotaP, quotaP5Spot)
		}

		return pick(quotaP, "")
	case "a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z":
		return pick(quotaStandard, quotaStandardSpot)
	}

	return ""
}

// limits reads the account's limits in a region as far as these offers need them. One
// that Amazon does not tell is left out.
func (p *Provider) limits(ctx context.Context, region string, offers []fleet.Offer) (map[string]float64, error) {
	if p.cfg.Endpoint != "" && p.cfg.QuotaEndpoint == "" {
		return nil, fault.New(fault.Invalid, "aws_config", "is required with endpoint %s", p.cfg.Endpoint).
			WithField("quota_endpoint")
	}

	client := servicequotas.NewFromConfig(p.base, func(o *servicequotas.Options) {
		o.Region = region
		if p.cfg.QuotaEndpoint != "" {
			o.BaseEndpoint = sdk.String(p.cfg.QuotaEndpoint)
		}
	})

	found, asked := map[string]float64{}, map[string]bool{"": true}

	for i := range offers {
		code := quotaOf(&offers[i])
		if asked[code] {
			continue
		}

		asked[code] = true

		out, err := client.GetServiceQuota(
			ctx,
			&servicequotas.GetServiceQuotaInput{ServiceCode: sdk.String("ec2"), QuotaCode: sdk.String(code)},
		)

		switch {
		case codeOf(err) == "NoSuchResourceException":
		case err != nil:
			return nil, err
		case out.Quota != nil && out.Quota.Value != nil:
			found[code] = *out.Quota.Value
		}
	}

	return found, nil
}

// within sets how many machines of an offer fit into the account's limit, and drops offers
// of which not one does: a new account may have no machine with a large GPU at all. The
// limit is shared by several types, so this is the most that there can be, not what is left.
func within(offers []fleet.Offer, limits map[string]float64) []fleet.Offer {
	var kept []fleet.Offer
	for _, o := range offers {
		if vcpus, known := limits[quotaOf(&o)]; known && o.CPUs > 0 {
			o.MaxNodes = int(math.Floor(vcpus * 1000 / float64(o.CPUs)))
			if o.MaxNodes < 1 {
				continue
			}
		}

		kept = append(kept, o)
	}

	return kept
}
