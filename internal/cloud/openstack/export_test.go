package openstack

import (
	"net/http"
	"time"
)

// Through lets a provider speak through this transport.
func (p *Provider) Through(rt http.RoundTripper) { p.session.http.Transport = rt }

// Patience sets how long Create waits to learn whether a host was found, and how often it looks.
func (p *Provider) Patience(settle, poll time.Duration) { p.settle, p.poll = settle, poll }
