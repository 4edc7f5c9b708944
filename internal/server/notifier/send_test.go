package notifier

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/mail"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"trainyard/internal/tenant"
)

func testMessage() *message {
	return &message{
		ID: "ty_7_1", Type: "job.failed", At: time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC), Topic: tenant.TopicFailed,
		Event: 7, Job: "j7", Name: "net <!channel>", Owner: "ada", Project: "vision", Reason: "exit code 3 & more",
	}
}

func newTestSender(hosts ...string) *sender {
	return newSender(Settings{Hosts: hosts}, &handClock{now: time.Unix(1_800_000_000, 0)})
}

func TestAWebhookIsSigned(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := newTestSender("127.0.0.1")
	defer s.close()

	c := &tenant.Channel{Kind: tenant.WebhookChannel}
	if err := s.send(t.Context(), c, &Credentials{URL: r.URL, Key: testKey}, testMessage()); err != nil {
		t.Fatal(err)
	}

	got := r.all()[0]
	mac := hmac.New(sha256.New, []byte("01234567890123456789012345678901"))
	mac.Write([]byte("ty_7_1.1800000000." + got.body))
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))

	if got.header.Get("webhook-signature") != want || got.header.Get("webhook-timestamp") != "1800000000" {
		t.Errorf("signature %q at %q, want %q", got.header.Get("webhook-signature"), got.header.Get("webhook-timestamp"), want)
	}

	var body struct {
		Type string
		Data map[string]any
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}

	if body.Type != "job.failed" || body.Data["job"] != "j7" || body.Data["topic"] != "failed" ||
		body.Data["reason"] != "exit code 3 & more" {
		t.Errorf("body %s", got.body)
	}
}

func TestSlackGetsTextThatMentionsNobody(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := newTestSender("127.0.0.1")
	defer s.close()

	err := s.send(t.Context(), &tenant.Channel{Kind: tenant.SlackChannel}, &Credentials{URL: r.URL}, testMessage())
	if err != nil {
		t.Fatal(err)
	}

	var body struct{ Text string }
	if err := json.Unmarshal([]byte(r.all()[0].body), &body); err != nil {
		t.Fatal(err)
	}

	want := "*j7 net &lt;!channel&gt; failed*\nexit code 3 &amp; more\nowner ada, project vision\ntrainyard job j7"
	if body.Text != want {
		t.Errorf("text\n%s\nwant\n%s", body.Text, want)
	}
}

// TestNothingIsSentToInternalAddresses is about users who would let the server reach what they cannot.
func TestNothingIsSentToInternalAddresses(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(r.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}

	s := newTestSender("listed.example.org")
	defer s.close()

	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		to := "https://" + host + ":" + port + "/secret-path"
		for _, c := range []*tenant.Channel{{Kind: tenant.SlackChannel}, {Kind: tenant.WebhookChannel}, {
			Kind: tenant.MailChannel, SMTP: "smtps://" + host + ":" + port, To: "a@b.example", From: "a@b.example",
		}} {
			err := s.send(t.Context(), c, &Credentials{URL: to, Key: testKey}, testMessage())
			if !errors.Is(err, errInternalAddress) {
				t.Errorf("%s to %s: %v, want it refused", c.Kind, host, err)
			}
		}
	}

	if n := len(r.all()); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

func TestARedirectIsNotFollowedAndErrorsRepeatNoSecret(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := newTestSender("127.0.0.1")
	defer s.close()

	send := func(to string) string {
		err := s.send(t.Context(), &tenant.Channel{Kind: tenant.SlackChannel}, &Credentials{URL: to}, testMessage())
		if err == nil {
			t.Errorf("%s: no error", to)
			return ""
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("the error repeats the path: %v", err)
		}

		return err.Error()
	}

	r.answer(http.StatusFound)
	if got := send(r.URL + "/hush"); !strings.HasSuffix(got, "answered 302") {
		t.Errorf("a redirect: %s", got)
	}

	r.Close()
	send(r.URL + "/hush")
	send("ftp://example.org/hush")
	send("http://example.org/hush") // without TLS, and not in the list
	send("https://hush:%zz")
}

// post is what an SMTP server received.
type post struct{ from, to, user, text string }

// mailbox is a real SMTP server that notes what it gets.
type mailbox struct {
	mu  sync.Mutex
	got []post
	url *url.URL
}

func (m *mailbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &mailSessionSeen{box: m}, nil }

type mailSessionSeen struct {
	box *mailbox
	one post
}

func (s *mailSessionSeen) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSessionSeen) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if password != "hush" {
			return errors.New("wrong password")
		}

		s.one.user = user

		return nil
	}), nil
}

func (s *mailSessionSeen) Mail(from string, _ *smtp.MailOptions) error {
	s.one.from = from
	return nil
}

func (s *mailSessionSeen) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.one.to = to
	return nil
}

func (s *mailSessionSeen) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.one.text = string(text)
	s.box.mu.Lock()
	defer s.box.mu.Unlock()

	s.box.got = append(s.box.got, s.one)

	return err
}

func (s *mailSessionSeen) Reset() { s.one = post{user: s.one.user} }

func (s *mailSessionSeen) Logout() error { return nil }

func newMailbox(t *testing.T) *mailbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	m := &mailbox{url: &url.URL{Scheme: "smtp", Host: l.Addr().String(), User: url.User("yard")}}
	server := smtp.NewServer(m)
	server.AllowInsecureAuth = true
	done := make(chan struct{})

	go func() {
		defer close(done)

		_ = server.Serve(l) // until it is closed
	}()

	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}

		<-done
	})

	return m
}

func TestMailReachesAnSMTPServer(t *testing.T) {
	t.Parallel()
	box := newMailbox(t)
	m := testMessage()
	m.Name = "größer\r\nBcc: all@example.org"

	for name, try := range map[string]struct {
		settings Settings
		channel  tenant.Channel
		with     Credentials
	}{
		"over the yard's server": {
			settings: Settings{Relay: Relay{URL: box.url.String(), From: "yard@example.org", Password: "hush"}},
			channel:  tenant.Channel{Kind: tenant.MailChannel, To: "ada@example.org"},
		},
		"over a server of one's own": {
			settings: Settings{Hosts: []string{"127.0.0.1"}},
			channel: tenant.Channel{
				Kind: tenant.MailChannel, To: "ada@example.org", From: "yard@example.org", SMTP: box.url.String(),
			},
			with: Credentials{Password: "hush"},
		},
	} {
		s := newSender(try.settings, &handClock{now: time.Unix(1_800_000_000, 0)})
		if err := s.send(t.Context(), &try.channel, &try.with, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		box.mu.Lock()
		got := box.got[len(box.got)-1]
		box.mu.Unlock()

		read, err := mail.ReadMessage(strings.NewReader(got.text))
		if err != nil {
			t.Fatal(err)
		}

		subject, err := new(mime.WordDecoder).DecodeHeader(read.Header.Get("Subject"))
		if err != nil {
			t.Fatal(err)
		}

		if got.from != "yard@example.org" || got.to != "ada@example.org" || got.user != "yard" {
			t.Errorf("%s: from %s to %s as %s", name, got.from, got.to, got.user)
		}
		if !strings.Contains(subject, "j7 größer") || read.Header.Get("Bcc") != "" ||
			read.Header.Get("Message-ID") != "<ty_7_1@example.org>" {
			t.Errorf("%s: header %q", name, read.Header)
		}
		if !strings.Contains(got.text, "exit code 3 & more") {
			t.Errorf("%s: text %q", name, got.text)
		}
	}
}

func TestMailIsRefusedWithoutTLSOrWithAWrongPassword(t *testing.T) {
	t.Parallel()
	box := newMailbox(t)
	c := tenant.Channel{Kind: tenant.MailChannel, To: "a@example.org", From: "a@example.org", SMTP: box.url.String()}

	for name, try := range map[string]struct {
		hosts []string
		with  Credentials
		want  string
	}{
		"without TLS, at an address of an allowed network": {[]string{"127.0.0.0/8"}, Credentials{Password: "hush"}, "no TLS"},
		"with a wrong password":                            {[]string{"127.0.0.1"}, Credentials{Password: "guess"}, "log in"},
	} {
		err := newTestSender(try.hosts...).send(t.Context(), &c, &try.with, testMessage())
		if err == nil || !strings.Contains(err.Error(), try.want) || strings.Contains(err.Error(), try.with.Password) {
			t.Errorf("%s: %v, want an error with %q", name, err, try.want)
		}
	}

	if len(box.got) != 0 {
		t.Errorf("%d mails arrived", len(box.got))
	}
}

// TestAnSMTPServerThatDoesNotAnswerIsLeft: the attempt ends with its time.
func TestAnSMTPServerThatDoesNotAnswerIsLeft(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = l.Close() }() // nobody accepts: the connection waits for a greeting

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	s := newSender(Settings{Relay: Relay{URL: "smtp://" + l.Addr().String(), From: "yard@example.org"}}, &handClock{})

	err = s.send(ctx, &tenant.Channel{Kind: tenant.MailChannel, To: "a@example.org"}, &Credentials{}, testMessage())
	if err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("error %v, want that there was no answer", err)
	}
}
