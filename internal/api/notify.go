package api

import (
	"context"
	"net/http"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// ChannelRequest sets where a user or project is notified. Fields that may hold a secret have no limits that the
// framework checks, because its errors would repeat them.
type ChannelRequest struct {
	Kind     tenant.ChannelKind `json:"kind" enum:"webhook,slack,mail"`
	Topics   []tenant.Topic     `json:"topics,omitempty" maxItems:"20" doc:"what to notify of; all topics if left out"`
	URL      string             `json:"url,omitempty" doc:"of the webhook, or of Slack's incoming webhook; no answer contains it"`
	Key      string             `json:"key,omitempty" doc:"of a webhook: key that signs messages, whsec_ and 24 to 64 bytes in base64; made by the server if left out"`
	To       string             `json:"to,omitempty" maxLength:"254" doc:"of mail: address of the recipient"`
	SMTP     string             `json:"smtp,omitempty" doc:"of mail: smtps://USER@HOST:PORT, or smtp:// for STARTTLS; the yard's server if left out"`
	From     string             `json:"from,omitempty" maxLength:"254" doc:"of mail with smtp: address of the sender; that of the recipient if left out"`
	Password string             `json:"password,omitempty" doc:"of mail with smtp: password of the user; no answer contains it"`
}

// Channel is where a user or project is notified.
type Channel struct {
	Subject string             `json:"subject" doc:"user/NAME or project/NAME: whose jobs it is about"`
	Name    string             `json:"name"`
	Kind    tenant.ChannelKind `json:"kind" enum:"webhook,slack,mail"`
	Topics  []tenant.Topic     `json:"topics"`
	Host    string             `json:"host,omitempty" doc:"of the receiver; the rest of its URL is secret"`
	To      string             `json:"to,omitempty" doc:"of mail: address of the recipient"`
	From    string             `json:"from,omitempty" doc:"of mail with a server of its own: address of the sender"`
	Created time.Time          `json:"created"`
	Updated time.Time          `json:"updated"`
	By      id.User            `json:"by" doc:"who set it"`
	Key     string             `json:"key,omitempty" doc:"key of a webhook that the server has made; only in the answer to that request"`
	Problem string             `json:"problem,omitempty" doc:"why its secret cannot be decrypted; nothing is delivered"`
}

// ChannelPage lists channels.
type ChannelPage struct {
	Channels []Channel `json:"channels"`
	Next     string    `json:"next,omitempty"`
}

// Channels returns one page of channels: one's own, those of projects that one leads, or all of them for an admin.
func (c *Client) Channels(ctx context.Context, p Page) (ChannelPage, error) {
	return get[ChannelPage](ctx, c, at("notify"), p.query())
}

// PutChannel sets a channel of a user or project; kind is user or project.
func (c *Client) PutChannel(ctx context.Context, kind, of, name string, r ChannelRequest) (Channel, error) {
	return put[Channel](ctx, c, at("notify", kind, of, name), r)
}

// RemoveChannel deletes a channel of a user or project.
func (c *Client) RemoveChannel(ctx context.Context, kind, of, name string) error {
	return c.call(ctx, http.MethodDelete, at("notify", kind, of, name), nil, nil, nil)
}

// TestChannel sends a test message over a channel. It fails if that is not delivered.
func (c *Client) TestChannel(ctx context.Context, kind, of, name string) error {
	return c.call(ctx, http.MethodPost, at("notify", kind, of, name, "test"), nil, nil, nil)
}
