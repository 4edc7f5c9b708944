package workdir_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/workdir"
)

// steps is a clock that moves a second each time it is read.
type steps struct{ n atomic.Int64 }

func (s *steps) Now() time.Time { return time.Unix(1_700_000_000+s.n.Add(1), 0) }

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// source serves texts by digest and counts.
type source struct {
	mu    sync.Mutex
	count map[string]int
	texts map[string]string
}

func newSource(texts ...string) *source {
	s := &source{count: map[string]int{}, texts: map[string]string{}}
	for _, text := range texts {
		s.texts[digestOf(text)] = text
	}

	return s
}

func (s *source) fetch(_ context.Context, digest string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	text, ok := s.texts[digest]
	if !ok {
		return nil, fmt.Errorf("no such content")
	}

	s.count[text]++

	return io.NopCloser(strings.NewReader(text)), nil
}

func open(t *testing.T, s *workdir.Store, from *source, text string) {
	t.Helper()
	f, err := s.Open(t.Context(), digestOf(text), from.fetch)
	if err != nil {
		t.Fatal(err)
	}

	got, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil || string(got) != text {
		t.Fatalf("read %q (%v), want %q", got, err, text)
	}
}

func newStore(t *testing.T, dir string, limit int64) *workdir.Store {
	t.Helper()
	s, err := workdir.OpenStore(dir, limit, &steps{})
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func TestStoreDropsWhatWasNotUsedLongest(t *testing.T) {
	t.Parallel()
	from := newSource("aaaa", "bbbb", "cccc")

	s := newStore(t, t.TempDir(), 8)
	for _, text := range []string{"aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb"} {
		open(t, s, from, text)
	}

	if diff := cmp.Diff(map[string]int{"aaaa": 1, "bbbb": 2, "cccc": 1}, from.count); diff != "" {
		t.Errorf("fetches (-want +got):\n%s", diff)
	}

	if s.Size() != 8 {
		t.Errorf("size %d, want 8", s.Size())
	}
}

func TestStoreRemembersUseOverARestart(t *testing.T) {
	t.Parallel()
	dir, from := t.TempDir(), newSource("aaaa", "bbbb", "cccc")
	clk := &steps{}
	first, err := workdir.OpenStore(dir, 8, clk)
	if err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{"aaaa", "bbbb", "aaaa"} {
		open(t, first, from, text)
	}

	second, err := workdir.OpenStore(dir, 8, clk)
	if err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{"cccc", "aaaa"} {
		open(t, second, from, text)
	}

	if diff := cmp.Diff(map[string]int{"aaaa": 1, "bbbb": 1, "cccc": 1}, from.count); diff != "" {
		t.Errorf("fetches (-want +got):\n%s", diff)
	}
}

func TestStoreFetchesOnceForManyAtATime(t *testing.T) {
	t.Parallel()
	from, s := newSource("text"), newStore(t, t.TempDir(), 100)

	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			f, err := s.Open(t.Context(), digestOf("text"), from.fetch)
			if err != nil {
				t.Error(err)
				return
			}

			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()

	if from.count["text"] != 1 {
		t.Errorf("%d fetches, want 1", from.count["text"])
	}
}

func TestStoreLetsTheNextTryAfterAFailure(t *testing.T) {
	t.Parallel()
	s, from := newStore(t, t.TempDir(), 100), newSource("text")
	for name, bad := range map[string]workdir.Fetch{
		"refused": func(context.Context, string) (io.ReadCloser, error) { return nil, errors.New("down") },
		"cut": func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("te")), nil
		},
	} {
		if _, err := s.Open(t.Context(), digestOf("text"), bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}

	open(t, s, from, "text")
}

func TestStoreNoticesDamageOnTheDisk(t *testing.T) {
	t.Parallel()
	dir, from := t.TempDir(), newSource("text")
	s := newStore(t, dir, 100)
	open(t, s, from, "text")

	file := filepath.Join(dir, digestOf("text")[:2], digestOf("text"))
	if err := os.WriteFile(file, []byte("tixt"), 0o600); err != nil {
		t.Fatal(err)
	}

	f, err := s.Open(t.Context(), digestOf("text"), from.fetch)
	if err != nil {
		t.Fatal(err)
	}

	_, err = io.ReadAll(f)
	if code := codeOf(err); code != "workdir_content_damaged" {
		t.Errorf("code %q, want workdir_content_damaged (%v)", code, err)
	}

	if err := f.Close(); err != nil {
		t.Error(err)
	}

	open(t, s, from, "text")

	if from.count["text"] != 2 {
		t.Errorf("%d fetches, want 2", from.count["text"])
	}
}
