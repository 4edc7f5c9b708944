package aws

import (
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"trainyard/internal/cloud"
	"trainyard/internal/fault"
)

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{Yard: "lab", Regions: []string{"us-east-1"}, ImageOwner: "amazon", ImageName: "deep-learning-*"}
	}
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"", func(*Config) {}},
		{"", func(c *Config) {
			c.ImageName = ""
			c.ImageOwner = ""
			c.Images = map[string]string{"us-east-1": "ami-1"}
		}},
		{"yard", func(c *Config) { c.Yard = "" }},
		{"yard", func(c *Config) { c.Yard = "lab*" }},
		{"regions", func(c *Config) { c.Regions = nil }},
		{"regions", func(c *Config) { c.Regions = []string{"us-east-1", "us-east-1"} }},
		{"images", func(c *Config) { c.ImageName = "" }},
		{"images", func(c *Config) {
			c.ImageName = ""
			c.Images = map[string]string{"us-east-1": "ami-1"}
			c.Regions = []string{"us-east-1", "us-west-2"}
		}},
		{"image_owner", func(c *Config) { c.ImageOwner = "" }},
		{"endpoint", func(c *Config) { c.Endpoint = "localhost" }},
		{"price_endpoint", func(c *Config) { c.PriceEndpoint = "::" }},
		{"quota_endpoint", func(c *Config) { c.QuotaEndpoint = "not an address" }},
		{"tags", func(c *Config) { c.Tags = map[string]string{cloud.TagLease: "l7"} }},
		{"tags", func(c *Config) { c.Tags = map[string]string{"aws:autoscaling": "x"} }},
		{"spot_max", func(c *Config) { c.SpotMax = -1 }},
		{"disk_gb", func(c *Config) { c.DiskGB = -1 }},
	} {
		cfg := good()
		c.change(&cfg)
		err := cfg.check()
		if c.field == "" {
			if err != nil {
				t.Errorf("%+v: %v", cfg, err)
			}

			continue
		}

		f, ok := err.(*fault.Error) //nolint:errorlint // check makes it itself
		if !ok || f.Kind != fault.Invalid || f.Field != c.field {
			t.Errorf("error = %v, want one about %s", err, c.field)
		}
	}

	p, err := New(t.Context(), good())
	if err != nil || p.Name() != "aws" {
		t.Errorf("a provider called %q, %v", p.Name(), err)
	}

	bad := good()
	bad.Profile = "no-such-profile"
	if _, err := New(t.Context(), bad); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a profile that does not exist: %v", err)
	}
}

func TestMachinesAreReadAsAmazonShowsThem(t *testing.T) {
	t.Parallel()
	launched := time.Date(2026, 11, 15, 7, 0, 0, 0, time.UTC)
	base := types.Instance{
		InstanceId:       sdk.String("i-1"),
		InstanceType:     "g5.xlarge",
		LaunchTime:       &launched,
		PrivateIpAddress: sdk.String("10.0.0.7"),
		Placement:        &types.Placement{AvailabilityZone: sdk.String("us-east-1d")},
		Tags: []types.Tag{
			{Key: sdk.String("Name"), Value: sdk.String("x")},
			{Key: sdk.String(cloud.TagLease), Value: sdk.String("l7")},
		},
	}

	want := cloud.Instance{
		ID:       "i-1",
		Lease:    "l7",
		Region:   "us-east-1",
		Zone:     "us-east-1d",
		Type:     "g5.xlarge",
		Address:  "10.0.0.7",
		Launched: launched,
		Billed:   -1,
	}

	for _, c := range []struct {
		name   string
		change func(*types.Instance)
		want   func(*cloud.Instance)
	}{
		{"pending", inState("pending"), func(i *cloud.Instance) { i.State = cloud.Pending }},
		{"no state yet", func(*types.Instance) {}, func(i *cloud.Instance) { i.State = cloud.Pending }},
		{"running", inState("running"), func(i *cloud.Instance) { i.State = cloud.Up }},
		{"stopped is not over", inState("stopped"), func(i *cloud.Instance) { i.State = cloud.Up }},
		{"stopping is not over", inState("stopping"), func(i *cloud.Instance) { i.State = cloud.Up }},
		{"reachable from outside", func(i *types.Instance) {
			inState("running")(i)
			i.PublicIpAddress = sdk.String("203.0.113.9")
		}, func(i *cloud.Instance) { i.State, i.Address = cloud.Up, "203.0.113.9" }},
		{"spot", func(i *types.Instance) {
			inState("running")(i)
			i.InstanceLifecycle = types.InstanceLifecycleTypeSpot
		}, func(i *cloud.Instance) { i.State, i.Spot = cloud.Up, true }},
		{"being taken back", func(i *types.Instance) {
			inState("shutting-down")(i)
			i.InstanceLifecycle = types.InstanceLifecycleTypeSpot
			i.StateReason = &types.StateReason{Code: sdk.String("Server.SpotInstanceTermination"), Message: sdk.String("Spot instance termination")}
		}, func(i *cloud.Instance) { i.State, i.Spot, i.Why = cloud.Ending, true, "spot" }},
		{"ended by someone", func(i *types.Instance) {
			inState("terminated")(i)
			i.StateReason = &types.StateReason{Code: sdk.String("Client.UserInitiatedShutdown"), Message: sdk.String("Client.UserInitiatedShutdown: User initiated shutdown")}
			i.StateTransitionReason = sdk.String("User initiated (2026-11-15 08:30:05 GMT)")
		}, func(i *cloud.Instance) {
			i.State, i.Why, i.Ended = cloud.Gone, "Client.UserInitiatedShutdown: User initiated shutdown", time.Date(2026, 11, 15, 8, 30, 5, 0, time.UTC)
		}},
		{"ended, and nothing is said", inState("terminated"), func(i *cloud.Instance) { i.State = cloud.Gone }},
		{"ended at a time that does not exist", func(i *types.Instance) {
			inState("terminated")(i)
			i.StateTransitionReason = sdk.String("User initiated (2026-13-45 08:30:05 GMT)")
		}, func(i *cloud.Instance) { i.State, i.Why = cloud.Gone, "User initiated (2026-13-45 08:30:05 GMT)" }},
	} {
		from, to := base, want
		c.change(&from)

		c.want(&to)
		if diff := cmp.Diff(to, instance(&from, "us-east-1")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func inState(name types.InstanceStateName) func(*types.Instance) {
	return func(i *types.Instance) { i.State = &types.InstanceState{Name: name} }
}

func TestNewestSpotPriceOfAZoneHolds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 15, 7, 0, 0, 0, time.UTC)
	price := func(zone, amount string, hours int) types.SpotPrice {
		since := at.Add(time.Duration(hours) * time.Hour)
		return types.SpotPrice{
			InstanceType:     "g5.xlarge",
			AvailabilityZone: sdk.String(zone),
			SpotPrice:        sdk.String(amount),
			Timestamp:        &since,
		}
	}

	got, err := newest([]types.SpotPrice{
		price("us-east-1a", "0.40", -2), price("us-east-1a", "0.4321", -1), price("us-east-1a", "0.39", -5),
		price("us-east-1b", "0.5", 0), price("us-east-1c", "0.0", 0), price("", "0.1", 0),
	})
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]map[string]quote{"g5.xlarge": {
		"us-east-1a": {432_100, at.Add(-time.Hour)}, "us-east-1b": {500_000, at},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(quote{})); diff != "" {
		t.Errorf("prices (-want +got):\n%s", diff)
	}

	if _, err := newest([]types.SpotPrice{price("us-east-1a", "cheap", 0)}); err == nil {
		t.Error("a price that is no number was taken")
	}
}
