package openstack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/cloud/openstack"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Exchange is one request and its answer, as they are kept in testdata.
type Exchange struct {
	Service string          `json:"service"` // keystone, nova, glance
	Method  string          `json:"method"`
	Path    string          `json:"path"` // with the query
	Asked   json.RawMessage `json:"asked,omitempty"`
	Status  int             `json:"status"`
	Token   bool            `json:"token,omitempty"` // the answer gave a token
	Answer  json.RawMessage `json:"answer,omitempty"`
}

// hosts rewrites where services are reached: what the provider takes for nova.test is elsewhere.
type hosts struct {
	to   func(host string) string
	base http.RoundTripper
}

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Service", strings.TrimSuffix(r.URL.Host, ".test"))
	r.URL.Host = h.to(r.URL.Host)

	return h.base.RoundTrip(r)
}

// request asks for a machine that is the same every time, so that what is recorded can be compared.
func request(n uint64, flavor string) cloud.Request {
	return cloud.Request{
		Yard: "yard", Lease: id.NewLease(n), Name: fmt.Sprintf("yard-l%d", n),
		Offer: fleet.Offer{Provider: "openstack", Type: flavor, Region: "lab"},
		Boot:  cloud.Boot{Script: "#!/bin/sh\necho hello\n"},
		Until: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC),
	}
}

// world is what a scenario does without the provider. In a replay that is part of the record.
type world interface {
	stop(t *testing.T, server string)
}

// scenario is the life of some servers in a project that may have four cores. It is played
// against real services, which is recorded, and then against the record.
func scenario(t *testing.T, p *openstack.Provider, pause time.Duration, w world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	if all := listed(ctx, t, p); len(all) != 0 {
		t.Fatalf("an empty project has %+v", all)
	}

	offersOf(ctx, t, p)

	first := created(ctx, t, p, request(1, "plain"))
	if again := created(ctx, t, p, request(1, "plain")); again.ID != first.ID {
		t.Errorf("the same lease got %s and then %s", first.ID, again.ID)
	}

	refused(ctx, t, p, request(2, "huge"), fault.OverLimit, cloud.CodeCapacity)
	second := created(ctx, t, p, request(3, "plain"))
	refused(ctx, t, p, request(4, "plain"), fault.OverLimit, cloud.CodeQuota)
	refused(ctx, t, p, request(5, "no-such-flavor"), fault.Invalid, "openstack_no_flavor")
	elsewhere := request(6, "plain")
	elsewhere.Offer.Zone = "no-such-zone"
	refused(ctx, t, p, elsewhere, fault.Invalid, "openstack_refused")

	becomes(ctx, t, p, pause, first.ID, func(one cloud.Instance) bool { return one.State == cloud.Up && one.Why == "" })
	w.stop(t, first.ID)

	off := becomes(ctx, t, p, pause, first.ID, func(one cloud.Instance) bool { return one.Why == "shutoff" })
	if off.State != cloud.Up || off.Lease != "l1" || off.Type != "plain" || off.Region != "lab" || off.Launched.IsZero() ||
		off.Billed >= 0 {
		t.Errorf("a server that shut itself down is listed as %+v", off)
	}

	for _, one := range []cloud.Instance{first, second} {
		if err := p.Terminate(ctx, one.Region, one.ID); err != nil {
			t.Fatalf("terminate: %v", err)
		}
	}

	for len(listed(ctx, t, p)) > 0 {
		if !clock.Sleep(ctx, pause) {
			t.Fatal("the servers never went away")
		}
	}

	if err := p.Terminate(ctx, first.Region, first.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("ending what is gone: %v, want fault.NotFound", err)
	}
}

func listed(ctx context.Context, t *testing.T, p *openstack.Provider) []cloud.Instance {
	t.Helper()
	all, err := p.List(ctx)
	if err != nil {
		t.Fatalf("list: %v (%v)", err, errors.Unwrap(err))
	}

	return all
}

func created(ctx context.Context, t *testing.T, p *openstack.Provider, r cloud.Request) cloud.Instance {
	t.Helper()
	one, err := p.Create(ctx, r)
	if err != nil {
		t.Fatalf("create %s: %v (%v)", r.Lease, err, errors.Unwrap(err))
	}

	if one.ID == "" || one.Lease != r.Lease || one.Type != r.Offer.Type || one.Region != r.Offer.Region ||
		one.State != cloud.Pending && one.State != cloud.Up {
		t.Errorf("asked for %s of type %s, got %+v", r.Lease, r.Offer.Type, one)
	}

	return one
}

func refused(ctx context.Context, t *testing.T, p *openstack.Provider, r cloud.Request, kind fault.Kind, code string) {
	t.Helper()
	one, err := p.Create(ctx, r)

	var got *fault.Error
	if !errors.As(err, &got) || got.Kind != kind || got.Code != code {
		t.Errorf(
			"create %s of %s gave %+v and %v (kind %s), want kind %s and code %s",
			r.Lease,
			r.Offer.Type,
			one,
			err,
			fault.KindOf(err),
			kind,
			code,
		)
	}
}

// becomes waits until a server is listed as it should be, with a pause between two looks.
func becomes(
	ctx context.Context,
	t *testing.T,
	p *openstack.Provider,
	pause time.Duration,
	server string,
	ok func(cloud.Instance) bool,
) cloud.Instance {
	t.Helper()

	for {
		all := listed(ctx, t, p)
		i := slices.IndexFunc(all, func(one cloud.Instance) bool { return one.ID == server })
		if i >= 0 && ok(all[i]) {
			return all[i]
		}

		if !clock.Sleep(ctx, pause) {
			t.Fatalf("%s never became so; the list is %+v", server, all)
		}
	}
}

func offersOf(ctx context.Context, t *testing.T, p *openstack.Provider) {
	t.Helper()
	got, err := p.Offers(ctx)
	if err != nil {
		t.Fatalf("offers: %v", err)
	}

	want := []fleet.Offer{
		{Type: "gpu", GPU: "A100", GPUs: 2, GPUMemory: 40 << 30, CPUs: 8000, Memory: 64 << 30, Hourly: 3_250_000},
		{Type: "huge", CPUs: 1000, Memory: 8_000_000 << 20},
		{Type: "plain", CPUs: 2000, Memory: 2 << 30},
		{Type: "vgpu", GPU: "T4", GPUs: 1, CPUs: 4000, Memory: 16 << 30},
	}

	for i := range want {
		want[i].Provider, want[i].Region, want[i].Name = "openstack", "lab", "openstack/"+want[i].Type+"/lab"
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
}
