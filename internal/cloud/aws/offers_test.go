package aws_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/cloud/aws"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// priceList is a server of the price list API, which moto has not: it answers in pages of
// two, and keeps what it was asked for.
type priceList struct {
	*httptest.Server
	asked []map[string]string
}

func newPriceList(t *testing.T, region string, prices map[string]string) *priceList {
	t.Helper()
	var documents []string
	for kind, price := range prices {
		documents = append(documents, fmt.Sprintf(
			`{"product":{"attributes":{"instanceType":%q,"regionCode":%q,"operatingSystem":"Linux","tenancy":"Shared","preInstalledSw":"NA","capacitystatus":"Used"}},
			"terms":{"OnDemand":{"A.B":{"priceDimensions":{"A.B.C":{"unit":"Hrs","pricePerUnit":{"USD":%q}}}}}}}`,
			kind,
			region,
			price,
		))
	}

	slices.Sort(documents)
	l := &priceList{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ServiceCode string
			Filters     []struct{ Type, Field, Value string }
			NextToken   string
		}

		if err := json.NewDecoder(r.Body).
			Decode(&in); err != nil ||
			r.Header.Get("X-Amz-Target") != "AWSPriceListService.GetProducts" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}

		filters := map[string]string{"serviceCode": in.ServiceCode}
		for _, f := range in.Filters {
			filters[f.Field] = f.Value
		}

		l.asked = append(l.asked, filters)
		from := len(in.NextToken)
		out := map[string]any{"FormatVersion": "aws_v1", "PriceList": documents[from:min(from+2, len(documents))]}
		if from+2 < len(documents) {
			out["NextToken"] = strings.Repeat("x", from+2)
		}

		w.Header().Set("Content-Type", "application/x-amz-json-1.1")

		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	}))

	t.Cleanup(l.Close)

	return l
}

func TestOffersComeFromTypesPricesAndSpotPrices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	list := newPriceList(t, home, map[string]string{
		"g5.xlarge": "1.0060000000", "p4d.24xlarge": "32.7726000000", "t3.micro": "0.0104000000", "x9.huge": "7",
	})
	p := w.provider(func(c *aws.Config) { c.PriceEndpoint = list.URL })
	at := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

	offers, err := p.Offers(t.Context(), aws.OfferFilter{Regions: []string{home}, At: at})
	if err != nil {
		t.Fatal(err)
	}

	if !slices.IsSortedFunc(offers, func(a, b fleet.Offer) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the offers are not in order")
	}

	byName := map[string]fleet.Offer{}
	for _, o := range offers {
		if o.GPUs == 0 || o.Name != o.NameOf() || o.Hourly <= 0 || o.CPUs <= 0 || o.Memory <= 0 || o.GPUMemory <= 0 ||
			o.Spot != (o.Zone != "") {
			t.Errorf("%+v is no offer of a machine with GPUs", o)
		}

		byName[o.Name] = o
	}

	if len(byName) != len(offers) {
		t.Errorf("%d offers have %d names", len(offers), len(byName))
	}

	if _, ok := byName["aws/t3.micro/us-east-1"]; ok {
		t.Error("a type without GPU was not asked for")
	}

	want := fleet.Offer{
		Name:       "aws/p4d.24xlarge/us-east-1",
		Provider:   "aws",
		Type:       "p4d.24xlarge",
		Region:     home,
		GPU:        "A100",
		GPUs:       8,
		GPUMemory:  40 << 30,
		CPUs:       96_000,
		Memory:     1152 << 30,
		Hourly:     32_772_600,
		MinBilling: job.Duration(time.Minute),
	}

	if diff := cmp.Diff(want, byName[want.Name]); diff != "" {
		t.Errorf("p4d.24xlarge (-want +got):\n%s", diff)
	}

	want.Spot = true
	want.Zone = home + "a"
	want.Hourly = byName["aws/p4d.24xlarge/us-east-1/us-east-1a/spot"].Hourly
	want.Name = want.NameOf()
	if diff := cmp.Diff(want, byName[want.Name]); diff != "" {
		t.Errorf("p4d.24xlarge as spot (-want +got):\n%s", diff)
	}

	for _, asked := range list.asked {
		if asked["serviceCode"] != "AmazonEC2" || asked["regionCode"] != home || asked["operatingSystem"] != "Linux" ||
			asked["capacitystatus"] != "Used" {
			t.Errorf("the price list was asked for %v", asked)
		}
	}

	if len(list.asked) != 2 {
		t.Errorf("the price list was asked %d times, want two pages", len(list.asked))
	}
}

func TestOffersOfTypesByPattern(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	list := newPriceList(t, home, map[string]string{"t3.micro": "0.0104000000", "t3.nano": "0.0052", "g5.xlarge": "1"})
	p := w.provider(func(c *aws.Config) { c.PriceEndpoint = list.URL })

	offers, err := p.Offers(
		t.Context(),
		aws.OfferFilter{Regions: []string{home}, Types: []string{"t3.*o"}, At: time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)},
	)
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, o := range offers {
		if !o.Spot {
			names = append(names, o.Name+" "+o.Hourly.String())
		}
	}

	if diff := cmp.Diff([]string{"aws/t3.micro/us-east-1 $0.0104", "aws/t3.nano/us-east-1 $0.0052"}, names); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
}

// newQuotas is a server of the API of service quotas, which moto has only in parts.
func newQuotas(t *testing.T, values map[string]float64) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ ServiceCode, QuotaCode string }
		if err := json.NewDecoder(r.Body).
			Decode(&in); err != nil || in.ServiceCode != "ec2" ||
			r.Header.Get("X-Amz-Target") != "ServiceQuotasV20190624.GetServiceQuota" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}

		out := any(map[string]any{"Quota": map[string]any{"QuotaCode": in.QuotaCode, "Value": values[in.QuotaCode]}})
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")

		if _, ok := values[in.QuotaCode]; !ok {
			w.WriteHeader(http.StatusBadRequest)
			out = map[string]string{"__type": "NoSuchResourceException", "Message": "no such quota"}
		}

		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	}))

	t.Cleanup(server.Close)

	return server
}

func TestOffersThatTheAccountMayNotHaveAreLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	list := newPriceList(t, home, map[string]string{"g5.xlarge": "1", "g5.48xlarge": "16", "p5.48xlarge": "55"})
	quotas := newQuotas(t, map[string]float64{"L-DB2E81BA": 64, "L-417A185B": 0, "L-3819A6DF": 4})
	p := w.provider(func(c *aws.Config) { c.PriceEndpoint, c.QuotaEndpoint = list.URL, quotas.URL })

	offers, err := p.Offers(t.Context(), aws.OfferFilter{
		Regions: []string{home}, Types: []string{"g5.xlarge", "g5.48xlarge", "p5.48xlarge"}, Quotas: true,
		At: time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}

	found := map[string]int{}
	for _, o := range offers {
		found[o.Type+fmt.Sprintf(" spot %t", o.Spot)] = o.MaxNodes
	}

	// Nothing is said of spot machines of the fifth generation: they may be asked for.
	want := map[string]int{"g5.xlarge spot false": 16, "g5.xlarge spot true": 1, "p5.48xlarge spot true": 0}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("the most of each (-want +got):\n%s", diff)
	}
}

func TestOffersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	now := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(http.StatusBadRequest)

		if _, err := w.Write([]byte(`{"__type":"AccessDeniedException","message":"not you"}`)); err != nil {
			t.Error(err)
		}
	}))

	t.Cleanup(broken.Close)

	fine := newPriceList(t, home, map[string]string{"g5.xlarge": "1"})
	for _, c := range []struct {
		name   string
		prices string
		wanted aws.OfferFilter
		kind   fault.Kind
		code   string
	}{
		{"no time", broken.URL, aws.OfferFilter{}, fault.Invalid, "bad_time"},
		{"bad pattern", broken.URL, aws.OfferFilter{Types: []string{"g5.["}, At: now}, fault.Invalid, "bad_pattern"},
		{"no price list", "", aws.OfferFilter{At: now}, fault.Invalid, "aws_config"},
		{"denied", broken.URL, aws.OfferFilter{At: now}, fault.Denied, "denied"},
		{"no quotas", fine.URL, aws.OfferFilter{Types: []string{"g5.xlarge"}, Quotas: true, At: now}, fault.Invalid, "aws_config"},
	} {
		_, err := w.provider(func(cfg *aws.Config) { cfg.PriceEndpoint = c.prices }).Offers(t.Context(), c.wanted)
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v", c.name, err)
		}

		wantFault(t, err, c.kind, c.code)
	}
}
