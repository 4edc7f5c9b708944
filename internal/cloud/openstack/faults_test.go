package openstack_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/openstack"
	"trainyard/internal/fault"
)

// These tests have answers that a real cloud does not give when asked to. They are written by
// hand in the form of Nova's documentation, in which its recorded answers are too.

// say makes an exchange with a hand-written answer.
func say(service, method, path string, status int, answer string) Exchange {
	return Exchange{Service: service, Method: method, Path: path, Status: status, Answer: json.RawMessage(answer)}
}

// ask is an exchange whose request has a body.
func (e Exchange) ask(body string) Exchange {
	e.Asked = json.RawMessage(body)
	return e
}

const server = "8d0b1f5c-6f9e-4f0f-9d63-2f6a4e1d7c11"

func loggedIn() Exchange {
	e := say("keystone", "POST", "/v3/auth/tokens", http.StatusCreated, `{"token": {"catalog": [
		{"type": "compute", "endpoints": [{"interface": "public", "region": "lab", "region_id": "lab", "url": "http://nova.test/v2.1"}]},
		{"type": "image", "endpoints": [{"interface": "public", "region": "lab", "region_id": "lab", "url": "http://glance.test"}]},
		{"type": "network", "endpoints": [{"interface": "public", "region": "lab", "region_id": "lab", "url": "http://neutron.test"}]}]}}`).
		ask(`{"auth": {"identity": {"methods": ["application_credential"], "application_credential": {"id": "me", "secret": "SECRET"}}}}`)

	e.Token = true

	return e
}

// prelude is what is asked before a server of this flavor and image is created.
func prelude() []Exchange {
	return []Exchange{
		loggedIn(),
		say("nova", "GET", "/v2.1/servers/detail?tags=trainyard-lease%3Dl1", http.StatusOK, `{"servers": []}`),
		say(
			"nova",
			"GET",
			"/v2.1/flavors/detail",
			http.StatusOK,
			`{"flavors": [{"id": "7", "name": "plain", "vcpus": 2, "ram": 2048, "swap": ""}]}`,
		),
	}
}

const createBody = `{"server": {"name": "yard-l1", "flavorRef": "7", "imageRef": "` + imageID + `", "networks": "none",
	"tags": ["trainyard-lease=l1"], "user_data": "IyEvYmluL3NoCmVjaG8gaGVsbG8K",
	"metadata": {"trainyard-yard": "yard", "trainyard-lease": "l1", "trainyard-until": "2031-02-03T04:05:06Z"}}}`

const imageID = "0d5bcbc7-b066-4217-83f4-7111a60a399a"

func post(status int, answer string) Exchange {
	return say("nova", "POST", "/v2.1/servers", status, answer).ask(createBody)
}

func handConfig() openstack.Config {
	return openstack.Config{
		AuthURL: "http://keystone.test/v3", CredentialID: "me", CredentialSecret: "SECRET",
		Regions: []string{"lab"}, Image: imageID, Network: "none",
	}
}

// want checks kind and code of an error; code "" for any.
func want(t *testing.T, err error, kind fault.Kind, code, words string) {
	t.Helper()
	var got *fault.Error
	if !errors.As(err, &got) || got.Kind != kind || code != "" && got.Code != code ||
		!strings.Contains(got.Message, words) {
		t.Errorf("error = %v (kind %s), want kind %s, code %q and the words %q", err, fault.KindOf(err), kind, code, words)
	}
}

func TestAnswersToCreate(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		status int
		answer string
		kind   fault.Kind
		code   string
		words  string
	}{
		"over quota": {http.StatusForbidden,
			`{"forbidden": {"code": 403, "message": "Quota exceeded for cores: Requested 2, but already used 4 of 4 cores"}}`,
			fault.OverLimit, cloud.CodeQuota, "already used 4 of 4 cores"},
		"over a unified limit": {http.StatusForbidden,
			`{"forbidden": {"code": 403, "message": "Project p is over a limit for [Resource servers is over limit of 2]"}}`,
			fault.OverLimit, cloud.CodeQuota, "over a limit"},
		"over quota of an old cloud": {http.StatusRequestEntityTooLarge,
			`{"overLimit": {"code": 413, "message": "Quota exceeded for instances"}}`, fault.OverLimit, cloud.CodeQuota, ""},
		"not allowed": {http.StatusForbidden,
			`{"forbidden": {"code": 403, "message": "Policy doesn't allow os_compute_api:servers:create to be performed."}}`,
			fault.Denied, "openstack_denied", "Policy doesn't allow"},
		"bad image": {http.StatusBadRequest, `{"badRequest": {"code": 400, "message": "Can not find requested image"}}`,
			fault.Invalid, "openstack_refused", "Can not find requested image"},
		"several networks": {http.StatusConflict, `{"conflictingRequest": {"code": 409, "message": "Multiple possible networks found"}}`,
			fault.Invalid, "openstack_refused", "Multiple possible networks"},
		"too old":              {http.StatusNotAcceptable, `{"errors": [{"code": "microversion-unsupported"}]}`, fault.Invalid, "openstack_too_old", openstack.Microversion},
		"asked too often":      {http.StatusTooManyRequests, `{}`, fault.Unavailable, "", ""},
		"broken":               {http.StatusInternalServerError, `{"computeFault": {"code": 500, "message": "Unexpected API Error."}}`, fault.Unavailable, "", "Unexpected API Error"},
		"proxy without Nova":   {http.StatusBadGateway, `"Bad Gateway"`, fault.Unavailable, "", "502"},
		"proxy that timed out": {http.StatusGatewayTimeout, `"Gateway Time-out"`, fault.Unavailable, "", "504"},
		"no server in it":      {http.StatusAccepted, `{"server": {}}`, fault.Unavailable, "", "returned no id"},
		"not what was asked":   {http.StatusAccepted, `[]`, fault.Unavailable, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := recorded(t, append(prelude(), post(tt.status, tt.answer)), handConfig())
			_, err := p.Create(t.Context(), request(1, "plain"))
			want(t, err, tt.kind, tt.code, tt.words)
		})
	}
}

func TestServerThatCannotBeBuiltIsRemovedAndRefused(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		message string
		deleted int
		kind    fault.Kind
		code    string
	}{
		"no host":                    {"No valid host was found. There are not enough hosts available.", http.StatusNoContent, fault.OverLimit, cloud.CodeCapacity},
		"no host would":              {"Exceeded maximum number of retries. Exhausted all hosts available.", http.StatusNoContent, fault.OverLimit, cloud.CodeCapacity},
		"quota, seen late":           {"Quota exceeded for instances: Requested 0, but already used 3 of 2 instances", http.StatusNoContent, fault.OverLimit, cloud.CodeQuota},
		"removed by another":         {"No valid host was found.", http.StatusNotFound, fault.OverLimit, cloud.CodeCapacity},
		"and it cannot be removed":   {"No valid host was found.", http.StatusInternalServerError, fault.Unavailable, "openstack_failed"},
		"and it may not be removed":  {"No valid host was found.", http.StatusForbidden, fault.Unavailable, "openstack_failed"},
		"without a word of the host": {"", http.StatusNoContent, fault.OverLimit, cloud.CodeCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			get := func(answer string) Exchange {
				return say("nova", "GET", "/v2.1/servers/"+server, http.StatusOK, `{"server": {"id": "`+server+`", `+answer+`}}`)
			}
			p := recorded(t, append(prelude(),
				post(http.StatusAccepted, `{"server": {"id": "`+server+`"}}`),
				get(`"status": "BUILD", "OS-EXT-STS:task_state": "scheduling"`),
				get(`"status": "ERROR"`), // the reason comes a moment later
				get(`"status": "ERROR", "fault": {"code": 500, "message": "`+tt.message+`"}`),
				say("nova", "DELETE", "/v2.1/servers/"+server, tt.deleted, ``),
			), handConfig())

			_, err := p.Create(t.Context(), request(1, "plain"))
			want(t, err, tt.kind, tt.code, tt.message)
		})
	}
}

func TestServerThatCannotBeSeenYetIsGiven(t *testing.T) {
	t.Parallel()
	get := func(status int, answer string) Exchange {
		return say("nova", "GET", "/v2.1/servers/"+server, status, answer)
	}
	p := recorded(t, append(
		prelude(),
		post(http.StatusAccepted, `{"server": {"id": "`+server+`"}}`),
		get(http.StatusNotFound, `{"itemNotFound": {"code": 404, "message": "Instance could not be found."}}`),
		get(http.StatusInternalServerError, `{}`),
		get(
			http.StatusOK,
			`{"server": {"id": "`+server+`", "status": "BUILD", "OS-EXT-STS:task_state": "spawning", "flavor": {"original_name": "plain"},
			"metadata": {"trainyard-yard": "yard", "trainyard-lease": "l1"}}}`,
		),
	), handConfig())

	created(t.Context(), t, p, request(1, "plain"))
}

func TestLeaseThatHasSeveralServersKeepsTheOldest(t *testing.T) {
	t.Parallel()
	one := func(id, yard, created string) string {
		return `{"id": "` + id + `", "status": "ACTIVE", "created": "` + created + `", "flavor": {"original_name": "plain"},
			"metadata": {"trainyard-yard": "` + yard + `", "trainyard-lease": "l1"}}`
	}

	p := recorded(t, []Exchange{
		loggedIn(),
		say(
			"nova",
			"GET",
			"/v2.1/servers/detail?tags=trainyard-lease%3Dl1",
			http.StatusOK,
			`{"servers": [`+one("younger", "yard", "2026-05-01T10:00:09Z")+`], "servers_links": [{"rel": "next", "href": "http://nova.test/v2.1/servers/detail?marker=younger"}]}`,
		),
		say(
			"nova",
			"GET",
			"/v2.1/servers/detail?marker=younger",
			http.StatusOK,
			`{"servers": [`+one("of another yard", "other", "2026-05-01T10:00:00Z")+`,`+one("older", "yard", "2026-05-01T10:00:05Z")+`]}`,
		),
	}, handConfig())

	if got := created(t.Context(), t, p, request(1, "plain")); got.ID != "older" {
		t.Errorf("got %s, want the older one", got.ID)
	}
}

func TestWhatNovaWillNotTakeIsNotAskedFor(t *testing.T) {
	t.Parallel()
	spot := request(1, "plain")
	spot.Offer.Spot = true
	long := request(1, "plain")
	long.Boot.Script = strings.Repeat("x", 50_000)
	away := request(1, "plain")
	away.Offer.Region = "elsewhere"
	for code, r := range map[string]cloud.Request{"openstack_spot": spot, "openstack_user_data": long, "openstack_region": away} {
		p := recorded(t, nil, handConfig())
		_, err := p.Create(t.Context(), r)
		want(t, err, fault.Invalid, code, "")
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		status int
		answer string
		kind   fault.Kind
	}{
		"wrong credentials": {http.StatusUnauthorized, `{"error": {"code": 401, "message": "The request you have made requires authentication."}}`, fault.Denied},
		"not in a project":  {http.StatusForbidden, `{"error": {"code": 403, "message": "no"}}`, fault.Denied},
		"Keystone is down":  {http.StatusServiceUnavailable, `{}`, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := loggedIn()
			failed.Status, failed.Answer, failed.Token = tt.status, json.RawMessage(tt.answer), false

			// What failed is not kept: the next call logs in.
			p := recorded(
				t,
				[]Exchange{failed, loggedIn(), say("nova", "GET", "/v2.1/servers/detail", http.StatusOK, `{"servers": []}`)},
				handConfig(),
			)

			_, err := p.List(t.Context())
			want(t, err, tt.kind, "", "log in")
			listed(t.Context(), t, p)
		})
	}
}

func TestTokenIsRenewedOnceAndThenDenied(t *testing.T) {
	t.Parallel()
	expired := say(
		"nova",
		"GET",
		"/v2.1/servers/detail",
		http.StatusUnauthorized,
		`{"error": {"code": 401, "message": "expired"}}`,
	)

	fine := say("nova", "GET", "/v2.1/servers/detail", http.StatusOK, `{"servers": []}`)
	refusedLogin := loggedIn()
	refusedLogin.Status, refusedLogin.Answer, refusedLogin.Token = http.StatusUnauthorized, json.RawMessage(
		`{"error": {"message": "disabled"}}`,
	), false

	p := recorded(
		t,
		[]Exchange{loggedIn(), expired, loggedIn(), fine, expired, loggedIn(), expired, expired, refusedLogin},
		handConfig(),
	)

	listed(t.Context(), t, p)
	_, err := p.List(t.Context())
	want(t, err, fault.Denied, "openstack_denied", "expired")
	_, err = p.List(t.Context())
	want(t, err, fault.Denied, "openstack_denied", "disabled")
}

func TestListWithHolesIsNoList(t *testing.T) {
	t.Parallel()
	p := recorded(t, []Exchange{
		loggedIn(),
		say(
			"nova",
			"GET",
			"/v2.1/servers/detail",
			http.StatusOK,
			`{"servers": [{"id": "`+server+`", "status": "UNKNOWN", "tenant_id": "p", "created": "2026-05-01T10:00:00Z"}]}`,
		),
	}, handConfig())

	_, err := p.List(t.Context())
	want(t, err, fault.Unavailable, "openstack_partial", server)
}

func TestNetworkIsFoundByItsName(t *testing.T) {
	t.Parallel()
	net := func(ids ...string) string {
		var all []string
		for _, one := range ids {
			all = append(all, `{"id": "`+one+`", "name": "lab net"}`)
		}

		return `{"networks": [` + strings.Join(all, ",") + `]}`
	}

	for name, tt := range map[string]struct {
		networks []string
		code     string
	}{
		"one":  {[]string{"n1"}, ""},
		"none": {nil, "openstack_no_network"},
		"two":  {[]string{"n1", "n2"}, "openstack_two_networks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := handConfig()
			config.Network = "lab net"
			config.KeyPair = "key"
			config.SecurityGroups = []string{"ssh"}
			config.ConfigDrive = true

			said := append(prelude(), say("neutron", "GET", "/v2.0/networks?name=lab+net", http.StatusOK, net(tt.networks...)))
			if tt.code == "" {
				body := strings.Replace(
					createBody,
					`"networks": "none"`,
					`"networks": [{"uuid": "n1"}], "key_name": "key", "security_groups": [{"name": "ssh"}], "config_drive": true, "availability_zone": "z"`,
					1,
				)

				said = append(
					said,
					post(http.StatusAccepted, `{"server": {"id": "`+server+`"}}`).ask(body),
					say(
						"nova",
						"GET",
						"/v2.1/servers/"+server,
						http.StatusOK,
						`{"server": {"id": "`+server+`", "status": "ACTIVE", "flavor": {"original_name": "plain"},
						"metadata": {"trainyard-lease": "l1"}}}`,
					),
				)
			}

			p := recorded(t, said, config)
			r := request(1, "plain")
			r.Offer.Zone = "z"
			_, err := p.Create(t.Context(), r)
			if tt.code == "" && err != nil {
				t.Errorf("create: %v", err)
			}

			if tt.code != "" {
				want(t, err, fault.Invalid, tt.code, "lab net")
			}
		})
	}
}
