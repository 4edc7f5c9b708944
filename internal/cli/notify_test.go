package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/tenant"
)

// withChannels is a yard that has two channels and answers changes of them.
func withChannels(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	slack := api.Channel{
		Subject: "user/ada", Name: "phone", Kind: tenant.SlackChannel, Host: "hooks.slack.com",
		Topics: []tenant.Topic{tenant.TopicFailed, tenant.TopicNeedsYou}, Created: now, Updated: now, By: "ada",
	}
	hook := api.Channel{
		Subject: "user/ada", Name: "ci", Kind: tenant.WebhookChannel, Host: "ci.example.org",
		Topics: []tenant.Topic{tenant.TopicDone}, Created: now, Updated: now, By: "ada", Key: "whsec_c2hvd24gb25jZQ==",
	}
	mail := api.Channel{
		Subject: "project/vision", Name: "team", Kind: tenant.MailChannel, To: "team@example.org", Topics: tenant.Topics(),
		Created: now, Updated: now, By: "lea", Problem: "key 2026-01-01-0a not found in key file secrets.key",
	}

	y.answer("GET /api/v1/whoami", api.Whoami{User: "ada"})
	y.answer("GET /api/v1/notify", api.ChannelPage{Channels: []api.Channel{mail, slack}})
	y.answer("PUT /api/v1/notify/user/ada/phone", slack)
	y.answer("PUT /api/v1/notify/user/ada/ci", hook)
	y.answer("PUT /api/v1/notify/project/vision/team", mail)
	y.mux.HandleFunc("DELETE /api/v1/notify/user/ada/phone", noContent)
	y.mux.HandleFunc("POST /api/v1/notify/user/ada/phone/test", noContent)

	return y
}

func TestChannelsAreAddedListedTestedAndRemoved(t *testing.T) {
	t.Parallel()
	y := withChannels(t)

	for name, args := range map[string][]string{
		"notify":      {"notify", "list"},
		"notify-json": {"notify", "list", "-o", "json"},
		"notify-add":  {"notify", "add", "ci", "--webhook", "https://ci.example.org/x", "--on", "done"},
		"notify-rm":   {"notify", "remove", "phone"},
		"notify-test": {"notify", "test", "phone"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Fatalf("%v: exit code %d: %s", args, code, p.stderr)
		}

		golden(t, name, p.stdout.String())
	}
}

func TestTheSecretPartOfAChannelIsReadAndNotTyped(t *testing.T) {
	t.Parallel()
	const url = "https://hooks.slack.com/services/T0/B0/hunter2"

	for name, test := range map[string]struct {
		args []string
		call string
		want api.ChannelRequest
	}{
		"slack": {
			[]string{"phone", "--slack", "--on", "failed, needs_you"}, "user/ada/phone",
			api.ChannelRequest{Kind: "slack", URL: url, Topics: []tenant.Topic{"failed", "needs_you"}},
		},
		"key of a webhook": {
			[]string{"ci", "--webhook", "https://ci.example.org/x", "--file", "-"}, "user/ada/ci",
			api.ChannelRequest{Kind: "webhook", URL: "https://ci.example.org/x", Key: url},
		},
		"password of a mail server": {
			[]string{"team", "--project", "vision", "--mail", "t@example.org", "--smtp", "smtps://t@mail.example.org"},
			"project/vision/team",
			api.ChannelRequest{Kind: "mail", To: "t@example.org", SMTP: "smtps://t@mail.example.org", Password: url},
		},
		"mail over the yard's server": {
			[]string{"team", "--project", "vision", "--mail", "t@example.org"}, "project/vision/team",
			api.ChannelRequest{Kind: "mail", To: "t@example.org"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := withChannels(t)
			p := newPerson(t).at(t, y)
			p.env.Stdin = strings.NewReader(url + "\n")

			if code := p.types(t.Context(), append([]string{"notify", "add"}, test.args...)...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			body, _ := y.sent("PUT /api/v1/notify/" + test.call)

			want, err := json.Marshal(test.want)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(body)) != string(want) {
				t.Errorf("sent %s, want %s", body, want)
			}
		})
	}
}

func TestAChannelIsOfOneKind(t *testing.T) {
	t.Parallel()

	for _, args := range [][]string{
		{"phone"}, {"phone", "--slack", "--mail", "a@example.org"}, {"phone", "--slack", "--smtp", "smtps://m.example.org"},
	} {
		p := newPerson(t).at(t, withChannels(t))
		if code := p.types(t.Context(), append([]string{"notify", "add"}, args...)...); code != exit.Usage {
			t.Errorf("%v: exit code %d: %s", args, code, p.stderr)
		}
	}
}
