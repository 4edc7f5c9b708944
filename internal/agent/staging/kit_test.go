package staging_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trainyard/internal/agent/staging"
	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// modified is when the files of the sources were changed.
var modified = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// source is a web server that has one file and counts what it is asked for.
type source struct {
	*httptest.Server
	mu     sync.Mutex
	ranges []string // of each request, "" for one of all
}

// serve answers with handle; n counts the requests from 1.
func serve(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, n int)) *source {
	t.Helper()
	s := &source{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		n := len(s.ranges)
		s.mu.Unlock()
		handle(w, r, n)
	}))

	t.Cleanup(s.Close)

	return s
}

// asked returns the ranges of all requests.
func (s *source) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ranges...)
}

// whole answers as a web server with ranges and a version does.
func whole(content []byte, tag string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, r *http.Request, _ int) {
		w.Header().Set("ETag", `"`+tag+`"`)
		http.ServeContent(w, r, "", modified, bytes.NewReader(content))
	}
}

// cut lets a handler send that many bytes only, and then the connection breaks.
func cut(
	after int,
	handle func(http.ResponseWriter, *http.Request, int),
) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, r *http.Request, n int) {
		handle(&cutting{w, after}, r, n)
		panic(http.ErrAbortHandler)
	}
}

type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	c.left -= n
	if err == nil && c.left == 0 {
		if err := http.NewResponseController(c.ResponseWriter).Flush(); err != nil {
			return n, err
		}

		panic(http.ErrAbortHandler)
	}

	return n, err
}

// turns answers each request in its own way; the last way is that of all that follow.
func turns(ways ...func(http.ResponseWriter, *http.Request, int)) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, r *http.Request, n int) { ways[min(n, len(ways))-1](w, r, n) }
}

func status(code int) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(code) }
}

func redirect(to string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, r *http.Request, _ int) { http.Redirect(w, r, to, http.StatusFound) }
}

// content is a file of that many bytes.
func content(n int) []byte {
	data := make([]byte, n)
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range data {
		data[i] = byte(random.Uint32())
	}

	return data
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// disk is one whose free space follows what lies in a folder.
type disk struct{ size job.Bytes }

func (d disk) free(dir string) (free, total job.Bytes, err error) {
	used := job.Bytes(0)
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			info, ierr := e.Info()
			if err = ierr; err == nil {
				used += job.Bytes(info.Size())
			}
		}

		if errors.Is(err, fs.ErrNotExist) {
			return nil // renamed or removed meanwhile
		}

		return err
	})

	return d.size - used, d.size, err
}

// options are those of a cache in a folder of its own.
func options(t *testing.T) staging.Options {
	t.Helper()
	return staging.Options{
		Dir: filepath.Join(t.TempDir(), "datasets"), Log: slog.New(slog.DiscardHandler), Clock: clock.Wall{},
		Wait: time.Millisecond, Free: disk{1 << 40}.free, MinFree: diskspace.Floor{Share: 0.025},
		Roots: []string{os.TempDir()}, Hosts: []string{"127.0.0.1"},
	}
}

func open(t *testing.T, opt staging.Options) *staging.Cache {
	t.Helper()
	c, err := staging.Open(opt)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)

	return c
}

// stage stages what must succeed.
func stage(t *testing.T, c *staging.Cache, rank string, refs ...job.DataRef) map[string]string {
	t.Helper()
	vars, err := c.Stage(t.Context(), rank, refs)
	if err != nil {
		t.Fatal(err)
	}

	return vars
}

// has checks that a file has this content.
func has(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes with digest %s, want %d with %s", path, len(got), digest(got), len(want), digest(want))
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// soon waits until ok holds.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	for !ok() {
		if !clock.Sleep(limit, time.Millisecond) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
