package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"trainyard/internal/clock"
	"trainyard/internal/server"
)

// A page of another site whose name leads to this machine would otherwise be one of this server for browsers.
func TestTheLocalPortalAnswersThoseWhoNameThisMachine(t *testing.T) {
	t.Parallel()

	handler := onlyLocal(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))

	for host, want := range map[string]int{
		"127.0.0.1:7480":        http.StatusNoContent,
		"localhost:7480":        http.StatusNoContent,
		"[::1]:7480":            http.StatusNoContent,
		"evil.example.org:7480": http.StatusMisdirectedRequest,
		"192.0.2.1:7480":        http.StatusMisdirectedRequest,
		"localhost.evil.org":    http.StatusMisdirectedRequest,
		"":                      http.StatusMisdirectedRequest,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)

		if w.Code != want {
			t.Errorf("host %q is answered with %d, want %d", host, w.Code, want)
		}
	}
}

func TestTheLocalPortalIsThereWhileTheYardIs(t *testing.T) {
	t.Parallel()

	r := &running{log: slog.New(slog.DiscardHandler), failed: make(chan error, 2), codes: server.NewCodes(clock.Wall{})}
	r.front.set(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pages") }))

	address, stop, err := r.localPortal(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	// Where the usual port is taken, there is another one.
	second, stopSecond, err := r.localPortal(t.Context())
	if err != nil || second == address {
		t.Fatalf("a second yard is at %s (%v), the first at %s", second, err, address)
	}

	for _, where := range []string{address, second} {
		if got := answerOf(t, where); got != "pages" {
			t.Errorf("%s answers %q", where, got)
		}
	}

	link := r.signInLink(address, "ada")
	if !strings.HasPrefix(link, address+"#code=") || link == r.signInLink(address, "ada") {
		t.Errorf("the link is %s, and the next is the same", link)
	}

	for _, end := range []func() error{stop, stopSecond} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// answerOf returns what is answered at an address.
func answerOf(t *testing.T, where string) string {
	t.Helper()

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, where, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = answer.Body.Close() }()

	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func TestABinaryWithoutPagesShowsNoLink(t *testing.T) {
	t.Parallel()

	stop, err := (&running{}).showPortal(t.Context(), "admin", func(format string, _ ...any) { t.Errorf("it says %s", format) })
	if err != nil || stop() != nil {
		t.Errorf("got %v", err)
	}
}
