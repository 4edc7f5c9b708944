package upload

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
)

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// folder is a working directory with these contents.
func folder(contents ...string) Content {
	c := Content{Digest: digestOf("manifest"), Encoded: []byte("manifest")}
	for i, text := range contents {
		c.Manifest.Files = append(
			c.Manifest.Files,
			api.ManifestFile{Path: string(rune('a' + i)), Size: int64(len(text)), Digest: digestOf(text)},
		)
	}

	c.Manifest.Files = append(c.Manifest.Files, api.ManifestFile{Path: "link", Link: "a"})
	c.Open = func(digest string) (io.ReadCloser, error) {
		for _, text := range contents {
			if digestOf(text) == digest {
				return io.NopCloser(strings.NewReader(text)), nil
			}
		}

		return nil, errors.New("no such file")
	}

	return c
}

// yard lacks everything and answers uploads by put.
func yard(t *testing.T, put func(digest string) (int, string)) (client *api.Client, uploads func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/files/missing", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	})

	mux.HandleFunc("PUT /api/v1/files/{digest}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // the client broke it off, because another was refused
		}

		mu.Lock()
		defer mu.Unlock()

		got = append(got, r.PathValue("digest"))
		status, body := put(r.PathValue("digest"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client = api.NewClient(server.URL, "", nil)
	t.Cleanup(client.Close)

	return client, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

func ignore(int, int, int64) {}

func TestTheSameContentIsSentOnceAndTheManifestLast(t *testing.T) {
	t.Parallel()
	client, uploads := yard(t, func(string) (int, string) { return http.StatusNoContent, "" })
	told := 0

	err := Upload(
		t.Context(),
		client,
		folder("one", "two", "one", strings.Repeat("x", 5000)),
		func(files, of int, _ int64) { told = max(told, files*10+of) },
	)
	if err != nil {
		t.Fatal(err)
	}

	got := uploads()
	if len(got) != 4 || got[3] != digestOf("manifest") || told != 33 {
		t.Errorf("uploads %v, progress %d", got, told)
	}
}

func TestAFileIsSentAgainWhenTheYardIsBusy(t *testing.T) {
	t.Parallel()
	first := true
	client, uploads := yard(t, func(string) (int, string) {
		if first {
			first = false
			return http.StatusServiceUnavailable, `{"detail":"busy","kind":"unavailable","code":"busy"}`
		}

		return http.StatusNoContent, ""
	})

	if err := Upload(t.Context(), client, folder("one"), ignore); err != nil {
		t.Fatal(err)
	}

	if got := uploads(); len(got) != 3 || got[0] != got[1] {
		t.Errorf("uploads %v", got)
	}
}

func TestARefusedFileEndsTheUpload(t *testing.T) {
	t.Parallel()
	client, uploads := yard(t, func(digest string) (int, string) {
		if digest == digestOf("bad") {
			return http.StatusUnprocessableEntity, `{"detail":"wrong digest","kind":"invalid","code":"wrong_digest"}`
		}

		return http.StatusNoContent, ""
	})

	err := Upload(t.Context(), client, folder("good", "bad"), ignore)
	if fault.KindOf(err) != fault.Invalid ||
		!strings.Contains(err.Error(), "upload b: it may have changed while it was read") {
		t.Errorf("got %v", err)
	}

	if slices.Contains(uploads(), digestOf("manifest")) {
		t.Error("the manifest was sent although a file is missing")
	}
}
