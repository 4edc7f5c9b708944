package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"trainyard/internal/tenant"
	"trainyard/test/fuzzing"
)

func TestWhoAsksTooOftenIsToldSo(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.Rate, c.Burst = 0.001, 3 }))
	ada, bob := y.token("ada", tenant.Researcher, tenant.ScopeSubmit), y.token("bob", tenant.Researcher, tenant.ScopeSubmit)

	for _, try := range []struct{ name, method, path, token, body string }{
		{"a token", http.MethodGet, "/api/v1/whoami", ada, ""},
		{"an upload", http.MethodPut, "/api/v1/files/" + digestOf("x"), bob, "x"},
		{"an address", http.MethodPost, "/api/v1/login", "", `{"token":"guess"}`},
	} {
		for range 3 {
			if got := y.raw(y.http, try.method, try.path, try.token, try.body); got.status == http.StatusTooManyRequests {
				t.Errorf("%s: the burst is not let through", try.name)
			}
		}

		got := y.raw(y.http, try.method, try.path, try.token, try.body)
		if text := says(&got.p); text != "429 too_often: too many requests" || got.header.Get("Retry-After") == "" ||
			got.p.Remedy == "" {
			t.Errorf("%s: %s, retry after %q", try.name, text, got.header.Get("Retry-After"))
		}
	}

	// The probes are not limited.
	for range 10 {
		if got := y.raw(y.http, http.MethodGet, "/healthz", "", ""); got.status != http.StatusOK {
			t.Fatalf("%d", got.status)
		}
	}
}

func FuzzSubmitBody(f *testing.F) {
	y := newYard(f)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)

	for _, body := range []string{
		`{"file":"run: a"}`, `{"file":"run: a","env":{"A":"b"},"dry_run":true}`, `{}`, `null`, `[`, `{"file":"name: a\nrun: b\nneeds: [a]"}`,
		`{"file":"run: a\nresources: {gpus: 1.., gpu: A100:80GB}"}`, `{"file":"run: a","workdir":"` + digestOf("x") + `"}`, `{"file":"\u0000"}`, "\xff",
		`{"file":"run: a\nenv: {K: null}","env":{"K":"\u0000"}}`, `{"file":"---\nrun: a\n---\nrun: b\nneeds: []"}`,
	} {
		f.Add([]byte(body), "key")
		f.Add([]byte(body), "")
	}

	for _, part := range []string{`\n---\nrun: a`, `\nneed: a`, `[`, `{a: `} {
		f.Add([]byte(`{"file":"run: a`+fuzzing.Long(part)+`"}`), "")
	}

	handler := y.srv.Handler()
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		defer fuzzing.Bounded(t)()

		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/jobs", strings.NewReader(string(body)))
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")

		if key != "" && !strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			req.Header.Set("Idempotency-Key", key)
		}

		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)

		switch {
		case w.Code == http.StatusCreated:
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("the answer is no JSON: %s", w.Body)
			}
		case w.Code >= 400 && w.Code < 500:
			a := reply{status: w.Code, header: w.Header(), body: w.Body.Bytes()}
			if err := a.readProblem(); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
