package openstack_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/openstack"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

func TestServersAsInstances(t *testing.T) {
	t.Parallel()
	base := cloud.Instance{
		ID: server, Lease: "l7", Region: "lab", Zone: "z1", Type: "gpu", State: cloud.Up, Billed: -1,
		Launched: time.Date(2026, 5, 1, 10, 0, 30, 0, time.UTC),
	}

	const common = `"id": "` + server + `", "created": "2026-05-01T10:00:00Z", "updated": "2026-05-01T11:00:00Z", "flavor": {"original_name": "gpu"},
		"OS-EXT-AZ:availability_zone": "z1", "metadata": {"trainyard-yard": "yard", "trainyard-lease": "l7"}`
	const ran = common + `, "OS-SRV-USG:launched_at": "2026-05-01T10:00:30.000000"`
	for name, tt := range map[string]struct {
		server string
		more   []Exchange
		want   func(*cloud.Instance)
	}{
		"active":          {ran + `, "status": "ACTIVE"`, nil, func(*cloud.Instance) {}},
		"being built":     {common + `, "status": "BUILD"`, nil, func(i *cloud.Instance) { i.State, i.Launched = cloud.Pending, base.Launched.Add(-30*time.Second) }},
		"off":             {ran + `, "status": "SHUTOFF"`, nil, func(i *cloud.Instance) { i.Why = "shutoff" }},
		"suspended":       {ran + `, "status": "SUSPENDED"`, nil, func(i *cloud.Instance) { i.Why = "suspended" }},
		"shelved":         {ran + `, "status": "SHELVED_OFFLOADED"`, nil, func(i *cloud.Instance) { i.Why = "shelved_offloaded" }},
		"being deleted":   {ran + `, "status": "ACTIVE", "OS-EXT-STS:task_state": "deleting"`, nil, func(i *cloud.Instance) { i.State = cloud.Ending }},
		"deleted":         {ran + `, "status": "DELETED", "OS-SRV-USG:terminated_at": "2026-05-01T12:00:00.000000"`, nil, func(i *cloud.Instance) { i.State, i.Ended = cloud.Gone, base.Launched.Add(2*time.Hour-30*time.Second) }},
		"deleted, in bin": {ran + `, "status": "SOFT_DELETED"`, nil, func(i *cloud.Instance) { i.State = cloud.Gone }},
		"ran, then error": {ran + `, "status": "ERROR", "fault": {"message": "resize failed"}`, nil, func(i *cloud.Instance) { i.Why = "error: resize failed" }},
		"never ran": {common + `, "status": "ERROR", "fault": {"message": "No valid host was found."}`,
			[]Exchange{say("nova", "DELETE", "/v2.1/servers/"+server, http.StatusNoContent, ``)},
			func(i *cloud.Instance) {
				i.State, i.Why, i.Launched, i.Ended = cloud.Gone, "error: No valid host was found.", base.Launched.Add(-30*time.Second), base.Launched.Add(time.Hour-30*time.Second)
			}},
		"never ran, and stays": {common + `, "status": "ERROR", "fault": {"message": "No valid host was found."}`,
			[]Exchange{say("nova", "DELETE", "/v2.1/servers/"+server, http.StatusInternalServerError, `{}`)},
			func(i *cloud.Instance) {
				i.State, i.Why, i.Launched = cloud.Ending, "error: No valid host was found.", base.Launched.Add(-30*time.Second)
			}},
		"with an address": {ran + `, "status": "ACTIVE", "addresses": {"b": [{"addr": "10.0.0.9"}, {"addr": "10.0.0.7"}], "a": [{"addr": "10.0.1.1"}]}`,
			nil, func(i *cloud.Instance) { i.Address = "10.0.0.7" }},
		"with a floating address": {ran + `, "status": "ACTIVE", "addresses": {"a": [{"addr": "10.0.0.9"}, {"addr": "198.51.100.7", "OS-EXT-IPS:type": "floating"}]}`,
			nil, func(i *cloud.Instance) { i.Address = "198.51.100.7" }},
		"with an address of its own": {ran + `, "status": "ACTIVE", "accessIPv4": "203.0.113.5", "addresses": {"a": [{"addr": "10.0.0.9"}]}`,
			nil, func(i *cloud.Instance) { i.Address = "203.0.113.5" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := []Exchange{loggedIn(), say("nova", "GET", "/v2.1/servers/detail", http.StatusOK,
				`{"servers": [{"id": "not ours", "status": "ACTIVE", "metadata": {}}, {`+tt.server+`}]}`)}
			p := recorded(t, append(said, tt.more...), handConfig())
			want := base
			tt.want(&want)
			if diff := cmp.Diff([]cloud.Instance{want}, listed(t.Context(), t, p)); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlavorsAsOffers(t *testing.T) {
	t.Parallel()
	base := fleet.Offer{
		Name:     "openstack/f/lab",
		Provider: "openstack",
		Type:     "f",
		Region:   "lab",
		CPUs:     8000,
		Memory:   4 << 30,
	}

	for name, tt := range map[string]struct {
		specs string
		want  func(*fleet.Offer)
		bad   string // key that cannot be read
	}{
		"nothing said":       {`{}`, func(*fleet.Offer) {}, ""},
		"virtual GPU":        {`{"resources:VGPU": "1"}`, func(o *fleet.Offer) { o.GPUs = 1 }, ""},
		"virtual GPU groups": {`{"resources1:VGPU": "1", "resources2:VGPU": "1", "trainyard:gpu": "A40"}`, func(o *fleet.Offer) { o.GPUs, o.GPU = 2, "A40" }, ""},
		"passed through":     {`{"pci_passthrough:alias": "h100:4"}`, func(o *fleet.Offer) { o.GPUs, o.GPU = 4, "h100" }, ""},
		"two aliases":        {`{"pci_passthrough:alias": "h100:4, nvswitch:1", "trainyard:gpus": "4", "trainyard:gpu": "H100"}`, func(o *fleet.Offer) { o.GPUs, o.GPU = 4, "H100" }, ""},
		"model alone":        {`{"trainyard:gpu": "L4"}`, func(o *fleet.Offer) { o.GPUs, o.GPU = 1, "L4" }, ""},
		"price alone":        {`{"trainyard:hourly": "$0.125"}`, func(o *fleet.Offer) { o.Hourly = 125_000 }, ""},
		"all": {`{"trainyard:gpu": "X", "trainyard:gpus": "8", "trainyard:gpu_memory": "80GB", "trainyard:tflops": "312.5", "trainyard:hourly": "20"}`,
			func(o *fleet.Offer) {
				o.GPU = "X"
				o.GPUs = 8
				o.GPUMemory = 80 << 30
				o.TFLOPS = 312.5
				o.Hourly = 20_000_000
			}, ""},
		"bad price":  {`{"trainyard:hourly": "cheap"}`, nil, "trainyard:hourly"},
		"bad count":  {`{"trainyard:gpus": "-1"}`, nil, "trainyard:gpus"},
		"bad memory": {`{"trainyard:gpu_memory": "much"}`, nil, "trainyard:gpu_memory"},
		"bad speed":  {`{"trainyard:tflops": "fast"}`, nil, "trainyard:tflops"},
		"bad alias":  {`{"pci_passthrough:alias": "h100"}`, nil, "pci_passthrough:alias"},
		"bad VGPU":   {`{"resources:VGPU": "x"}`, nil, "resources:VGPU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := recorded(t, []Exchange{
				loggedIn(),
				say(
					"nova",
					"GET",
					"/v2.1/flavors/detail",
					http.StatusOK,
					`{"flavors": [{"id": "1", "name": "f", "vcpus": 8, "ram": 4096, "swap": 0, "extra_specs": `+tt.specs+`}]}`,
				),
			}, handConfig())

			got, err := p.Offers(t.Context())
			if tt.bad != "" {
				want(t, err, fault.Invalid, "openstack_flavor", tt.bad)
				return
			}

			expected := base
			tt.want(&expected)
			if diff := cmp.Diff([]fleet.Offer{expected}, got); diff != "" || err != nil {
				t.Errorf("offers: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	t.Parallel()
	fine := openstack.Config{AuthURL: "http://keystone.test/v3", Username: "u", Password: "p", Project: "x", Image: "i"}
	if _, err := openstack.New("yard", fine); err != nil {
		t.Fatalf("a good configuration: %v", err)
	}

	for name, spoil := range map[string]func(*openstack.Config){
		"no address":    func(c *openstack.Config) { c.AuthURL = "" },
		"no user":       func(c *openstack.Config) { c.Username = "" },
		"no password":   func(c *openstack.Config) { c.Password = "" },
		"no project":    func(c *openstack.Config) { c.Project = "" },
		"no image":      func(c *openstack.Config) { c.Image = "" },
		"odd interface": func(c *openstack.Config) { c.Interface = "private" },
		"no such file":  func(c *openstack.Config) { c.Cloud, c.File = "lab", "/does/not/exist/clouds.yaml" },
	} {
		c := fine
		spoil(&c)
		_, err := openstack.New("yard", c)
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want an error of kind invalid", name, err)
		}
	}

	if _, err := openstack.New("", fine); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a yard without a name: %v, want an error of kind invalid", err)
	}
}

func TestCloudsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "clouds.yaml")

	text := `clouds:
  lab:
    auth_type: v3applicationcredential
    auth:
      auth_url: http://keystone.test/v3
      application_credential_id: me
      application_credential_secret: SECRET
    region_name: lab
`

	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	p := recorded(t, []Exchange{loggedIn(), say("nova", "GET", "/v2.1/servers/detail", http.StatusOK, `{"servers": []}`)},
		openstack.Config{Name: "lab-cloud", Cloud: "lab", File: file, Image: "debian"})
	if p.Name() != "lab-cloud" {
		t.Errorf("its name is %s", p.Name())
	}

	listed(t.Context(), t, p)
}

func TestEnvironmentVariables(t *testing.T) {
	t.Parallel()
	vars := map[string]string{
		"OS_AUTH_URL":                      "http://keystone.test/v3",
		"OS_USERNAME":                      "u",
		"OS_PASSWORD":                      "p",
		"OS_USER_DOMAIN_NAME":              "d",
		"OS_PROJECT_ID":                    "42",
		"OS_PROJECT_NAME":                  "x",
		"OS_PROJECT_DOMAIN_NAME":           "e",
		"OS_INTERFACE":                     "internal",
		"OS_REGION_NAME":                   "lab",
		"OS_APPLICATION_CREDENTIAL_ID":     "me",
		"OS_APPLICATION_CREDENTIAL_SECRET": "SECRET",
		"OS_CLOUD":                         "c",
		"OS_CLIENT_CONFIG_FILE":            "f",
	}

	got := openstack.Environ(func(key string) string { return vars[key] })

	want := openstack.Config{
		Cloud:            "c",
		File:             "f",
		AuthURL:          "http://keystone.test/v3",
		Username:         "u",
		Password:         "p",
		UserDomain:       "d",
		Project:          "x",
		ProjectID:        "42",
		ProjectDomain:    "e",
		CredentialID:     "me",
		CredentialSecret: "SECRET",
		Interface:        "internal",
		Regions:          []string{"lab"},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("from the environment (-want +got):\n%s", diff)
	}
}
