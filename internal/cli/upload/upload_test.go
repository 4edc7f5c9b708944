package upload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
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

func ignore(Progress) {}

func TestTheSameContentIsSentOnceAndTheManifestLast(t *testing.T) {
	t.Parallel()
	client, uploads := yard(t, func(string) (int, string) { return http.StatusNoContent, "" })
	told := 0
	var last Progress

	err := Upload(
		t.Context(),
		client,
		folder("one", "two", "one", strings.Repeat("x", 5000)),
		func(p Progress) {
			told = max(told, p.Files*10+p.AllFiles)
			last = p
		},
	)
	if err != nil {
		t.Fatal(err)
	}

	got := uploads()
	if len(got) != 4 || got[3] != digestOf("manifest") || told != 33 {
		t.Errorf("uploads %v, progress %d", got, told)
	}

	if want := (Progress{Files: 3, AllFiles: 3, Bytes: 5006, AllBytes: 5006}); last != want {
		t.Errorf("at the end %+v, want %+v", last, want)
	}
}

// seekable is a file, which can be read from any offset.
type seekable struct{ *bytes.Reader }

func (seekable) Close() error { return nil }

// A large file travels in parts; those that an earlier try has brought are not sent again.
func TestAnInterruptedUploadOfALargeFileContinues(t *testing.T) {
	t.Parallel()
	text := make([]byte, inPartsFrom+partSize/2) // three parts
	for i := range 3 {
		text[i*partSize] = byte(i + 1)
	}

	sum := sha256.Sum256(text)
	content := Content{Digest: digestOf("manifest"), Encoded: []byte("manifest")}
	content.Manifest.Files = []api.ManifestFile{{Path: "big", Size: int64(len(text)), Digest: hex.EncodeToString(sum[:])}}
	content.Open = func(string) (io.ReadCloser, error) { return seekable{bytes.NewReader(text)}, nil }

	var mu sync.Mutex
	has, puts, broken := map[string]bool{}, 0, true
	var joined [][]string

	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/files/missing", func(w http.ResponseWriter, r *http.Request) {
		var in api.MissingRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}

		mu.Lock()
		defer mu.Unlock()

		in.Digests = slices.DeleteFunc(in.Digests, func(d string) bool { return has[d] })
		if err := json.NewEncoder(w).Encode(api.MissingReply(in)); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("PUT /api/v1/files/{digest}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}

		mu.Lock()
		defer mu.Unlock()

		if broken && puts == 2 {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"detail":"revoked","kind":"denied","code":"token_revoked"}`)

			return
		}

		puts++
		has[r.PathValue("digest")] = true
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /api/v1/files/{digest}/join", func(w http.ResponseWriter, r *http.Request) {
		var in api.JoinFileRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Size != int64(len(text)) {
			t.Errorf("joined %+v (%v)", in, err)
		}

		joined = append(joined, in.Parts)
		_, _ = io.WriteString(w, `{"done":`+strconv.FormatBool(len(joined) == 2)+`}`) // the first request is too short
	})

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client := api.NewClient(server.URL, "", nil)
	t.Cleanup(client.Close)

	if err := Upload(t.Context(), client, content, ignore); fault.KindOf(err) != fault.Denied {
		t.Fatalf("the first try: %v", err)
	}

	broken = false
	var last Progress
	if err := Upload(t.Context(), client, content, func(p Progress) { last = p }); err != nil {
		t.Fatal(err)
	}

	if puts != 4 || len(joined) != 2 || len(joined[1]) != 3 || last.Bytes != int64(len(text)) {
		t.Errorf("%d contents were sent, joined %v, progress %+v", puts, joined, last)
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
