package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// Client calls a yard's API.
type Client struct {
	token   string
	agent   string // the header of an agent, "" for people
	http    *http.Client
	stream  *http.Client // without a limit on the whole answer
	tunnel  *http.Client // for tunnels into jobs
	bulk    *http.Client // for chunks of checkpoints
	servers servers
	onDemo  func() // called once if the server says that its yard is simulated; nil if nobody wants to know
}

// NewClient returns a client for the server at base ("https://host:port").
// token may be "" where the TLS configuration carries the identity.
func NewClient(base, token string, tlsConfig *tls.Config) *Client {
	transport := &http.Transport{
		TLSClientConfig:       tlsConfig,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		// A connection that went silent is noticed by HTTP/2 pings.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}

	return &Client{
		token:   token,
		http:    &http.Client{Transport: transport, Timeout: 2 * time.Minute},
		stream:  &http.Client{Transport: transport},
		tunnel:  &http.Client{Transport: tunnelTransport(tlsConfig)},
		bulk:    &http.Client{Transport: bulkTransport(tlsConfig)},
		servers: servers{current: strings.TrimRight(base, "/")},
	}
}

// As lets every request say which agent sends it; see AgentHeader.
func (c *Client) As(a *fleet.Agent) *Client {
	c.agent = FormatAgent(a)
	return c
}

// HeaderDemo is the header of all answers of a yard that is simulated.
const HeaderDemo = "Trainyard-Demo"

// OnDemo calls fn with the first answer of a yard that is simulated.
func (c *Client) OnDemo(fn func()) { c.onDemo = sync.OnceFunc(fn) }

// Base returns the server's address.
func (c *Client) Base() string { return c.Servers()[0] }

// Close drops the connections that are idle.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.tunnel.CloseIdleConnections()
	c.bulk.CloseIdleConnections()
}

// call sends in as JSON and decodes the answer into out; either may be nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any, header ...string) error {
	var body io.Reader

	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}

		body = bytes.NewReader(text)
		header = append(header, "Content-Type", "application/json")
	}

	resp, err := c.send(ctx, c.http, method, path, query, body, header...)
	if err != nil {
		return err
	}

	defer func() { _ = resp.Body.Close() }()

	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}

	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read response to %s %s: %w", method, path, err)
	}

	return nil
}

// send makes a request and turns every answer but success into an error.
func (c *Client) send(
	ctx context.Context,
	with *http.Client,
	method, path string,
	query url.Values,
	body io.Reader,
	header ...string,
) (*http.Response, error) {
	safe := method == http.MethodGet || slices.Contains(header, HeaderIdempotencyKey)

	return c.try(ctx, body, safe, func(base string) (*http.Response, error) {
		return c.sendTo(ctx, base, with, method, path, query, body, header...)
	})
}

// sendTo makes a request at one server.
func (c *Client) sendTo(
	ctx context.Context,
	base string,
	with *http.Client,
	method, path string,
	query url.Values,
	body io.Reader,
	header ...string,
) (*http.Response, error) {
	target := base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}

	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}

	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}

	if c.agent != "" {
		req.Header.Set(AgentHeader, c.agent)
	}

	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	resp, err := with.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		return nil, fault.New(fault.Unavailable, "unreachable", "cannot reach the server at %s: %v", base, rootCause(err)).
			WithRemedy("is the server running, and is the address right?").WithCause(err)
	}

	if c.onDemo != nil && resp.Header.Get(HeaderDemo) != "" {
		c.onDemo()
	}

	if resp.StatusCode < 300 {
		return resp, nil
	}

	defer func() { _ = resp.Body.Close() }()

	return nil, problemError(resp)
}

// rootCause drops the layers that repeat the address.
func rootCause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}

	return err
}

// problemError turns a problem+json answer back into the fault it was made from.
func problemError(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read error response: %w", err)
	}

	var p Problem
	if json.Unmarshal(text, &p) != nil || p.Detail == "" {
		kind := fault.Internal // what stands between us and the server may answer in its own words

		switch resp.StatusCode {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			kind = fault.Unavailable
		case http.StatusTooManyRequests:
			kind = fault.OverLimit
		}

		return fault.New(kind, "http_status", "the server answered %s", resp.Status)
	}

	if len(p.Errors) > 0 {
		var list fault.List
		for _, e := range p.Errors {
			list = append(list, e.fault())
		}

		return list
	}

	return p.fault()
}

func (p Problem) fault() *fault.Error {
	kind := fault.Kind(p.Kind)
	if kind == "" {
		kind = fault.Internal
	}

	return &fault.Error{
		Kind:    kind,
		Code:    p.Code,
		Message: p.Detail,
		Field:   p.Field,
		Line:    p.Line,
		Column:  p.Column,
		Remedy:  p.Remedy,
	}
}

func put[T any](ctx context.Context, c *Client, path string, in any) (T, error) {
	var out T
	err := c.call(ctx, http.MethodPut, path, nil, in, &out)
	return out, err
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	var out T
	err := c.call(ctx, http.MethodGet, path, query, nil, &out)
	return out, err
}

func post[T any](ctx context.Context, c *Client, path string, in any, header ...string) (T, error) {
	var out T
	err := c.call(ctx, http.MethodPost, path, nil, in, &out, header...)
	return out, err
}

// at joins the segments of a path below /api/v1, each escaped.
func at(segments ...string) string {
	path := "/api/v1"
	for _, s := range segments {
		path += "/" + url.PathEscape(s)
	}

	return path
}
