package notifier

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/url"
	"strings"
	"time"

	"trainyard/internal/tenant"
)

// The ports of mail submission.
const (
	submissionPort  = "587"
	submissionsPort = "465"
)

// mail sends a message over the SMTP server of the channel, or over that of the yard.
func (s *sender) mail(ctx context.Context, c *tenant.Channel, with *Credentials, m *message) error {
	server, from, password := c.SMTP, c.From, with.Password
	own := server != ""
	if !own {
		server, from, password = s.relay.URL, s.relay.From, s.relay.Password
	}
	if server == "" {
		return errors.New("the operator has set no mail server (--smtp)")
	}

	u, err := s.checkURL(server, "smtps", "smtp")
	if err != nil {
		return err
	}

	text, err := mailText(from, c.To, s.clock.Now(), m)
	if err != nil {
		return err
	}

	dial := s.guard.Dial
	if !own { // where that is, is up to the operator
		dial = (&net.Dialer{}).DialContext
	}

	conn, err := dialMail(ctx, u, dial)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", u.Host, err)
	}

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	session := &mailSession{url: u, password: password, needsTLS: own && !s.listed(u, submissionPort)}
	if err := session.deliver(conn, from, c.To, text); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err() // which is why the connection broke off
		}

		return fmt.Errorf("send over %s: %w", u.Host, err)
	}

	return nil
}

// dialMail connects to an SMTP server, with TLS from the beginning if the scheme says so.
func dialMail(
	ctx context.Context, u *url.URL, dial func(ctx context.Context, network, address string) (net.Conn, error),
) (net.Conn, error) {
	if u.Scheme == "smtp" {
		return dial(ctx, "tcp", hostPort(u, submissionPort))
	}

	plain, err := dial(ctx, "tcp", hostPort(u, submissionsPort))
	if err != nil {
		return nil, err
	}

	conn := tls.Client(plain, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, plain.Close())
	}

	return conn, nil
}

// mailSession is one dialogue with an SMTP server.
type mailSession struct {
	url      *url.URL
	password string
	needsTLS bool
}

// deliver hands one message over and closes the connection.
func (d *mailSession) deliver(conn net.Conn, from, to string, text []byte) error {
	host := d.url.Hostname()

	client, err := smtp.NewClient(conn, host)
	if err != nil {
		return errors.Join(err, conn.Close())
	}

	defer func() { _ = client.Close() }() // after Quit there is nothing to close

	if err := d.secure(client, host); err != nil {
		return err
	}
	if err := client.Mail(from); err != nil {
		return fmt.Errorf("sender: %w", err)
	}
	if err := client.Rcpt(to); err != nil {
		return fmt.Errorf("recipient: %w", err)
	}

	w, err := client.Data()
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close() // the server has accepted it then
	}
	if err != nil {
		return fmt.Errorf("message: %w", err)
	}

	// Whatever is said from here on, the message is delivered.
	_ = client.Quit()

	return nil
}

// secure begins TLS where the server offers it, and logs in.
func (d *mailSession) secure(client *smtp.Client, host string) error {
	if d.url.Scheme == "smtp" {
		if offered, _ := client.Extension("STARTTLS"); offered {
			if err := client.StartTLS(&tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}); err != nil {
				return fmt.Errorf("begin TLS: %w", err)
			}
		} else if d.needsTLS {
			return errors.New("the server offers no TLS, and the operator does not list it in --notify-hosts")
		}
	}

	if d.url.User == nil {
		return nil
	}

	if err := client.Auth(smtp.PlainAuth("", d.url.User.Username(), d.password, host)); err != nil {
		return fmt.Errorf("log in: %w", err)
	}

	return nil
}

// mailText writes the mail with its header.
func mailText(from, to string, now time.Time, m *message) ([]byte, error) {
	if strings.ContainsAny(from+to, "\r\n") {
		return nil, errors.New("address must be on one line")
	}

	_, domain, ok := strings.Cut(from, "@")
	if !ok {
		return nil, errors.New("the sender's address must contain @")
	}

	var out bytes.Buffer
	for _, line := range [][2]string{
		{"From", from},
		{"To", to},
		{"Subject", mime.QEncoding.Encode("utf-8", "[trainyard] "+m.title())},
		{"Date", now.Format(time.RFC1123Z)},
		{"Message-ID", "<" + m.ID + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&out, "%s: %s\r\n", line[0], line[1])
	}

	out.WriteString("\r\n")

	body := quotedprintable.NewWriter(&out)
	if _, err := body.Write([]byte(strings.ReplaceAll(m.text(), "\n", "\r\n") + "\r\n")); err != nil {
		return nil, fmt.Errorf("write the message: %w", err)
	}
	if err := body.Close(); err != nil {
		return nil, fmt.Errorf("write the message: %w", err)
	}

	return out.Bytes(), nil
}
