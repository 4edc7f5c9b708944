package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// mailroom is an HTTP receiver that notes the texts of the messages to each path.
type mailroom struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string][]string
}

func newMailroom(t *testing.T) *mailroom {
	t.Helper()
	m := &mailroom{got: map[string][]string{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Text string }
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&body); err != nil {
			t.Error(err)
		}

		m.mu.Lock()
		defer m.mu.Unlock()

		title, _, _ := strings.Cut(body.Text, "\n")
		m.got[r.URL.Path] = append(m.got[r.URL.Path], title)
	}))
	t.Cleanup(m.Close)

	return m
}

func (m *mailroom) titles(path string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return slices.Clone(m.got[path])
}

// toLoopback lets notifications be sent to receivers of tests.
func toLoopback(c *Config) { c.Notify.Hosts = []string{"127.0.0.1"} }

// wantTitles waits for the messages to a path.
func (m *mailroom) wantTitles(t *testing.T, path string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q is at %s", want, path), func() bool { return slices.Equal(m.titles(path), want) })
}

// TestNotificationsOfAUserAndAProject follows jobs that fail and succeed to the receivers of their owner and of their
// project, over a restart of the server.
func TestNotificationsOfAUserAndAProject(t *testing.T) {
	t.Parallel()
	room := newMailroom(t)
	dir := t.TempDir()
	const adas, teams = "/" + plantedSecret + "/ada", "/" + plantedSecret + "/team"

	t.Run("before", func(t *testing.T) {
		y := startYard(t, dir, withConfig(toLoopback))
		ada, bob := y.researcher("ada"), y.researcher("bob")
		y.do(yardmaster.PutProject{Project: "vision", By: "test"})
		y.do(yardmaster.PutMember{Member: tenant.Member{Project: "vision", User: "ada"}, By: "test"})
		y.do(yardmaster.PutMember{Member: tenant.Member{Project: "vision", User: "bob", Lead: true}, By: "test"})

		_, err := ada.PutChannel(t.Context(), "user", "ada", "phone", api.ChannelRequest{
			Kind: tenant.SlackChannel, URL: room.URL + adas, Topics: []tenant.Topic{tenant.TopicFailed},
		})
		y.must(err)
		_, err = bob.PutChannel(t.Context(), "project", "vision", "team", api.ChannelRequest{
			Kind: tenant.SlackChannel, URL: room.URL + teams,
		})
		y.must(err)
		_, err = ada.PutChannel(t.Context(), "project", "vision", "mine", api.ChannelRequest{
			Kind: tenant.SlackChannel, URL: room.URL,
		})
		wantFault(t, err, fault.Denied, "not_allowed")

		n := y.join("n1")
		n.listen()

		end := func(code int, more string) {
			_, run := n.started(ada, "name: net", "retry: 0", more)
			n.ends(run, 0, code)
		}

		end(3, "project: vision")
		end(0, "project: vision")
		end(3, "priority: 1")
		room.wantTitles(t, adas, "*j1 net failed*", "*j3 net failed*")
		room.wantTitles(t, teams, "*j1 net failed*", "*j2 net succeeded*")
		end(3, "priority: 2") // the server may stop before this one is delivered
	})

	t.Run("after", func(t *testing.T) {
		y := startYard(t, dir, withConfig(toLoopback))
		room.wantTitles(t, adas, "*j1 net failed*", "*j3 net failed*", "*j4 net failed*")

		// What is secret of a channel is encrypted with the keys of the secrets, and rotated with them.
		_, err := y.admin().RotateSecretKey(t.Context())
		y.must(err)

		ada := y.researcher("ada")
		y.must(ada.TestChannel(t.Context(), "user", "ada", "phone"))
		room.wantTitles(t, adas, "*j1 net failed*", "*j3 net failed*", "*j4 net failed*", "*Test of a notification*")
		wantNowhere(t, dir, plantedSecret)

		page, err := ada.Channels(t.Context(), api.Page{})
		y.must(err)

		if len(page.Channels) != 1 || page.Channels[0].Host != strings.TrimPrefix(room.URL, "http://") {
			t.Errorf("ada sees the channels %+v", page.Channels)
		}

		secrets, err := ada.Secrets(t.Context(), api.Page{})
		y.must(err)

		if len(secrets.Secrets) != 0 {
			t.Errorf("the secrets of channels are listed as those of jobs: %+v", secrets.Secrets)
		}

		y.must(ada.RemoveChannel(t.Context(), "user", "ada", "phone"))
		wantFault(t, ada.TestChannel(t.Context(), "user", "ada", "phone"), fault.NotFound, "channel_not_found")
	})
}

func TestBadChannelsAreRefusedWithoutRepeatingThem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)

	for name, test := range map[string]struct{ body, field, code string }{
		"without TLS":      {`{"kind":"slack","url":"http://qqq.example.org/qqq"}`, "url", "bad_value"},
		"another scheme":   {`{"kind":"slack","url":"file:///qqq"}`, "url", "bad_value"},
		"no URL":           {`{"kind":"webhook"}`, "url", "bad_value"},
		"a bad key":        {`{"kind":"webhook","url":"https://e.example","key":"qqq"}`, "key", "bad_value"},
		"no mail server":   {`{"kind":"mail","to":"ada@example.org"}`, "smtp", "no_mail_server"},
		"no address":       {`{"kind":"mail","smtp":"smtps://m.example.org"}`, "to", "bad_value"},
		"password in smtp": {`{"kind":"mail","to":"a@b.example","smtp":"smtps://u:qqq@m.example"}`, "smtp", "bad_value"},
		"a lone password":  {`{"kind":"mail","to":"a@b.example","password":"qqq"}`, "smtp", "bad_value"},
		"mixed kinds":      {`{"kind":"slack","url":"https://e.example","password":"qqq"}`, "kind", "bad_value"},
		"unknown topic":    {`{"kind":"slack","url":"https://e.example","topics":["lunch"]}`, "topics", "bad_value"},
	} {
		a := y.raw(y.http, http.MethodPut, "/api/v1/notify/user/ada/phone", token, test.body)
		if a.p.Code != test.code || a.p.Field != test.field || strings.Contains(string(a.body), "qqq") {
			t.Errorf("%s: answered with %d %s, want %s of %s", name, a.status, a.body, test.code, test.field)
		}
	}
}

func TestChannelsAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	add := func(name string) error {
		c, err := ada.PutChannel(t.Context(), "user", "ada", name,
			api.ChannelRequest{Kind: tenant.WebhookChannel, URL: "https://hooks.example.org/x"})
		if err == nil && !strings.HasPrefix(c.Key, "whsec_") {
			t.Errorf("the server made the key %q", c.Key)
		}

		return err
	}

	for i := range tenant.MaxChannels {
		y.must(add(fmt.Sprint("c", i)))
	}

	y.must(add("c0")) // replaces the one of its name
	wantFault(t, add("more"), fault.OverLimit, "too_many_channels")

	for range testsBurst {
		// Nothing is there to deliver to, but that is found out by trying.
		wantFault(t, ada.TestChannel(t.Context(), "user", "ada", "none"), fault.NotFound, "channel_not_found")
	}

	wantFault(t, ada.TestChannel(t.Context(), "user", "ada", "none"), fault.OverLimit, "too_many_tests")
}

// TestAChannelToTheServersOwnMachineIsRefused sends nothing to loopback unless the operator says so.
func TestAChannelToTheServersOwnMachineIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	_, err := ada.PutChannel(t.Context(), "user", "ada", "ci",
		api.ChannelRequest{Kind: tenant.WebhookChannel, URL: y.url + "/api/v1/login"})
	y.must(err)

	err = ada.TestChannel(t.Context(), "user", "ada", "ci")
	wantFault(t, err, fault.Conflict, "not_delivered")

	if !strings.Contains(err.Error(), "--notify-hosts") || strings.Contains(err.Error(), "login") {
		t.Errorf("error %v", err)
	}
}
