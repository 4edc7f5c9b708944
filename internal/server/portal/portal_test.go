package portal_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"trainyard/internal/server/portal"
)

// built is what Vite leaves behind.
func built() fstest.MapFS {
	return fstest.MapFS{
		"index.html":       {Data: []byte(`<head><base href="./" /><script src="./assets/a-1.js"></script></head>`)},
		"assets/a-1.js":    {Data: []byte("plain")},
		"assets/a-1.js.br": {Data: []byte("brotli")},
		"assets/a-1.js.gz": {Data: []byte("gzip")},
		"assets/b-2.css":   {Data: []byte("style")},
	}
}

func open(t *testing.T, files fstest.MapFS) *portal.Portal {
	t.Helper()

	p, err := portal.New(files)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func get(path string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	return r
}

func TestPagesFindTheirFilesBelowAnyPath(t *testing.T) {
	t.Parallel()
	p := open(t, built())

	for path, want := range map[string]string{
		"/":               `<base href="./" />`,
		"/jobs":           `<base href="./" />`,
		"/jobs/j1":        `<base href="../" />`,
		"/jobs/a%2Fb/log": `<base href="../../" />`,
		"/jobs/":          `<base href="../" />`,
	} {
		w := httptest.NewRecorder()
		p.Page(w, get(path))

		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
}

func TestAPageIsAskedForAgainAndItsFilesAreKept(t *testing.T) {
	t.Parallel()
	p := open(t, built())
	w := httptest.NewRecorder()
	p.Page(w, get("/jobs"))

	if got := w.Header().Get("Cache-Control"); got != "no-cache" {
		t.Errorf("the page has Cache-Control %q", got)
	}

	again := httptest.NewRecorder()
	p.Page(again, get("/jobs", "If-None-Match", w.Header().Get("ETag")))

	if again.Code != http.StatusNotModified {
		t.Errorf("a page that the browser has is answered with %d", again.Code)
	}

	w = httptest.NewRecorder()
	if !p.Asset(w, get("/assets/a-1.js"), "a-1.js") || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("a file has Cache-Control %q", w.Header().Get("Cache-Control"))
	}
}

func TestNothingInlineIsAllowed(t *testing.T) {
	t.Parallel()
	p := open(t, built())
	page, file := httptest.NewRecorder(), httptest.NewRecorder()
	p.Page(page, get("/"))
	p.Asset(file, get("/assets/b-2.css"), "b-2.css")

	for _, w := range []*httptest.ResponseRecorder{page, file} {
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("policy %q", policy)
		}

		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Error("browsers may guess the type of the content")
		}
	}
}

func TestTheSmallestFormThatABrowserTakesIsSent(t *testing.T) {
	t.Parallel()
	p := open(t, built())

	for accepted, want := range map[string]string{
		"":                  "plain",
		"gzip, deflate, br": "brotli",
		"gzip":              "gzip",
		"br;q=0, gzip":      "gzip",
		"identity":          "plain",
	} {
		w := httptest.NewRecorder()
		if !p.Asset(w, get("/assets/a-1.js", "Accept-Encoding", accepted), "a-1.js") || w.Body.String() != want {
			t.Errorf("to one who takes %q: %s, want %s", accepted, w.Body, want)
		}

		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/javascript") {
			t.Errorf("to one who takes %q: content of type %s", accepted, got)
		}
	}

	w := httptest.NewRecorder()
	if !p.Asset(w, get("/assets/b-2.css", "Accept-Encoding", "br"), "b-2.css") || w.Body.String() != "style" {
		t.Errorf("a file without other forms is sent as %q", w.Body)
	}

	if p.Asset(httptest.NewRecorder(), get("/assets/a-1.js.br"), "a-1.js.br") {
		t.Error("the compressed form is a file of its own")
	}
}

func TestWithoutPagesItSaysSo(t *testing.T) {
	t.Parallel()

	w := httptest.NewRecorder()
	portal.None().Page(w, get("/jobs"))

	if !strings.Contains(w.Body.String(), "built without the portal") {
		t.Errorf("got %s", w.Body)
	}
}

func TestPagesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()

	for name, files := range map[string]fstest.MapFS{
		"no page":    {"assets/a.js": {}},
		"no base":    {"index.html": {Data: []byte("<head></head>")}, "assets/a.js": {}},
		"no scripts": {"index.html": {Data: []byte(`<base href="./" />`)}},
	} {
		if _, err := portal.New(files); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestWhatIsAPage(t *testing.T) {
	t.Parallel()

	for path, want := range map[string]bool{
		"/": true, "/jobs": true, "/jobs/j1": true, "/api/v1/nothing": false, "/agent/v1/x": false, "/assets/old.js": false,
	} {
		if got := portal.IsPage(get(path, "Accept", "text/html,*/*")); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}

	if portal.IsPage(get("/jobs", "Accept", "*/*")) {
		t.Error("a program that asks for /jobs gets a page")
	}

	post := get("/jobs", "Accept", "text/html")
	post.Method = http.MethodPost

	if portal.IsPage(post) {
		t.Error("a POST is answered with a page")
	}
}
