package main

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"os"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/server/notifier"
)

// notifySettings say how a server delivers notifications.
var notifySettings = []setting{
	{
		"notify-hosts",
		"",
		"hosts, hosts with a port, addresses or networks such as 10.1.0.0/16 that notifications may be sent to although " +
			"they are at a loopback, link-local, private or metadata address, separated by commas; to hosts of the list " +
			"they may be sent without TLS",
		list(func(c *config) *[]string { return &c.notifyHosts }),
	},
	{
		"smtp",
		"",
		"mail server for notifications: smtps://USER@HOST:PORT, or smtp:// for STARTTLS where the server offers it " +
			"(default: none; users may name their own)",
		func(c *config, v string) error {
			c.smtp = v

			u, err := url.Parse(v)
			if v != "" && (err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps") {
				return errors.New("must be a URL that begins with smtps:// or smtp://")
			}

			return nil
		},
	},
	{
		"smtp-from",
		"",
		"address of the sender of mail, needed with --smtp",
		func(c *config, v string) error {
			c.smtpFrom = v

			if a, err := mail.ParseAddress(v); v != "" && (err != nil || a.Address != v) {
				return fmt.Errorf("must be a mail address such as yard@example.org, got %q", v)
			}

			return nil
		},
	},
	{
		"smtp-password-file",
		"",
		"file with the password of the user in --smtp",
		text(func(c *config) *string { return &c.smtpPasswordFile }),
	},
}

// notify reads how notifications are delivered.
func (c *config) notify() (notifier.Settings, error) {
	s := notifier.Settings{Hosts: c.notifyHosts, Relay: notifier.Relay{URL: c.smtp, From: c.smtpFrom}}

	switch {
	case c.smtp != "" && c.smtpFrom == "":
		return s, fault.New(fault.Invalid, "setting_missing", "is needed with --smtp").WithField("--smtp-from")
	case c.smtp == "" && c.smtpFrom+c.smtpPasswordFile != "":
		return s, fault.New(fault.Invalid, "setting_missing",
			"is needed with --smtp-from and --smtp-password-file").WithField("--smtp")
	case c.smtpPasswordFile == "":
		return s, nil
	}

	password, err := os.ReadFile(c.smtpPasswordFile)
	if err != nil {
		return s, fmt.Errorf("read the password of the mail server: %w", err)
	}

	s.Relay.Password = strings.TrimRight(string(password), "\r\n")

	return s, nil
}
