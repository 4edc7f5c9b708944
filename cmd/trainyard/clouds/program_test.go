package clouds

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/server/httpapi"
)

func TestDownloadsOfTheProgramAreBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(WithProgram(httpapi.DefaultPace(clock.Wall{}), http.NotFoundHandler()))
	defer server.Close()

	get := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+programPath, nil)
		if err != nil {
			t.Fatal(err)
		}

		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}

		return resp
	}

	// Those who take nothing hold their slots.
	var held []io.Closer
	for range programsEach {
		resp := get()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s", resp.Status)
		}

		held = append(held, resp.Body)
	}

	refused := get()
	defer func() { _ = refused.Body.Close() }()

	if refused.StatusCode != http.StatusTooManyRequests || refused.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %s", refused.Status)
	}

	for _, body := range held {
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}

	for range 600 {
		resp := get()
		_ = resp.Body.Close()

		if resp.StatusCode == http.StatusOK {
			return
		}

		time.Sleep(50 * time.Millisecond)
	}

	t.Error("there is no slot after all have ended")
}
