package aws_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/aws"
	"trainyard/internal/cloud/cloudtest"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// request asks for a plain machine of the world's yard.
func (w *world) request(n uint64) cloud.Request {
	return cloud.Request{
		Yard: w.yard, Lease: id.NewLease(n), Name: fmt.Sprintf("%s-l%d", w.yard, n),
		Offer: fleet.Offer{Provider: "aws", Type: "g5.xlarge", Region: home, Hourly: 1_006_000},
		Boot:  cloud.Boot{Script: "#!/bin/sh\n"},
		Until: time.Date(2026, 11, 15, 9, 30, 0, 0, time.FixedZone("CET", 3600)),
	}
}

// record keeps the forms of an action, in the order in which they came, and lets it happen.
func (w *world) record(name string, then cloudtest.Trouble) func() []url.Values {
	var mu sync.Mutex
	var forms []url.Values
	w.While(action(name), func(rw http.ResponseWriter, a *cloudtest.Request) {
		mu.Lock()
		forms = append(forms, a.Form)
		mu.Unlock()
		then(rw, a)
	})

	return func() []url.Values {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(forms)
	}
}

func (w *world) create(p cloud.Provider, r cloud.Request) cloud.Instance {
	w.t.Helper()
	got, err := p.Create(w.t.Context(), r)
	if err != nil {
		w.t.Fatalf("%v (%v)", err, errors.Unwrap(err))
	}

	return got
}

// wantFault checks the kind and the code of an error.
func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	var got *fault.Error
	if !errors.As(err, &got) || got.Kind != kind || got.Code != code {
		t.Errorf("error = %v (kind %s), want one of kind %s with code %s", err, fault.KindOf(err), kind, code)
	}
}

func TestMachineIsOrderedSoThatItEndsForGoodAndLetsNothingIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	forms := w.record("RunInstances", w.runs)
	p := w.provider(func(c *aws.Config) { c.Tags = map[string]string{"cost-centre": "lab 7"} })
	made := w.create(p, w.request(1))

	got := maps.Clone(forms()[0])
	for _, varies := range []string{"ImageId", "SecurityGroupId.1", "Version", "UserData"} {
		got.Del(varies)
	}

	want := url.Values{
		"Action": {
			"RunInstances",
		},
		"ClientToken":                       {w.yard + "-l1"},
		"InstanceType":                      {"g5.xlarge"},
		"MinCount":                          {"1"},
		"MaxCount":                          {"1"},
		"InstanceInitiatedShutdownBehavior": {"terminate"},
		"MetadataOptions.HttpTokens": {
			"required",
		},
		"MetadataOptions.HttpEndpoint":            {"enabled"},
		"MetadataOptions.HttpPutResponseHopLimit": {"1"},
	}

	for i, kind := range []string{"instance", "volume"} {
		spec := fmt.Sprintf("TagSpecification.%d.", i+1)
		want.Set(spec+"ResourceType", kind)

		for n, tag := range [][2]string{
			{"Name", w.yard + "-l1"}, {"cost-centre", "lab 7"}, {cloud.TagLease, "l1"}, {cloud.TagUntil, "2026-11-15T08:30:00Z"}, {cloud.TagYard, w.yard},
		} {
			want.Set(fmt.Sprintf("%sTag.%d.Key", spec, n+1), tag[0])
			want.Set(fmt.Sprintf("%sTag.%d.Value", spec, n+1), tag[1])
		}
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the order (-want +got):\n%s", diff)
	}

	groups, err := w.raw[home].DescribeSecurityGroups(
		t.Context(),
		&ec2.DescribeSecurityGroupsInput{GroupIds: []string{forms()[0].Get("SecurityGroupId.1")}},
	)
	if err != nil {
		t.Fatal(err)
	}

	g := groups.SecurityGroups[0]
	if len(g.IpPermissions) != 0 || sdk.ToString(g.GroupName) != "trainyard-"+w.yard {
		t.Errorf("%s is in the group %+v, want one that lets nothing in", made.ID, g)
	}
}

func TestSettingsReachTheOrder(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		set    func(*aws.Config)
		change func(*cloud.Request)
		want   map[string]string
	}{
		{
			"spot", nil, func(r *cloud.Request) { r.Offer.Spot = true },
			map[string]string{
				"InstanceMarketOptions.MarketType": "spot", "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
				"InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate", "InstanceMarketOptions.SpotOptions.MaxPrice": "",
				"TagSpecification.3.ResourceType": "spot-instances-request",
			},
		},
		{
			"spot with a limit", func(c *aws.Config) { c.SpotMax = 1.5 }, func(r *cloud.Request) { r.Offer.Spot = true },
			map[string]string{"InstanceMarketOptions.SpotOptions.MaxPrice": "1.509000"},
		},
		{"zone", nil, func(r *cloud.Request) { r.Offer.Zone = home + "c" }, map[string]string{"Placement.AvailabilityZone": home + "c", "SubnetId": ""}},
		{
			"disk", func(c *aws.Config) { c.DiskGB = 200 }, nil,
			map[string]string{
				"BlockDeviceMapping.1.DeviceName": "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeSize": "200",
				"BlockDeviceMapping.1.Ebs.VolumeType": "gp3", "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
			},
		},
		{"key", func(c *aws.Config) { c.KeyName = "ann" }, nil, map[string]string{"KeyName": "ann"}},
		{"role", func(c *aws.Config) { c.InstanceProfile = "trainer" }, nil, map[string]string{"IamInstanceProfile.Name": "trainer"}},
		{"group", func(c *aws.Config) { c.SecurityGroup = "sg-0123" }, nil, map[string]string{"SecurityGroupId.1": "sg-0123"}},
		{
			"image", func(c *aws.Config) { c.Images = map[string]string{home: "ami-35e92e4c"} }, nil,
			map[string]string{"ImageId": "ami-35e92e4c"},
		},
		{"newest image", nil, nil, map[string]string{"ImageId": "ami-1e749f67"}},
		{
			"long yard", func(c *aws.Config) { c.Yard = strings.Repeat("y", 70) }, func(r *cloud.Request) { r.Yard = strings.Repeat("y", 70) },
			// sha256 of seventy y, a hyphen and l1.
			map[string]string{"ClientToken": "1e3140b43ad7cfa9a261054314721acce5cc7aa6a735e3382331460ea1a7c2e4"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)

			// Not all that is set exists at moto: the order is refused once it has been seen.
			forms := w.record("RunInstances", refuse(http.StatusBadRequest, "Unsupported", "seen"))

			var change []func(*aws.Config)
			if c.set != nil {
				change = append(change, c.set)
			}

			r := w.request(1)
			if c.change != nil {
				c.change(&r)
			}

			_, err := w.provider(change...).Create(t.Context(), r)
			wantFault(t, err, fault.Invalid, "bad_offer")

			if len(forms()) != 1 {
				t.Fatalf("asked %d times, want once", len(forms()))
			}

			for field, want := range c.want {
				if got := forms()[0].Get(field); got != want {
					t.Errorf("%s = %q, want %q", field, got, want)
				}
			}
		})
	}
}

func TestErrorCodesSayWhatIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	p := w.provider()
	for _, c := range []struct {
		status int
		code   string
		kind   fault.Kind
		want   string
	}{
		{500, "InsufficientInstanceCapacity", fault.OverLimit, cloud.CodeCapacity},
		{400, "InsufficientFreeAddressesInSubnet", fault.OverLimit, cloud.CodeCapacity},
		{400, "InstanceLimitExceeded", fault.OverLimit, cloud.CodeQuota},
		{400, "VcpuLimitExceeded", fault.OverLimit, cloud.CodeQuota},
		{400, "MaxSpotInstanceCountExceeded", fault.OverLimit, cloud.CodeQuota},
		{400, "PendingVerification", fault.OverLimit, cloud.CodeQuota},
		{400, "SpotMaxPriceTooLow", fault.OverLimit, cloud.CodePrice},
		{400, "Unsupported", fault.Invalid, "bad_offer"},
		{400, "InvalidParameterValue", fault.Invalid, "bad_offer"},
		{400, "InvalidKeyPair.NotFound", fault.Invalid, "bad_offer"},
		{400, "InvalidSubnetID.NotFound", fault.Invalid, "bad_offer"},
		{403, "UnauthorizedOperation", fault.Denied, "denied"},
		{401, "AuthFailure", fault.Denied, "denied"},
		{400, "RequestExpired", fault.Denied, "denied"},
		{503, "RequestLimitExceeded", fault.Unavailable, "provider_busy"},
		{500, "InternalError", fault.Unavailable, "provider_unreachable"},
		{503, "Unavailable", fault.Unavailable, "provider_unreachable"},
		{400, "SomethingNobodyHasHeardOf", fault.Unavailable, "provider_unreachable"},
	} {
		w.Next(action("RunInstances"), refuse(c.status, c.code, "says the test."))
		_, err := p.Create(t.Context(), w.request(1))
		wantFault(t, err, c.kind, c.want)

		if err != nil && !strings.Contains(err.Error(), "g5.xlarge in us-east-1 for l1") {
			t.Errorf("%s: %q does not say what was being done", c.code, err)
		}
	}

	if left := w.machines(t); len(left) != 0 {
		t.Errorf("refusals have left %+v", left)
	}
}

func TestCreateIsAskedOnceAndReadsAreTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	p := w.provider()
	busy := refuse(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded.")
	w.Next(action("DescribeImages"), busy)
	w.Next(action("DescribeSecurityGroups"), busy)
	made := w.create(p, w.request(1))

	w.Next(action("DescribeInstances"), busy)

	all, err := p.List(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != made.ID {
		t.Errorf("list = %+v, %v, want %s after a second try", all, err, made.ID)
	}

	creates := w.record("RunInstances", busy)
	ends := w.record("TerminateInstances", busy)
	_, err = p.Create(t.Context(), w.request(2))
	wantFault(t, err, fault.Unavailable, "provider_busy")
	wantFault(t, p.Terminate(t.Context(), home, made.ID), fault.Unavailable, "provider_busy")

	if len(creates()) != 1 || len(ends()) != 1 {
		t.Errorf("asked to create %d times and to end %d times, want once each", len(creates()), len(ends()))
	}
}

func TestSameLeaseInOtherWordsIsTheSameMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	p := w.provider()
	r := w.request(1)
	made := w.create(p, r)
	r.Until = r.Until.Add(time.Hour)
	r.Boot.Script += "echo later\n"
	if again := w.create(p, r); again.ID != made.ID || again.Lease != "l1" {
		t.Errorf("asked again in other words, got %+v, want %s", again, made.ID)
	}

	catchup := w.lag()
	r = w.request(2)
	made = w.create(p, r)
	r.Until = r.Until.Add(time.Hour)
	_, err := p.Create(t.Context(), r)
	wantFault(t, err, fault.Unavailable, "provider_unreachable") // there is one, and it is not shown yet
	catchup()

	if again := w.create(p, r); again.ID != made.ID {
		t.Errorf("asked again in other words, got %+v, want %s", again, made.ID)
	}
}

func TestRequestThatArrivesTwice(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		tokens bool
		want   int
	}{{"is one machine by its token", true, 1}, {"is two machines of one lease where tokens are ignored", false, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.tokens)
			p := w.provider()

			w.Next(action("RunInstances"), func(rw http.ResponseWriter, a *cloudtest.Request) {
				w.runs(httptest.NewRecorder(), a)
				w.runs(rw, a)
			})

			w.create(p, w.request(1))

			all, err := p.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			if len(all) != c.want || slices.ContainsFunc(all, func(i cloud.Instance) bool { return i.Lease != "l1" }) {
				t.Errorf("the list is %+v, want %d of l1", all, c.want)
			}
		})
	}
}

func TestRequestsThatCannotWorkAreNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	p := w.provider()
	forms := w.record("RunInstances", w.runs)

	for name, change := range map[string]func(*cloud.Request){
		"another yard":     func(r *cloud.Request) { r.Yard = "elsewhere" },
		"no lease":         func(r *cloud.Request) { r.Lease = "" },
		"another region":   func(r *cloud.Request) { r.Offer.Region = "ap-south-1" },
		"a script too big": func(r *cloud.Request) { r.Boot.Script = strings.Repeat("#", 16<<10+1) },
	} {
		r := w.request(1)
		change(&r)
		_, err := p.Create(t.Context(), r)
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want it to be refused", name, err)
		}
	}

	if len(forms()) != 0 {
		t.Errorf("%d requests were sent", len(forms()))
	}
}
