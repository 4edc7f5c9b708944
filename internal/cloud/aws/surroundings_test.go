package aws_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/aws"
	"trainyard/internal/fault"
)

func TestGroupIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	made := w.record("CreateSecurityGroup", w.Through)
	looked := w.record("DescribeSecurityGroups", w.Through)
	used := w.record("RunInstances", w.runs)
	p := w.provider()

	var wg sync.WaitGroup
	for i := range uint64(4) {
		wg.Go(func() {
			if _, err := p.Create(t.Context(), w.request(i+1)); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	w.create(w.provider(), w.request(5)) // as after a new start

	if len(made()) != 1 || len(looked()) != 2 {
		t.Errorf(
			"%d groups were made, and looked for %d times, want 1, and once by each provider",
			len(made()),
			len(looked()),
		)
	}

	for _, f := range used() {
		if f.Get("SecurityGroupId.1") != used()[0].Get("SecurityGroupId.1") {
			t.Errorf("machines are in the groups %s and %s", f.Get("SecurityGroupId.1"), used()[0].Get("SecurityGroupId.1"))
		}
	}
}

func TestGroupThatAnotherServerMadeJustNowIsUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.create(w.provider(), w.request(1))

	w.Next(action("DescribeSecurityGroups"), func(rw http.ResponseWriter, a *asked) {
		a.Form.Set("Filter.1.Value.1", "no such group")
		a.Body = []byte(a.Form.Encode())
		w.Through(rw, a)
	})

	w.create(w.provider(), w.request(2))
}

func TestWhatSomeoneDeletedIsLookedUpAgain(t *testing.T) {
	t.Parallel()

	for _, code := range []string{"InvalidGroup.NotFound", "InvalidAMIID.NotFound"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			p := w.provider()
			w.create(p, w.request(1))
			images, groups := w.record("DescribeImages", w.Through), w.record("DescribeSecurityGroups", w.Through)
			w.Next(action("RunInstances"), refuse(http.StatusBadRequest, code, "it does not exist"))
			_, err := p.Create(t.Context(), w.request(2))
			wantFault(t, err, fault.Unavailable, "provider_changed")
			w.create(p, w.request(2))

			if len(images())+len(groups()) != 1 {
				t.Errorf("looked up %d images and %d groups, want the one that was gone", len(images()), len(groups()))
			}
		})
	}

	t.Run("a group of the settings is not", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, true)
		_, err := w.provider(func(c *aws.Config) { c.SecurityGroup = "sg-0123" }).Create(t.Context(), w.request(1))
		wantFault(t, err, fault.Invalid, "bad_offer")
	})
}

func TestImageThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	_, err := w.provider(func(c *aws.Config) { c.ImageName = "no-such-image-*" }).Create(t.Context(), w.request(1))
	wantFault(t, err, fault.Invalid, "bad_image")
	_, err = w.provider(func(c *aws.Config) { c.Images = map[string]string{home: "ami-00000000"} }).
		Create(t.Context(), w.request(1))
	wantFault(t, err, fault.Invalid, "bad_offer")
}

func TestMachinesOfOneRegionTakeTurnsAmongItsSubnets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	vpc, err := w.raw[home].CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.7.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}

	subnets := map[string]string{}
	for zone, block := range map[string]string{home + "a": "10.7.0.0/24", home + "b": "10.7.1.0/24"} {
		out, err := w.raw[home].CreateSubnet(t.Context(), &ec2.CreateSubnetInput{
			VpcId: vpc.Vpc.VpcId, CidrBlock: sdk.String(block), AvailabilityZone: sdk.String(zone),
		})
		if err != nil {
			t.Fatal(err)
		}

		subnets[zone] = sdk.ToString(out.Subnet.SubnetId)
	}

	p := w.provider(func(c *aws.Config) { c.Subnets = subnets })
	for n, zone := range []string{home + "a", home + "b", home + "a"} {
		if made := w.create(p, w.request(uint64(n+2))); made.Zone != zone {
			t.Errorf("machine %d is in %s, want %s", n, made.Zone, zone)
		}
	}

	r := w.request(10)
	r.Offer.Zone = home + "b"
	if made := w.create(p, r); made.Zone != home+"b" {
		t.Errorf("asked for one in %sb, got one in %s", home, made.Zone)
	}

	groups, err := w.raw[home].DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{
		Filters: []types.Filter{{Name: sdk.String("group-name"), Values: []string{"trainyard-" + w.yard}}},
	})
	if err != nil || len(groups.SecurityGroups) != 1 ||
		sdk.ToString(groups.SecurityGroups[0].VpcId) != sdk.ToString(vpc.Vpc.VpcId) {
		t.Errorf("groups = %+v, %v, want one, in the network of the subnets", groups, err)
	}
}

func TestRegions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	p := w.provider()
	r := w.request(2)
	r.Offer.Region = elsewhere
	here, there := w.create(p, w.request(1)), w.create(p, r)

	all, err := p.List(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != there.ID || all[0].Region != elsewhere || all[1].ID != here.ID ||
		all[1].Region != home {
		t.Fatalf("list = %+v, %v, want one in each region", all, err)
	}

	wantFault(t, p.Terminate(t.Context(), home, there.ID), fault.NotFound, "no_such_machine")

	// A region that is not in the settings any more is not listed, but its machines can be ended.
	left := w.provider(func(c *aws.Config) { c.Regions = []string{home} })
	if err := left.Terminate(t.Context(), elsewhere, there.ID); err != nil {
		t.Error(err)
	}

	all, err = p.List(t.Context())
	if err != nil ||
		!slices.ContainsFunc(all, func(i cloud.Instance) bool { return i.ID == there.ID && i.State == cloud.Gone }) {
		t.Errorf("list = %+v, %v, want %s to be gone", all, err, there.ID)
	}

	stop := w.While(
		func(a *asked) bool { return inRegion(a, elsewhere) },
		refuse(http.StatusServiceUnavailable, "Unavailable", "down"),
	)
	defer stop()

	if all, err := p.List(t.Context()); err == nil {
		t.Errorf("a region did not answer, and the list is %+v", all)
	}

	w.create(p, w.request(3)) // the other region works
}
