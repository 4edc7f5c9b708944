package cloudtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Proxy stands in front of an API server and injects faults. Requests that no rule matches pass
// unchanged.
type Proxy struct {
	URL string

	target *url.URL
	client *http.Client

	mu    sync.Mutex
	rules []*rule
}

// rule is a fault for the requests that match.
type rule struct {
	match func(*Request) bool
	do    Trouble
	once  bool
}

// Request is a request with its body, and the form in the body if there is one.
type Request struct {
	*http.Request
	Body []byte
	Form url.Values
}

// Answer is an answer of the API server.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Trouble answers a request instead of the API server, or leaves it unanswered.
type Trouble func(w http.ResponseWriter, a *Request)

// NewProxy starts a proxy for the server at this address. It ends with t.
func NewProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("address of the API server: %v", err)
	}

	p := &Proxy{target: u, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	p.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections() // including those that hang
		server.Close()
		p.client.CloseIdleConnections()
	})

	return p
}

// Next injects a fault into the next request that matches.
func (p *Proxy) Next(match func(*Request) bool, do Trouble) {
	p.add(&rule{match: match, do: do, once: true})
}

// While injects a fault into every request that matches, until stop is called.
func (p *Proxy) While(match func(*Request) bool, do Trouble) (stop func()) {
	r := &rule{match: match, do: do}
	p.add(r)

	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()

		p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == r })
	}
}

func (p *Proxy) add(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.rules = append(p.rules, r)
}

// take returns the fault for a request, by the newest rule that matches.
func (p *Proxy) take(a *Request) Trouble {
	p.mu.Lock()
	defer p.mu.Unlock()

	for i, r := range slices.Backward(p.rules) {
		if r.match(a) {
			if r.once {
				p.rules = slices.Delete(p.rules, i, i+1)
			}

			return r.do
		}
	}

	return nil
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		Cut(w, nil)
		return
	}

	a := &Request{Request: r, Body: body}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		a.Form, err = url.ParseQuery(string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}

	if do := p.take(a); do != nil {
		do(w, a)
		return
	}

	p.Through(w, a)
}

// Forward sends a request to the API server.
func (p *Proxy) Forward(a *Request) (*Answer, error) {
	u := *a.URL
	u.Scheme, u.Host = p.target.Scheme, p.target.Host
	r, err := http.NewRequestWithContext(a.Context(), a.Method, u.String(), bytes.NewReader(a.Body))
	if err != nil {
		return nil, fmt.Errorf("pass a request on: %w", err)
	}

	r.Host = a.Host // a part of what the client has signed, as the headers are
	r.Header = a.Header.Clone()

	if r.Header.Get("Accept-Encoding") != "identity" {
		r.Header.Del("Accept-Encoding") // the transport decompresses only what it requested itself
	}

	res, err := p.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("pass a request on: %w", err)
	}

	body, err := io.ReadAll(res.Body)
	if closed := res.Body.Close(); err == nil {
		err = closed
	}

	if err != nil {
		return nil, fmt.Errorf("read the API server's answer: %w", err)
	}

	return &Answer{Status: res.StatusCode, Header: res.Header, Body: body}, nil
}

// Through forwards a request to the API server and returns its answer to the client.
func (p *Proxy) Through(w http.ResponseWriter, a *Request) {
	if answer, err := p.Forward(a); err == nil {
		answer.Write(w)
	} else {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// Lose has the API server carry out a request, and closes the connection instead of returning the
// answer.
func (p *Proxy) Lose(w http.ResponseWriter, a *Request) {
	if _, err := p.Forward(a); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}

	Cut(w, a)
}

// Write returns the answer to the client.
func (answer *Answer) Write(w http.ResponseWriter) {
	for name, values := range answer.Header {
		switch name {
		case "Connection", "Transfer-Encoding":
		case "Content-Length":
			if len(answer.Body) == 0 { // to a HEAD request, where it is the length of what would come
				w.Header()[name] = values
			}
		default:
			w.Header()[name] = values
		}
	}

	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // the client may have disconnected
}

// Cut closes the connection without an answer.
func Cut(http.ResponseWriter, *Request) { panic(http.ErrAbortHandler) }

// Say answers with a status and a text.
func Say(status int, contentType, body string) Trouble {
	return func(w http.ResponseWriter, _ *Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may have disconnected
	}
}

// Hang answers nothing until the channel is closed or the client disconnects, and then closes the
// connection.
func Hang(until <-chan struct{}) Trouble {
	return func(w http.ResponseWriter, a *Request) {
		select {
		case <-until:
		case <-a.Context().Done():
		}

		Cut(w, a)
	}
}

// Any matches every request.
func Any(*Request) bool { return true }
