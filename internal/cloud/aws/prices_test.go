package aws

import (
	"strings"
	"testing"

	"trainyard/internal/job"
)

// document is an entry of the price list as Amazon writes it, in short.
const document = `{
  "product": {
    "productFamily": "Compute Instance", "sku": "SKU1",
    "attributes": {
      "instanceType": "g4dn.xlarge", "regionCode": "eu-west-1", "operatingSystem": "Linux", "tenancy": "Shared",
      "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand", "vcpu": "4", "memory": "16 GiB", "gpu": "1"
    }
  },
  "serviceCode": "AmazonEC2",
  "terms": {
    "OnDemand": {
      "SKU1.T1": {"priceDimensions": {"SKU1.T1.D1": {"unit": "Hrs", "endRange": "Inf", "pricePerUnit": {"USD": "0.5870000000"}}}, "offerTermCode": "T1"}
    },
    "Reserved": {
      "SKU1.T2": {"priceDimensions": {"SKU1.T2.D1": {"unit": "Quantity", "pricePerUnit": {"USD": "1800"}}, "SKU1.T2.D2": {"unit": "Hrs", "pricePerUnit": {"USD": "0.1"}}}}
    }
  }
}`

func TestPriceListEntries(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name     string
		old, new string
		want     job.Money
		fails    bool
	}{
		{name: "a machine by the hour", want: 587_000},
		{name: "a licence to pay for", old: `"operatingSystem": "Linux"`, new: `"operatingSystem": "Windows"`},
		{name: "software on it", old: `"preInstalledSw": "NA"`, new: `"preInstalledSw": "SQL Ent"`},
		{name: "a dedicated machine", old: `"tenancy": "Shared"`, new: `"tenancy": "Dedicated"`},
		{name: "held and not used", old: `"capacitystatus": "Used"`, new: `"capacitystatus": "UnusedCapacityReservation"`},
		{name: "bought as a block", old: `"marketoption": "OnDemand"`, new: `"marketoption": "CapacityBlock"`},
		{name: "no market named", old: `"marketoption": "OnDemand", `, new: ``, want: 587_000},
		{name: "another region", old: `"regionCode": "eu-west-1"`, new: `"regionCode": "eu-west-2"`},
		{name: "no machine", old: `"instanceType": "g4dn.xlarge", `, new: ``},
		{name: "by the month", old: `"unit": "Hrs", "endRange"`, new: `"unit": "Mo", "endRange"`},
		{name: "in another currency", old: `{"USD": "0.5870000000"}`, new: `{"CNY": "4.2"}`},
		{name: "for nothing", old: `0.5870000000`, new: `0.0000000000`},
		{name: "two prices", old: `"SKU1.T1.D1":`, new: `"SKU1.T1.D0": {"unit": "Hrs", "pricePerUnit": {"USD": "0.9"}}, "SKU1.T1.D1":`, want: 900_000},
		{name: "no number", old: `0.5870000000`, new: `cheap`, fails: true},
		{name: "no JSON", old: `"product": {`, new: `"product": [`, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := document
			if c.old != "" {
				text = strings.Replace(document, c.old, c.new, 1)
				if text == document {
					t.Fatalf("%q is not in the document", c.old)
				}
			}

			kind, got, err := readPrice(text, "eu-west-1")
			if (err != nil) != c.fails || got != c.want {
				t.Errorf("price = %s of %q, %v, want %s", got, kind, err, c.want)
			}

			if got > 0 && kind != "g4dn.xlarge" {
				t.Errorf("it is the price of %q", kind)
			}
		})
	}
}
