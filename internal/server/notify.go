package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/mail"
	"net/url"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/notifier"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// How often a user may send a test message.
const (
	testPause  = 10 * time.Second
	testsBurst = 5
)

func (s *Server) notifyRoutes() {
	const tag, path = "notifications", "/api/v1/notify/{kind}/{of}/{name}"
	huma.Register(
		s.api,
		s.op("list-channels", http.MethodGet, "/api/v1/notify", "List the channels of notifications", tag),
		s.listChannels,
	)
	huma.Register(
		s.api,
		s.op("put-channel", http.MethodPut, path, "Set a channel of a user or project", tag),
		s.putChannel,
	)

	remove := s.op("remove-channel", http.MethodDelete, path, "Delete a channel", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeChannel)

	test := s.op("test-channel", http.MethodPost, path+"/test", "Send a test message over a channel", tag)
	test.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, test, s.testChannel)
}

// listChannels shows an admin all; others their own and those of the projects that they lead.
func (s *Server) listChannels(ctx context.Context, in *struct{ Paging }) (*httpapi.Body[api.ChannelPage], error) {
	who := callerOf(ctx)

	var all []tenant.Channel
	problems := map[string]string{}
	err := s.query(ctx, func(y *yardmaster.Yard) {
		all = y.Channels()
		for i := range all {
			_, secret, _ := y.Channel(all[i].Subject, all[i].Name)
			problems[all[i].Path()] = secret.Problem
		}
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.ChannelPage{Channels: []api.Channel{}}
	last := ""
	for i := range all {
		one := &all[i]
		if one.Path() <= in.Cursor || !who.MayIn(tenant.ReadChannels, one.Subject.User, one.Subject.Project) {
			continue
		}

		if len(page.Channels) == in.Limit {
			page.Next = last
			break
		}

		shown := toChannel(one)
		shown.Problem = problems[one.Path()]
		page.Channels = append(page.Channels, shown)
		last = one.Path()
	}

	return &httpapi.Body[api.ChannelPage]{Body: page}, nil
}

func toChannel(c *tenant.Channel) api.Channel {
	return api.Channel{
		Subject: c.Subject.String(), Name: c.Name, Kind: c.Kind, Topics: c.Topics, Host: c.Host, To: c.To, From: c.From,
		Created: shown(c.Created), Updated: shown(c.Updated), By: c.By,
	}
}

type channelInput struct {
	Kind string `path:"kind" enum:"user,project"`
	Of   string `path:"of" maxLength:"63" doc:"name of the user or project"`
	Name string `path:"name" maxLength:"40" pattern:"^[a-z0-9][a-z0-9_.-]*$" doc:"name of the channel"`
}

// subject is whose channel it is, if the caller may change it: their own, those of projects that they lead, and for
// admins all.
func (in *channelInput) subject(ctx context.Context) (tenant.Subject, error) {
	of := tenant.Subject{Project: id.Project(in.Of)}
	if in.Kind == "user" {
		of = tenant.Subject{User: id.User(in.Of)}
	}

	return of, allowIn(ctx, actionPhrases[tenant.ManageChannels], tenant.ManageChannels, of.User, of.Project)
}

type putChannelInput struct {
	Kind string `path:"kind" enum:"user,project"`
	Of   string `path:"of" maxLength:"63" doc:"name of the user or project"`
	Name string `path:"name" maxLength:"40" pattern:"^[a-z0-9][a-z0-9_.-]*$" doc:"name of the channel"`
	Body api.ChannelRequest
}

func (s *Server) putChannel(ctx context.Context, in *putChannelInput) (*httpapi.Body[api.Channel], error) {
	of, err := (&channelInput{Kind: in.Kind, Of: in.Of, Name: in.Name}).subject(ctx)
	if err == nil {
		err = s.knownUser(ctx, of.User)
	}

	var c tenant.Channel
	var with notifier.Credentials
	made := ""
	if err == nil {
		c, with, err = readChannel(of, in.Name, &in.Body)
	}
	if err == nil && c.Kind == tenant.WebhookChannel && with.Key == "" {
		made, err = notifier.NewKey(rand.Reader)
		with.Key = made
	}
	if err == nil {
		err = s.notifier.Check(&c, &with)
	}

	var sealed *tenant.Sealed
	if err == nil {
		sealed, err = s.sealChannel(ctx, &c, &with)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.PutChannel{Channel: c, Sealed: sealed, By: callerOf(ctx).User})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	set, _ := answer.(tenant.Channel)
	reply := toChannel(&set)
	reply.Key = made

	return &httpapi.Body[api.Channel]{Body: reply}, nil
}

// readChannel makes a channel of a request. The errors repeat nothing that may be secret.
func readChannel(of tenant.Subject, name string, r *api.ChannelRequest) (
	c tenant.Channel, with notifier.Credentials, err error,
) {
	c = tenant.Channel{Subject: of, Name: name, Kind: r.Kind, Topics: r.Topics, To: r.To, From: r.From, SMTP: r.SMTP}
	with = notifier.Credentials{URL: r.URL, Key: r.Key, Password: r.Password}

	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_value", format, args...).WithField(field)
	}

	if len(c.Topics) == 0 {
		c.Topics = tenant.Topics()
	}

	for _, topic := range c.Topics {
		if !slices.Contains(tenant.Topics(), topic) {
			return c, with, bad("topics", "must be among %s, got %q", humanize.List(words(tenant.Topics())...), topic)
		}
	}

	mailOnly := r.To != "" || r.From != "" || r.SMTP != "" || r.Password != ""

	switch {
	case r.Kind != tenant.MailChannel && mailOnly:
		return c, with, bad("kind", "to, from, smtp and password are for mail, got kind %s", r.Kind)
	case r.Kind == tenant.MailChannel && r.URL != "", r.Kind != tenant.WebhookChannel && r.Key != "":
		return c, with, bad("kind", "url is for webhook and slack, key for webhook, got kind %s", r.Kind)
	case r.Kind == tenant.MailChannel:
		c.Host, err = readMail(&c, r)
	default:
		if u, parsed := url.Parse(r.URL); parsed == nil {
			c.Host = u.Host
		}
	}

	return c, with, err
}

// readMail checks the addresses of a mail channel and returns the host of its server, "" for that of the yard.
func readMail(c *tenant.Channel, r *api.ChannelRequest) (host string, err error) {
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_value", format, args...).WithField(field)
	}

	if c.SMTP == "" && (r.From != "" || r.Password != "") {
		return "", bad("smtp", "from and password are for a mail server of your own; name it")
	}

	if c.SMTP != "" && c.From == "" {
		c.From = c.To
	}

	for field, address := range map[string]*string{"to": &c.To, "from": &c.From} {
		if field == "from" && *address == "" {
			continue
		}

		parsed, err := mail.ParseAddress(*address)
		if err != nil || parsed.Name != "" {
			return "", bad(field, "must be a mail address such as ada@example.org, got %q", *address)
		}

		*address = parsed.Address
	}

	u, err := url.Parse(c.SMTP)
	if err != nil {
		return "", bad("smtp", "must be a URL that begins with smtps:// or smtp://")
	}

	if _, in := u.User.Password(); in {
		return "", bad("smtp", "the password must be in the field password")
	}

	return u.Host, nil
}

// words are topics as text.
func words(list []tenant.Topic) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = string(list[i])
	}

	return out
}

// sealChannel encrypts what is secret of a channel; nil if nothing is.
func (s *Server) sealChannel(
	ctx context.Context, c *tenant.Channel, with *notifier.Credentials,
) (*tenant.Sealed, error) {
	if *with == (notifier.Credentials{}) {
		return nil, nil
	}

	text, err := json.Marshal(with) //nolint:gosec // it is encrypted below
	if err != nil {
		return nil, err
	}
	if len(text) > tenant.MaxSecret {
		return nil, fault.New(fault.Invalid, "too_large", "url, key and password must have at most %d bytes together",
			tenant.MaxSecret)
	}

	sealed, err := s.Vault.Seal(ctx, c.Subject, c.SecretName(), string(text))

	return &sealed, err
}

func (s *Server) removeChannel(ctx context.Context, in *channelInput) (*struct{}, error) {
	of, err := in.subject(ctx)
	if err == nil {
		_, err = s.do(ctx, yardmaster.RemoveChannel{Subject: of, Name: in.Name, By: callerOf(ctx).User})
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}

func (s *Server) testChannel(ctx context.Context, in *channelInput) (*struct{}, error) {
	of, err := in.subject(ctx)
	if err == nil && !s.tests.allow(string(callerOf(ctx).User)) {
		err = fault.New(fault.OverLimit, "too_many_tests", "too many test messages").
			WithRemedy("try again in %s", humanize.Duration(testPause))
	}
	if err == nil {
		err = s.notifier.Test(ctx, of, in.Name)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}
