// Package blobtest is the contract of a blob store, written as tests.
//
// Run holds a store to it. StartServer starts a real server of the S3 API for the adapter in package s3, and for
// tests of a whole yard.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// check is a part of the contract.
type check struct {
	name string
	hold func(t *testing.T, s blob.Store)
}

// large is a blob that no store takes in one piece.
const large = 20<<20 + 12345

// Run holds a store to the contract. open returns a new, empty one each time.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	t.Helper()
	run(t, open, []check{
		{"blobs are kept", keeps},
		{"lists are in the order of names", lists},
		{"a blob that is not there", absent},
		{"a large blob comes back as it was", keepsLarge},
		{"ranges", ranges},
		{"a reader that fails leaves no trace", failingReader},
		{"a put that is cancelled leaves no trace", cancelled},
		{"names that lead astray are refused", badNames},
		{"many at once", manyAtOnce},
		{"which of many are missing", missing},
	})
}

func run(t *testing.T, open func(t *testing.T) blob.Store, checks []check) {
	t.Helper()

	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.hold(t, open(t))
		})
	}
}

func put(t *testing.T, s blob.Store, name, text string) {
	t.Helper()

	if err := s.Put(t.Context(), name, strings.NewReader(text)); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

// Read returns what a store answers to a request for content: the content, or the kind of the error.
func Read(t *testing.T, r io.ReadCloser, err error) string {
	t.Helper()

	if err != nil {
		return string(fault.KindOf(err))
	}

	defer func() { _ = r.Close() }()

	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read: %v", err)
	}

	return string(text)
}

// Names lists the names of blobs.
func Names(t *testing.T, s blob.Store, prefix string) []string {
	t.Helper()

	var names []string
	for info, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}

		names = append(names, info.Name)
	}

	return names
}

func keeps(t *testing.T, s blob.Store) {
	t.Helper()
	put(t, s, "logs/j1.1/0", "hello")
	put(t, s, "logs/j1.10/0", "")
	put(t, s, "logs/j1.1/0", "hello") // the same once more

	r, err := s.Get(t.Context(), "logs/j1.1/0")
	if got := Read(t, r, err); got != "hello" {
		t.Errorf("read %q, want hello", got)
	}

	r, err = s.Get(t.Context(), "logs/j1.10/0")
	if got := Read(t, r, err); got != "" {
		t.Errorf("read %q, want nothing", got)
	}

	for name, size := range map[string]int64{"logs/j1.1/0": 5, "logs/j1.10/0": 0} {
		info, err := s.Stat(t.Context(), name)
		if err != nil || info.Name != name || info.Size != size || info.Stored.IsZero() {
			t.Errorf("stat %s = %+v, %v; want %d bytes and a time", name, info, err, size)
		}

		if has, err := s.Has(t.Context(), name); err != nil || !has {
			t.Errorf("has %s = %v, %v", name, has, err)
		}
	}
}

func lists(t *testing.T, s blob.Store) {
	t.Helper()

	for _, name := range []string{"logs/j1.10/0", "files/ab/cd", "logs/j1.1/0", "logs/j1.1-x", "logs/j1.1/0.gz"} {
		put(t, s, name, name)
	}

	for prefix, want := range map[string][]string{
		"":           {"files/ab/cd", "logs/j1.1-x", "logs/j1.1/0", "logs/j1.1/0.gz", "logs/j1.10/0"},
		"logs/":      {"logs/j1.1-x", "logs/j1.1/0", "logs/j1.1/0.gz", "logs/j1.10/0"},
		"logs/j1.1":  {"logs/j1.1-x", "logs/j1.1/0", "logs/j1.1/0.gz", "logs/j1.10/0"},
		"logs/j1.1/": {"logs/j1.1/0", "logs/j1.1/0.gz"},
		"lo":         {"logs/j1.1-x", "logs/j1.1/0", "logs/j1.1/0.gz", "logs/j1.10/0"},
		"nothing/":   nil,
		"f":          {"files/ab/cd"},
		".":          nil,
	} {
		if diff := cmp.Diff(want, Names(t, s, prefix)); diff != "" {
			t.Errorf("list %q: %s", prefix, diff)
		}
	}

	for info, err := range s.List(t.Context(), "") {
		if err != nil || info.Size != int64(len(info.Name)) || info.Stored.IsZero() {
			t.Errorf("listed %+v, %v; want its size and a time", info, err)
		}

		if info.Name >= "logs/j1.1/" {
			break // whoever has seen enough may stop
		}
	}
}

func absent(t *testing.T, s blob.Store) {
	t.Helper()
	put(t, s, "a/b", "x")

	if err := s.Delete(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}

	for _, name := range []string{"a/b", "a", "a/c"} { // was deleted, is a folder, never was
		if err := s.Delete(t.Context(), name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}

		r, err := s.Get(t.Context(), name)
		if got := Read(t, r, err); got != string(fault.NotFound) {
			t.Errorf("get %s = %q", name, got)
		}

		r, err = s.GetRange(t.Context(), name, 0, 1)
		if got := Read(t, r, err); got != string(fault.NotFound) {
			t.Errorf("get a range of %s = %q", name, got)
		}

		if _, err := s.Stat(t.Context(), name); fault.KindOf(err) != fault.NotFound {
			t.Errorf("stat %s: %v", name, err)
		}

		if has, err := s.Has(t.Context(), name); err != nil || has {
			t.Errorf("has %s = %v, %v", name, has, err)
		}
	}
}

// noise is content that repeats nowhere.
func noise(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(out) // cannot fail

	return out
}

func keepsLarge(t *testing.T, s blob.Store) {
	t.Helper()
	want := noise(large)
	// A reader that gives little at a time must not end in parts that are too small.
	if err := s.Put(t.Context(), "large", iotest.HalfReader(bytes.NewReader(want))); err != nil {
		t.Fatal(err)
	}

	r, err := s.Get(t.Context(), "large")
	if got := Read(t, r, err); got != string(want) {
		t.Errorf("read %d bytes that are not those that were put", len(got))
	}

	if info, err := s.Stat(t.Context(), "large"); err != nil || info.Size != large {
		t.Errorf("stat = %+v, %v", info, err)
	}

	r, err = s.GetRange(t.Context(), "large", 9<<20, 100)
	if got := Read(t, r, err); got != string(want[9<<20:9<<20+100]) {
		t.Errorf("a range in the middle is wrong")
	}

	// As large as some whole number of parts.
	even := want[:16<<20]
	if err := s.Put(t.Context(), "even", bytes.NewReader(even)); err != nil {
		t.Fatal(err)
	}

	r, err = s.Get(t.Context(), "even")
	if got := Read(t, r, err); got != string(even) {
		t.Errorf("read %d bytes that are not those that were put", len(got))
	}
}

func ranges(t *testing.T, s blob.Store) {
	t.Helper()
	put(t, s, "a/b", "0123456789")
	put(t, s, "empty", "")

	for _, tt := range []struct {
		name           string
		offset, length int64
		want           string
	}{
		{"a/b", 0, 10, "0123456789"},
		{"a/b", 0, 1, "0"},
		{"a/b", 9, 1, "9"},
		{"a/b", 3, 4, "3456"},
		{"a/b", 3, 0, ""},
		{"a/b", 10, 0, ""},
		{"empty", 0, 0, ""},
		{"a/b", 0, 11, "invalid"},
		{"a/b", 9, 2, "invalid"},
		{"a/b", 10, 1, "invalid"},
		{"a/b", 11, 0, "invalid"},
		{"a/b", 100, 1, "invalid"},
		{"a/b", -1, 1, "invalid"},
		{"a/b", 1, -1, "invalid"},
		{"empty", 0, 1, "invalid"},
	} {
		r, err := s.GetRange(t.Context(), tt.name, tt.offset, tt.length)
		if got := Read(t, r, err); got != tt.want {
			t.Errorf("%d bytes of %s from %d on = %q, want %q", tt.length, tt.name, tt.offset, got, tt.want)
		}
	}
}

func failingReader(t *testing.T, s blob.Store) {
	t.Helper()
	broken := errors.New("line is down")

	for _, n := range []int{10, large} {
		r := io.MultiReader(bytes.NewReader(noise(n)), iotest.ErrReader(broken))
		if err := s.Put(t.Context(), "a/b", r); !errors.Is(err, broken) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("put = %v, want the reader's error", err)
		}
	}

	if names := Names(t, s, ""); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func cancelled(t *testing.T, s blob.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	content := bytes.NewReader(noise(large))
	midway := readFunc(func(p []byte) (int, error) {
		if content.Len() < large/2 {
			cancel()
		}

		return content.Read(p)
	})

	for _, r := range []io.Reader{midway, strings.NewReader("x")} {
		if err := s.Put(ctx, "a/b", r); !errors.Is(err, context.Canceled) {
			t.Errorf("put = %v, want cancelled", err)
		}
	}

	if names := Names(t, s, ""); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func badNames(t *testing.T, s blob.Store) {
	t.Helper()

	names := []string{
		"", ".", "..", "../secret", "a/../../secret", "/etc/passwd", "a//b", "a/", "./a", "a/./b", "a\x00b",
	}

	for _, name := range names {
		_, getErr := s.Get(t.Context(), name)
		_, rangeErr := s.GetRange(t.Context(), name, 0, 1)
		_, statErr := s.Stat(t.Context(), name)
		_, hasErr := s.Has(t.Context(), name)
		for what, err := range map[string]error{
			"put": s.Put(t.Context(), name, strings.NewReader("x")), "delete": s.Delete(t.Context(), name),
			"get": getErr, "get a range of": rangeErr, "stat": statErr, "has": hasErr,
		} {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s %q: %v, want it refused", what, name, err)
			}
		}
	}

	for _, prefix := range []string{"../", "/", "/etc/", "a/../../"} {
		var last error
		for _, err := range s.List(t.Context(), prefix) {
			last = err
		}

		if fault.KindOf(last) != fault.Invalid {
			t.Errorf("list %q: %v, want it refused", prefix, last)
		}
	}
}

func manyAtOnce(t *testing.T, s blob.Store) {
	t.Helper()
	content := bytes.Repeat([]byte("0123456789"), 10_000)

	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			name := fmt.Sprintf("x/%d/blob", i%4) // four write each
			if err := s.Put(t.Context(), name, bytes.NewReader(content)); err != nil {
				t.Errorf("put %s: %v", name, err)
			}

			r, err := s.Get(t.Context(), name)
			if err != nil {
				t.Errorf("get %s: %v", name, err)
				return
			}

			got, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s has %d bytes, %v", name, len(got), err)
			}
		})
	}

	all.Wait()

	if got := Names(t, s, "x/"); len(got) != 4 {
		t.Errorf("listed %v, want 4", got)
	}
}

func missing(t *testing.T, s blob.Store) {
	t.Helper()
	var names, want []string
	for i := range 50 {
		name := fmt.Sprintf("x/%02d", i)
		names = append(names, name)

		if i%7 == 0 {
			put(t, s, name, "x")
		} else {
			want = append(want, name)
		}
	}

	got, err := blob.Missing(t.Context(), s, names)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("missing: %v, %s", err, diff)
	}

	if got, err := blob.Missing(t.Context(), s, nil); err != nil || len(got) > 0 {
		t.Errorf("missing of none = %v, %v", got, err)
	}

	if _, err := blob.Missing(t.Context(), s, slices.Insert(names, 20, "..")); fault.KindOf(err) != fault.Invalid {
		t.Errorf("missing = %v, want the name refused", err)
	}
}
