package aws

import (
	"context"
	"encoding/json"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// priceRegion is where the price list is asked for; it knows the prices of all regions.
const priceRegion = "us-east-1"

// shelf is what a machine is in the price list: rented by the hour, not reserved,
// not dedicated, with no system that is paid for. Used is a machine that runs; the
// list also prices capacity that is held and not used.
var plainMachine = map[string]string{
	"operatingSystem": "Linux",
	"tenancy":         "Shared",
	"preInstalledSw":  "NA",
	"capacitystatus":  "Used",
	"marketoption":    "OnDemand",
}

// prices returns the hourly price of every type in a region.
func (p *Provider) prices(ctx context.Context, region string) (map[string]job.Money, error) {
	if p.cfg.Endpoint != "" && p.cfg.PriceEndpoint == "" {
		return nil, fault.New(fault.Invalid, "aws_config", "is required with endpoint %s", p.cfg.Endpoint).
			WithField("price_endpoint")
	}

	client := pricing.NewFromConfig(p.base, func(o *pricing.Options) {
		o.Region = priceRegion
		if p.cfg.PriceEndpoint != "" {
			o.BaseEndpoint = sdk.String(p.cfg.PriceEndpoint)
		}
	})

	in := &pricing.GetProductsInput{
		ServiceCode:   sdk.String("AmazonEC2"),
		FormatVersion: sdk.String("aws_v1"),
		MaxResults:    sdk.Int32(page),
	}

	in.Filters = append(in.Filters, match("regionCode", region))
	for _, field := range []string{"operatingSystem", "tenancy", "preInstalledSw", "capacitystatus"} {
		in.Filters = append(in.Filters, match(field, plainMachine[field]))
	}

	found := map[string]job.Money{}

	pages := pricing.NewGetProductsPaginator(client, in)
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, document := range out.PriceList {
			kind, hourly, err := readPrice(document, region)
			if err != nil {
				return nil, err
			}

			if hourly > 0 {
				found[kind] = hourly
			}
		}
	}

	return found, nil
}

func match(field, value string) types.Filter {
	return types.Filter{Type: types.FilterTypeTermMatch, Field: sdk.String(field), Value: sdk.String(value)}
}

// product is the part of a document of the price list that matters.
type product struct {
	Product struct {
		Attributes map[string]string `json:"attributes"`
	} `json:"product"`
	Terms struct {
		OnDemand map[string]struct {
			PriceDimensions map[string]struct {
				Unit         string            `json:"unit"`
				PricePerUnit map[string]string `json:"pricePerUnit"`
			} `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

// readPrice reads the type and the hourly price out of a document. The price is 0 if the
// document is of something else than a plain machine in this region, or has no price in dollars.
func readPrice(document, region string) (kind string, hourly job.Money, err error) {
	var p product
	if err := json.Unmarshal([]byte(document), &p); err != nil {
		return "", 0, fault.New(fault.Internal, "provider_answer", "cannot parse the AWS price list: %v", err).
			WithCause(err)
	}

	has := p.Product.Attributes
	for field, want := range plainMachine {
		// Not every document has every field; one that has another value is of something else.
		if got, ok := has[field]; ok && got != want {
			return "", 0, nil
		}
	}

	if has["instanceType"] == "" || has["regionCode"] != region {
		return "", 0, nil
	}

	for _, term := range p.Terms.OnDemand {
		for _, d := range term.PriceDimensions {
			text, dollars := d.PricePerUnit["USD"]
			if d.Unit != "Hrs" || !dollars {
				continue
			}

			amount, err := job.ParseMoney(text)
			if err != nil {
				return "", 0, fault.New(fault.Internal, "provider_answer", "invalid price of %s: %v", has["instanceType"], err).
					WithCause(err)
			}

			// Of several prices the highest is taken: nothing costs more than it was said to.
			hourly = max(hourly, amount)
		}
	}

	return has["instanceType"], hourly, nil
}
