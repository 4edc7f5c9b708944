package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"trainyard/internal/fault"
)

// answering is a client of a server that gives one answer to all.
func answering(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c := NewClient(server.URL+"/", "ty_x", nil)
	t.Cleanup(c.Close)

	if strings.HasSuffix(c.Base(), "/") {
		t.Errorf("the address is %q", c.Base())
	}

	return c
}

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		status int
		body   string
		kind   fault.Kind
		say    string
	}{
		"a page of a proxy":               {502, "<html>", fault.Unavailable, "the server answered 502 Bad Gateway"},
		"a proxy that waited":             {504, "<html>", fault.Unavailable, "the server answered 504 Gateway Timeout"},
		"too often, by a proxy":           {429, "slow down", fault.OverLimit, "the server answered 429 Too Many Requests"},
		"an empty problem":                {500, "{}", fault.Internal, "the server answered 500 Internal Server Error"},
		"a problem without a kind":        {418, `{"detail":"tea"}`, fault.Internal, "tea"},
		"a problem":                       {409, `{"detail":"no","kind":"conflict","code":"c"}`, fault.Conflict, "no"},
		"success that is not JSON":        {200, "<html>", fault.Internal, "read response to GET /api/v1/whoami"},
		"success that breaks off":         {200, `{"user":`, fault.Internal, "read response to GET /api/v1/whoami"},
		"a problem longer than one reads": {400, `{"detail":"` + strings.Repeat("x", 2<<20) + `"}`, fault.Internal, "the server answered 400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})

			_, err := c.Whoami(t.Context())
			if fault.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("got %v of kind %s, want %q of kind %s", err, fault.KindOf(err), tt.say, tt.kind)
			}
		})
	}
}

func TestAServerThatIsNotThereIsUnreachable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	url := server.URL
	server.Close()
	c := NewClient(url, "", nil)
	defer c.Close()

	_, err := c.Info(t.Context())

	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unavailable || f.Code != "unreachable" || f.Remedy == "" ||
		strings.Count(err.Error(), "api/v1/info") != 0 {
		t.Errorf("got %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := c.Info(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAFeedThatIsRefusedIsAnError(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Authorization") != "Bearer ty_x" {
			t.Errorf("asked with %v", r.Header)
		}

		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"there is no job j1","kind":"not_found","code":"job_not_found"}`)
	})

	err := c.FollowLogs(t.Context(), "j1", LogFilter{}, func(LogItem) error { return nil })
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
}
