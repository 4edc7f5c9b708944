package notifier

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/netguard"
	"trainyard/internal/tenant"
)

// Settings are what an operator sets.
type Settings struct {
	// Hosts, hosts with a port, addresses and networks to which messages are sent although they are internal. To hosts
	// of the list they may be sent without TLS.
	Hosts []string
	Relay Relay
}

// Relay is the mail server of the yard.
type Relay struct {
	URL      string // smtp://USER@HOST:PORT or smtps://…; "" if there is none
	From     string
	Password string
}

// Credentials are what must stay secret of a channel.
type Credentials struct {
	URL      string `json:"url,omitempty"`      // of a webhook or of Slack
	Key      string `json:"key,omitempty"`      // with which messages to a webhook are signed
	Password string `json:"password,omitempty"` // of the user in the URL of the SMTP server
}

// sendTimeout bounds an attempt to deliver a message.
const sendTimeout = 20 * time.Second

// maxReply is how much of an answer is read, so that the connection can be used again.
const maxReply = 64 << 10

// sender delivers messages. It is safe for concurrent use.
type sender struct {
	guard *netguard.Guard
	relay Relay
	clock clock.Clock
	http  *http.Client
}

func newSender(s Settings, clk clock.Clock) *sender {
	g := netguard.New(netguard.Internal, s.Hosts)

	return &sender{guard: g, relay: s.Relay, clock: clk, http: &http.Client{
		// Without a proxy: it would connect to addresses that are not checked.
		Transport:     &http.Transport{DialContext: g.Dial, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// send delivers a message over a channel. Its errors are for the owner of the channel: they contain neither secrets nor
// anything of the answer but its status.
func (s *sender) send(ctx context.Context, c *tenant.Channel, with *Credentials, m *message) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()

	var err error

	switch c.Kind {
	case tenant.WebhookChannel:
		err = s.webhook(ctx, with, m)
	case tenant.SlackChannel:
		err = s.slack(ctx, with, m)
	case tenant.MailChannel:
		err = s.mail(ctx, c, with, m)
	default:
		err = fmt.Errorf("channel kind %q not known", c.Kind)
	}

	if _, refused := netguard.RefusalOf(err); refused {
		return errInternalAddress
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", sendTimeout)
	}

	return err
}

var errInternalAddress = errors.New("the host is at an internal address (loopback, link-local, private or metadata), " +
	"to which notifications are not sent unless the operator lists it in --notify-hosts")

// webhook sends a message as JSON, signed as the specification Standard Webhooks says.
func (s *sender) webhook(ctx context.Context, with *Credentials, m *message) error {
	body, err := json.Marshal(struct {
		Type string    `json:"type"`
		At   time.Time `json:"timestamp"`
		Data *message  `json:"data"`
	}{m.Type, m.At, m})
	if err != nil {
		return fmt.Errorf("write the message: %w", err)
	}

	key, err := ParseKey(with.Key)
	if err != nil {
		return err
	}

	at := strconv.FormatInt(s.clock.Now().Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write(fmt.Appendf(nil, "%s.%s.%s", m.ID, at, body))

	return s.post(ctx, with.URL, body, map[string]string{
		"webhook-id": m.ID, "webhook-timestamp": at,
		"webhook-signature": "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
	})
}

// The sizes of a key, as Standard Webhooks recommends.
const (
	keyPrefix = "whsec_"
	minKey    = 24
	maxKey    = 64
	newKey    = 32
)

// ParseKey reads the key of a webhook. Its errors do not repeat it.
func ParseKey(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, keyPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("key must be %s followed by %d to %d bytes in base64", keyPrefix, minKey, maxKey)
	}

	return key, nil
}

// NewKey makes the key of a webhook from random bytes.
func NewKey(random io.Reader) (string, error) {
	key := make([]byte, newKey)
	if _, err := io.ReadFull(random, key); err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}

	return keyPrefix + base64.StdEncoding.EncodeToString(key), nil
}

// slackEscapes are the characters that have a meaning in the text of a message.
var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// slack sends a message in the form of Slack's incoming webhooks.
func (s *sender) slack(ctx context.Context, with *Credentials, m *message) error {
	title, rest, _ := strings.Cut(slackEscapes.Replace(m.text()), "\n")
	text := "*" + strings.ReplaceAll(title, "*", "") + "*"
	if rest != "" {
		text += "\n" + rest
	}

	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return fmt.Errorf("write the message: %w", err)
	}

	return s.post(ctx, with.URL, body, map[string]string{"Idempotency-Key": m.ID})
}

func (s *sender) post(ctx context.Context, to string, body []byte, header map[string]string) error {
	u, err := s.checkURL(to, "https", "http")
	if err != nil {
		return err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL of the channel cannot be used")
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "trainyard")

	for name, value := range header {
		req.Header.Set(name, value)
	}

	resp, err := s.http.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the URL, which may contain a key
		}

		return fmt.Errorf("send to %s: %w", u.Host, err)
	}

	defer func() { _ = resp.Body.Close() }()

	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply)); err != nil {
		return fmt.Errorf("read the answer of %s: %w", u.Host, err)
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s answered %d", u.Host, resp.StatusCode)
	}

	return nil
}

// checkURL parses where a message is sent. The plain scheme is for hosts that the operator lists. Its errors do not
// repeat the URL, which may contain a key.
func (s *sender) checkURL(text, secure, plain string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != secure && u.Scheme != plain {
		return nil, fmt.Errorf("must be a URL that begins with %s://", secure)
	}
	if u.Scheme == plain && plain == "http" && !s.listed(u, "80") {
		return nil, fmt.Errorf("must begin with %s:// unless the operator lists the host in --notify-hosts", secure)
	}

	return u, nil
}

// listed reports whether the operator allows the host of a URL.
func (s *sender) listed(u *url.URL, port string) bool { return s.guard.Lists(hostPort(u, port)) }

// hostPort is the host of a URL with its port, or that of the scheme.
func hostPort(u *url.URL, port string) string {
	if p := u.Port(); p != "" {
		port = p
	}

	return net.JoinHostPort(u.Hostname(), port)
}

// close closes connections that are not in use.
func (s *sender) close() { s.http.CloseIdleConnections() }
