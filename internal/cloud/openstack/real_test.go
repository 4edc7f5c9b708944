//go:build openstack

package openstack_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/cloudtest"
	"trainyard/internal/cloud/openstack"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

func TestContract(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, func(t *testing.T) cloudtest.Env {
		t.Helper()
		return newContract(t).env(t)
	})
}

// contract is a project behind proxies that can make trouble, one for each service.
type contract struct {
	*project
	proxies map[string]*cloudtest.Proxy // by host and port of the service
	compute *cloudtest.Proxy
}

func newContract(t *testing.T) *contract {
	t.Helper()
	c := &contract{project: theLab.project(t), proxies: map[string]*cloudtest.Proxy{}}
	for _, name := range []string{"OS_AUTH_URL", "NOVA_URL", "GLANCE_URL"} {
		u, err := url.Parse(theLab.vars[name])
		if err != nil {
			t.Fatal(err)
		}

		c.proxies[u.Host] = cloudtest.NewProxy(t, "http://"+u.Host)
		if name == "NOVA_URL" {
			c.compute = c.proxies[u.Host]
		}
	}

	return c
}

// provider returns one that speaks through the proxies.
func (c *contract) provider(t *testing.T, config openstack.Config) *openstack.Provider {
	t.Helper()
	p, err := openstack.New("yard", config)
	if err != nil {
		t.Fatal(err)
	}

	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	p.Through(hosts{base: transport, to: func(host string) string {
		return strings.TrimPrefix(c.proxies[host].URL, "http://")
	}})
	p.Patience(20*time.Second, 100*time.Millisecond)

	return p
}

func isCreate(a *cloudtest.Asked) bool {
	return a.Method == http.MethodPost && strings.HasSuffix(a.URL.Path, "/servers")
}

func isEnd(a *cloudtest.Asked) bool { return a.Method == http.MethodDelete }

func (c *contract) env(t *testing.T) cloudtest.Env {
	t.Helper()
	const noSpot = "OpenStack has no spot servers"
	offer := fleet.Offer{Name: "openstack/plain/lab", Provider: "openstack", Type: "plain", Region: "lab", Zone: "nova"}
	unknown := offer
	unknown.Type = "no-such-flavor"

	return cloudtest.Env{
		Provider: c.provider(t, c.config()), Yard: "yard", Offer: offer, Unknown: unknown, Once: cloudtest.InTurn, Many: 8,
		Machines:   c.machines,
		NoCapacity: c.noCapacity, NoQuota: c.noQuota,
		LoseReply: func(*testing.T) {
			c.compute.Next(func(a *cloudtest.Asked) bool { return isCreate(a) || isEnd(a) }, c.compute.Lose)
		},
		Cut: func(*testing.T) { c.compute.Next(isCreate, cloudtest.Cut) },
		Down: func(*testing.T) func() {
			return c.all(cloudtest.Say(http.StatusServiceUnavailable, "text/plain", "down"))
		},
		Hang: func(*testing.T) func() {
			until := make(chan struct{})
			stop := c.all(cloudtest.Hang(until))

			return func() {
				stop()
				close(until)
			}
		},
		Lag: c.lag,
		Impostor: func(t *testing.T) cloud.Provider {
			t.Helper()
			config := c.config()
			config.Password = "wrong"

			return c.provider(t, config)
		},
		Stray: func(t *testing.T) string {
			t.Helper()
			return c.make(t, "stray", map[string]string{cloud.TagYard: "yard"})
		},
		Foreign: func(t *testing.T) string {
			t.Helper()
			return c.make(t, "foreign", map[string]string{cloud.TagYard: "other", cloud.TagLease: "l1"}, cloud.TagLease+"=l1")
		},
		Cannot: map[string]string{
			"a spot machine is marked as one":             noSpot,
			"a spot price above what we pay is a refusal": noSpot,
			"a reclaimed spot machine is gone, and why":   noSpot,
			"the list goes on after a hundred machines":   "the fake hypervisor needs minutes for so many; pages have five servers here, so others meet several",
		},
	}
}

// all makes trouble at every service.
func (c *contract) all(do cloudtest.Trouble) (stop func()) {
	var stops []func()
	for _, p := range c.proxies {
		stops = append(stops, p.While(cloudtest.Any, do))
	}

	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func (c *contract) machines(t *testing.T) []cloudtest.Machine {
	t.Helper()
	var all []cloudtest.Machine

	for _, s := range c.servers(t) {
		m := cloudtest.Machine{ID: dig[string](s, "id"), Tags: map[string]string{}}
		for key, value := range dig[map[string]any](s, "metadata") {
			m.Tags[key], _ = value.(string)
		}

		if m.Tags[cloud.TagYard] != "yard" {
			continue
		}

		script, err := base64.StdEncoding.DecodeString(dig[string](s, "OS-EXT-SRV-ATTR:user_data"))
		if err != nil {
			t.Fatalf("user data of %s: %v", m.ID, err)
		}

		m.UserData = string(script)
		m.Ended = dig[string](s, "status") == "DELETED" // shown for a moment
		all = append(all, m)
	}

	return all
}

// noCapacity makes the next create ask for more than any host has: the scheduler itself finds none.
func (c *contract) noCapacity(t *testing.T) {
	t.Helper()
	c.compute.Next(isCreate, func(w http.ResponseWriter, a *cloudtest.Asked) {
		a.Body = []byte(strings.ReplaceAll(string(a.Body), c.vars["FLAVOR_plain"], c.vars["FLAVOR_huge"]))
		c.compute.Through(w, a)
	})
}

// noQuota takes the project's quota away for the next create.
func (c *contract) noQuota(t *testing.T) {
	t.Helper()
	c.compute.Next(isCreate, func(w http.ResponseWriter, a *cloudtest.Asked) {
		if err := c.quota(0); err != nil {
			t.Errorf("take the quota away: %v", err)
		}

		c.compute.Through(w, a)

		if err := c.quota(10); err != nil {
			t.Errorf("give the quota back: %v", err)
		}
	})
}

// lag hides what is made from now on, as a database that has not heard of it would.
func (c *contract) lag(t *testing.T) func() {
	t.Helper()
	known := map[string]bool{}
	for _, s := range c.servers(t) {
		known[dig[string](s, "id")] = true
	}

	return c.compute.While(
		func(a *cloudtest.Asked) bool { return !isCreate(a) },
		func(w http.ResponseWriter, a *cloudtest.Asked) {
			_, server, _ := strings.Cut(a.URL.Path, "/servers/")
			if server != "" && server != "detail" && !known[server] {
				cloudtest.Say(
					http.StatusNotFound,
					"application/json",
					`{"itemNotFound": {"code": 404, "message": "Instance could not be found."}}`,
				)(
					w,
					a,
				)

				return
			}

			answer, err := c.compute.Forward(a)
			if err != nil {
				t.Errorf("forward: %v", err)
				return
			}

			var body map[string]any
			if server == "detail" && json.Unmarshal(answer.Body, &body) == nil {
				body["servers"] = slices.DeleteFunc(dig[[]any](body, "servers"), func(s any) bool {
					return !known[dig[string](s.(map[string]any), "id")]
				})
				answer.Body, err = json.Marshal(body)
				if err != nil {
					t.Errorf("hide servers: %v", err)
				}
			}

			answer.Write(w)
		},
	)
}

// direct returns a provider without proxies.
func direct(t *testing.T, config openstack.Config) *openstack.Provider {
	t.Helper()
	p, err := openstack.New("yard", config)
	if err != nil {
		t.Fatal(err)
	}

	p.Patience(20*time.Second, 100*time.Millisecond)

	return p
}

func TestApplicationCredentialIsEnough(t *testing.T) {
	t.Parallel()
	p := direct(t, openstack.Config{
		AuthURL:          theLab.vars["OS_AUTH_URL"],
		CredentialID:     theLab.vars["APPLICATION_CREDENTIAL_ID"],
		CredentialSecret: theLab.vars["APPLICATION_CREDENTIAL_SECRET"],
		Regions:          []string{"lab"},
		Image:            "debian",
		Network:          "none",
	})

	if _, err := p.List(t.Context()); err != nil {
		t.Errorf("list: %v (%v)", err, errors.Unwrap(err))
	}
}

func TestImageMayBeNamedByItsID(t *testing.T) {
	t.Parallel()
	c := theLab.project(t)
	config := c.config()
	config.Image = theLab.vars["IMAGE_ID"]
	created(t.Context(), t, direct(t, config), request(1, "plain"))
	config.Image = "no-such-image"
	refused(t.Context(), t, direct(t, config), request(2, "plain"), fault.Invalid, "openstack_no_image")
	config.Image = "00000000-0000-0000-0000-000000000000"
	refused(t.Context(), t, direct(t, config), request(3, "plain"), fault.Invalid, "openstack_refused")
}

// tokens remembers which tokens were used.
type tokens struct {
	mu   sync.Mutex
	last string
	base http.RoundTripper
}

func (k *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		k.mu.Lock()
		k.last = token
		k.mu.Unlock()
	}

	return k.base.RoundTrip(r)
}

func TestTokenThatRanOutIsRenewed(t *testing.T) {
	t.Parallel()
	c := theLab.project(t)
	p := direct(t, c.config())
	seen := &tokens{base: http.DefaultTransport}
	p.Through(seen)
	listed(t.Context(), t, p)
	old := seen.last

	r, err := http.NewRequest(http.MethodDelete, c.vars["OS_AUTH_URL"]+"/auth/tokens", nil)
	if err != nil {
		t.Fatal(err)
	}

	r.Header.Set("X-Auth-Token", old)
	r.Header.Set("X-Subject-Token", old)

	res, err := http.DefaultClient.Do(r)
	if err != nil || res.Body.Close() != nil || res.StatusCode != http.StatusNoContent {
		t.Fatalf("revoke a token: %v %v", res, err)
	}

	created(t.Context(), t, p, request(1, "plain"))

	if seen.last == old {
		t.Error("the old token is still used")
	}
}

func TestRegionWithoutComputeIsRefused(t *testing.T) {
	t.Parallel()
	c := theLab.project(t)
	config := c.config()
	config.Regions = []string{"lab", "empty"}
	p := direct(t, config)
	r := request(1, "plain")
	r.Offer.Region = "empty"
	refused(t.Context(), t, p, r, fault.Invalid, "openstack_region")

	if all, err := p.List(t.Context()); err == nil {
		t.Errorf("a region that cannot be asked gave the list %+v", all)
	}
}

func TestServerThatFailsLateIsRemovedAndGone(t *testing.T) {
	t.Parallel()
	c := theLab.project(t)
	p := direct(t, c.config())
	p.Patience(0, time.Millisecond) // as if the scheduler needed longer than Create waits
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	made := created(ctx, t, p, request(1, "huge"))
	gone := becomes(
		ctx,
		t,
		p,
		500*time.Millisecond,
		made.ID,
		func(one cloud.Instance) bool { return one.State == cloud.Gone },
	)

	if !strings.Contains(gone.Why, "No valid host") || gone.Lease != id.NewLease(1) || gone.Ended.IsZero() {
		t.Errorf("it is gone as %+v", gone)
	}

	if left := c.servers(t); len(left) > 0 {
		t.Errorf("the project still holds %v", left)
	}
}

func TestScenario(t *testing.T) {
	t.Parallel()
	c := &project{lab: theLab, name: "yard", id: theLab.vars["PROJECT_ID"]}
	c.open(t)
	p := direct(t, c.config())
	rec := newRecorder(theLab.vars)
	p.Through(rec)
	p.Patience(time.Minute, 300*time.Millisecond)
	scenario(t, p, 500*time.Millisecond, c)

	if *record && !t.Failed() {
		rec.write(t, "testdata/exchange.json")
	}
}
