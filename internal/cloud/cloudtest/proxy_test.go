package cloudtest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"trainyard/internal/cloud/cloudtest"
)

func TestProxyMakesTheTroubleItWasToldTo(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}

		w.Header().Set("X-Served-By", "api")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(r.Method + " " + r.URL.RequestURI() + " " + string(body)))
	}))

	t.Cleanup(api.Close)
	p := cloudtest.NewProxy(t, api.URL)

	// ask returns the answer's text, "cut" if there is none, and how often the API was asked for it.
	ask := func(form string) (string, int64) {
		t.Helper()
		before := served.Load()

		res, err := http.Post(p.URL+"/path?q=1", "application/x-www-form-urlencoded", strings.NewReader(form))
		if err != nil {
			return "cut", served.Load() - before
		}

		body, err := io.ReadAll(res.Body)
		if err != nil || res.Body.Close() != nil {
			t.Fatal(err)
		}

		return string(body), served.Load() - before
	}

	is := func(action string) func(*cloudtest.Request) bool {
		return func(a *cloudtest.Request) bool { return a.Form.Get("Action") == action }
	}

	check := func(form, want string, asked int64) {
		t.Helper()

		if got, n := ask(form); got != want || n != asked {
			t.Errorf("%s: %q after %d calls of the API, want %q after %d", form, got, n, want, asked)
		}
	}

	check("Action=A", "POST /path?q=1 Action=A", 1)

	p.Next(is("A"), cloudtest.Say(http.StatusBadRequest, "text/plain", "no"))
	check("Action=B", "POST /path?q=1 Action=B", 1)
	check("Action=A", "no", 0)
	check("Action=A", "POST /path?q=1 Action=A", 1)

	stop := p.While(cloudtest.Any, cloudtest.Cut)
	p.Next(is("A"), p.Lose)
	p.Next(is("A"), p.Through) // the newest comes first
	check("Action=A", "POST /path?q=1 Action=A", 1)
	check("Action=A", "cut", 1)
	check("Action=A", "cut", 0)
	stop()
	check("Action=A", "POST /path?q=1 Action=A", 1)

	until := make(chan struct{})
	close(until)
	p.Next(is("A"), cloudtest.Hang(until))
	check("Action=A", "cut", 0)

	api.Close()

	if got, _ := ask("Action=A"); !strings.Contains(got, "pass a request on") {
		t.Errorf("an API that is gone: %q", got)
	}
}
