package walls_test

import (
	"net/http"
	"testing"
)

// TestS18_StrangersAreLimited asks without a token, or with one that is none, again and again.
func TestS18_StrangersAreLimited(t *testing.T) {
	t.Parallel()

	for name, path := range map[string]string{
		"description": "/api/v1/openapi.yaml",
		"metrics":     "/metrics",
		"guesses":     "/api/v1/whoami",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, "--rate", "0.01", "--burst", "100")
			alice := y.user(t, "alice")
			stranger := &user{text: "tya_guess_ed", yard: y}

			var a answer
			for i := 0; a.status != http.StatusTooManyRequests && i <= 110; i++ {
				a = stranger.call(t, http.MethodGet, path, nil)
			}

			if a.problem.Code != "too_often" || a.header.Get("Retry-After") == "" || a.problem.Remedy == "" {
				t.Errorf("it is not limited: %s", &a)
			}

			if a := alice.call(t, http.MethodGet, "/api/v1/whoami", nil); a.status != http.StatusOK {
				t.Errorf("alice, from the same address: %s", &a)
			}

			if a := stranger.call(t, http.MethodGet, "/healthz", nil); a.status != http.StatusOK {
				t.Errorf("a probe: %s", &a)
			}
		})
	}
}

// TestS18_TheProgramIsNotForManyAtOnce downloads the agent's program, which is for everybody, without taking its bytes.
func TestS18_TheProgramIsNotForManyAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--metrics-listen", "127.0.0.1:0")
	stranger := &user{yard: y}

	for range 2 {
		client, err := y.HTTP()
		must(t, err)
		t.Cleanup(client.CloseIdleConnections)

		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, y.URL()+"/agent/program", nil)
		must(t, err)

		resp, err := client.Do(req)
		must(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
	}

	if a := stranger.call(t, http.MethodGet, "/agent/program", nil); a.status != http.StatusTooManyRequests ||
		a.problem.Code != "too_many_downloads" {
		t.Errorf("a third download: %s", &a)
	}

	// Metrics that are served elsewhere are not here.
	if a := stranger.call(t, http.MethodGet, "/metrics", nil); a.status != http.StatusNotFound {
		t.Errorf("metrics: %s", &a)
	}

	// The description is not sent to who has it.
	first := stranger.call(t, http.MethodGet, "/api/v1/openapi.yaml", nil)
	if first.status != http.StatusOK || first.header.Get("ETag") == "" {
		t.Errorf("the description: %d, tag %q", first.status, first.header.Get("ETag"))
	}
}
