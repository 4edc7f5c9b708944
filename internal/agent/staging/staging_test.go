package staging_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

func TestDataThatIsThereIsReadWhereItIs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "mri", "a"), []byte("a"))
	write(t, filepath.Join(root, "copy"), []byte("c"))
	c := open(t, options(t))
	vars := stage(t, c, "j1.1.0",
		job.DataRef{Name: "mri-2026.v1", Source: filepath.Join(root, "mri")},
		job.DataRef{Name: "mri.2026-v1", Source: filepath.Join(root, "copy")}, // would have the same variable
		job.DataRef{Name: "dir", Source: filepath.Join(root, "mri")},
		job.DataRef{Name: "known", Path: filepath.Join(root, "copy"), Source: "http://127.0.0.1:1/never"})

	want := map[string]string{
		"TRAINYARD_DATA_MRI_2026_V1": filepath.Join(root, "mri"), "TRAINYARD_DATA_KNOWN": filepath.Join(root, "copy"),
		"TRAINYARD_DATA_DIR": vars["TRAINYARD_DATA_DIR"],
	}

	if diff := cmp.Diff(want, vars); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}

	view := vars["TRAINYARD_DATA_DIR"]
	has(t, filepath.Join(view, "mri-2026.v1", "a"), []byte("a"))
	has(t, filepath.Join(view, "mri.2026-v1"), []byte("c"))
	has(t, filepath.Join(view, "dir", "a"), []byte("a"))

	if list := c.Copies(); len(list) > 0 {
		t.Errorf("what lies elsewhere is told to be kept: %v", list)
	}

	again := stage(t, c, "j2.1.0", job.DataRef{Name: "known", Path: filepath.Join(root, "copy")})

	other := stage(t, c, "j3.1.0", job.DataRef{Name: "known", Path: filepath.Join(root, "copy")})
	if again["TRAINYARD_DATA_DIR"] != other["TRAINYARD_DATA_DIR"] || again["TRAINYARD_DATA_DIR"] == view {
		t.Errorf(
			"runs with the same data see %s and %s, another sees %s",
			again["TRAINYARD_DATA_DIR"],
			other["TRAINYARD_DATA_DIR"],
			view,
		)
	}
}

func TestFilesAndFoldersAreCopied(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "mri", "deep", "a"), []byte("aa"))
	write(t, filepath.Join(root, "mri", "b"), []byte("b"))

	if err := os.Symlink("deep/a", filepath.Join(root, "mri", "link")); err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(root, "one.txt"), []byte("one"))
	c := open(t, options(t))
	vars := stage(t, c, "j1.1.0",
		job.DataRef{Name: "mri", Source: "file://" + filepath.Join(root, "mri"), Size: 3},
		job.DataRef{Name: "one", Source: "file://" + filepath.Join(root, "one.txt") + "#sha256=" + digest([]byte("one"))})
	mri := vars["TRAINYARD_DATA_MRI"]
	has(t, filepath.Join(mri, "deep", "a"), []byte("aa"))
	has(t, filepath.Join(mri, "link"), []byte("aa"))
	has(t, vars["TRAINYARD_DATA_ONE"], []byte("one"))

	if base := filepath.Base(vars["TRAINYARD_DATA_ONE"]); base != "one.txt" {
		t.Errorf("the copy is called %s", base)
	}

	if info, err := os.Stat(filepath.Join(mri, "b")); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("a copied file is %v (%v), want read-only", info, err)
	}

	// The source is not needed any more.
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}

	stage(t, c, "j2.1.0", job.DataRef{Name: "mri", Source: "file://" + filepath.Join(root, "mri")})
}

func TestAFileIsFetchedOnce(t *testing.T) {
	t.Parallel()
	data := content(3 << 20)
	s := serve(t, whole(data, "v1"))
	opt := options(t)
	ref := job.DataRef{Name: "mri", Source: s.URL + "/sets/mri.tar?token=1#sha256=" + digest(data), Size: 3 << 20}
	c := open(t, opt)

	var ranks sync.WaitGroup
	for i := range 8 {
		ranks.Go(func() {
			vars, err := c.Stage(t.Context(), fmt.Sprintf("j%d.1.0", i), []job.DataRef{ref})
			if err != nil {
				t.Error(err)
				return
			}

			if base := filepath.Base(vars["TRAINYARD_DATA_MRI"]); base != "mri.tar" {
				t.Errorf("the file is called %s", base)
			}
		})
	}

	ranks.Wait()
	vars := stage(t, c, "j9.1.0", ref)
	has(t, vars["TRAINYARD_DATA_MRI"], data)

	want := []job.DataCopy{{Name: "mri", Source: ref.Source, Path: vars["TRAINYARD_DATA_MRI"]}}
	if diff := cmp.Diff(want, c.Copies()); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}

	c.Close()
	next := open(t, opt)
	has(t, stage(t, next, "j10.1.0", ref)["TRAINYARD_DATA_MRI"], data)

	if asked := s.asked(); len(asked) != 1 {
		t.Errorf("the source was asked %d times", len(asked))
	}

	// Other data under the same name is not mistaken for it.
	other := content(10)
	s2 := serve(t, whole(other, "v1"))
	has(t, stage(t, next, "j11.1.0", job.DataRef{Name: "mri", Source: s2.URL})["TRAINYARD_DATA_MRI"], other)
}

// TestHowFetchesGoWrong has for each trouble what people are told.
func TestHowFetchesGoWrong(t *testing.T) {
	t.Parallel()
	data := content(100_000)
	folder := t.TempDir()
	write(t, filepath.Join(folder, "a"), data)
	refused := serve(t, status(200))
	refused.Close()

	for name, tc := range map[string]struct {
		handle func(http.ResponseWriter, *http.Request, int)
		ref    job.DataRef // its source is put behind that of the server, if there is one
		want   string
		asked  int
	}{
		"not there":              {handle: status(404), want: "answered 404 Not Found", asked: 1},
		"not allowed":            {handle: status(403), want: "answered 403 Forbidden", asked: 1},
		"broken for good":        {handle: status(503), want: "answered 503 Service Unavailable, 6 times in a row", asked: 6},
		"always cut at once":     {handle: cut(0, whole(data, "v1")), want: "6 times in a row", asked: 6},
		"larger than said":       {handle: whole(data, "v1"), ref: job.DataRef{Size: 1000}, want: "registered size is 1000B but SOURCE has 97.7KB", asked: 1},
		"smaller than said":      {handle: whole(data, "v1"), ref: job.DataRef{Size: 1 << 30}, want: "registered size is 1GB but SOURCE has 97.7KB", asked: 1},
		"grows past its size":    {handle: unmeasured(data), ref: job.DataRef{Size: 1000}, want: "registered size is 1000B", asked: 1},
		"other content":          {handle: whole(data, "v1"), ref: job.DataRef{Source: "#sha256=" + digest(nil)}, want: "is not the registered one: got " + digest(data), asked: 1},
		"no machine":             {ref: job.DataRef{Source: refused.URL}, want: "connection refused, 6 times in a row"},
		"no source":              {want: "no copy on this node and no source"},
		"no path":                {ref: job.DataRef{Source: folder + "/missing"}, want: "no such file"},
		"no copy":                {ref: job.DataRef{Path: folder + "/missing"}, want: "registered copy not found at " + folder + "/missing"},
		"no file to copy":        {ref: job.DataRef{Source: "file://" + folder + "/missing"}, want: "no such file"},
		"a copy of another size": {ref: job.DataRef{Source: "file://" + folder, Size: 5}, want: "registered size is 5B"},
		"digest of a folder":     {ref: job.DataRef{Source: "file://" + folder + "#sha256=" + digest(nil)}, want: "cannot compute SHA-256"},
		"digest of a copy":       {ref: job.DataRef{Source: "file://" + folder + "/a#sha256=" + digest(nil)}, want: "is not the registered one"},
		"a kind nobody knows":    {ref: job.DataRef{Source: "s3://bucket/mri"}, want: "must be a path or a file, http or https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, options(t))

			ref, s := tc.ref, (*source)(nil)
			if tc.handle != nil {
				s = serve(t, tc.handle)
				ref.Source = s.URL + "/x" + ref.Source
			}

			ref.Name = "mri"
			_, err := c.Stage(t.Context(), "j1.1.0", []job.DataRef{ref})
			if err == nil {
				t.Fatal("it was staged")
			}

			want := tc.want
			if s != nil {
				want = strings.ReplaceAll(want, "SOURCE", s.URL+"/x")

				if got := len(s.asked()); got != tc.asked {
					t.Errorf("the source was asked %d times, want %d", got, tc.asked)
				}
			}

			if !strings.HasPrefix(err.Error(), "cannot stage dataset mri on this node: ") ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("told %q, want it to say %q", err, want)
			}

			if list := c.Copies(); len(list) > 0 {
				t.Errorf("it is said to be kept: %v", list)
			}
		})
	}
}

// unmeasured sends a file without saying how long it is.
func unmeasured(data []byte) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Transfer-Encoding", "chunked")

		for len(data) > 0 {
			n := min(len(data), 500)
			if _, err := w.Write(data[:n]); err != nil {
				return
			}

			data = data[n:]
		}
	}
}

func TestOneWhoWaitsNoLongerDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	data := content(1000)
	let := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
		select {
		case <-let:
		case <-r.Context().Done():
			return
		}

		whole(data, "v1")(w, r, n)
	})

	c := open(t, options(t))
	ref := []job.DataRef{{Name: "mri", Source: s.URL}}
	first, leave := context.WithCancel(t.Context())
	gone, stays := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Stage(first, "j1.1.0", ref)
		gone <- err
	}()

	soon(t, "the request", func() bool { return len(s.asked()) == 1 })

	go func() {
		_, err := c.Stage(t.Context(), "j2.1.0", ref)
		stays <- err
	}()

	soon(t, "both to wait", func() bool { return c.Progress("j1.1.0") != "" && c.Progress("j2.1.0") != "" })
	leave()

	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who left is told %v", err)
	}

	close(let)

	if err := <-stays; err != nil {
		t.Error(err)
	}

	if asked := s.asked(); len(asked) != 1 {
		t.Errorf("the source was asked %d times", len(asked))
	}

	if words := c.Progress("j2.1.0"); words != "" {
		t.Errorf("one that waits for nothing is said to wait: %s", words)
	}
}

func TestAFetchThatNobodyWaitsForEndsAndCanBeginAgain(t *testing.T) {
	t.Parallel()
	data := content(1000)
	left := make(chan struct{})
	s := serve(t, turns(func(w http.ResponseWriter, r *http.Request, _ int) {
		<-r.Context().Done()
		close(left)
	}, whole(data, "v1")))

	c := open(t, options(t))
	ref := []job.DataRef{{Name: "mri", Source: s.URL}}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := c.Stage(ctx, "j1.1.0", ref)
		gone <- err
	}()

	soon(t, "the request", func() bool { return len(s.asked()) == 1 })
	cancel()

	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("told %v", err)
	}

	has(t, stage(t, c, "j2.1.0", ref...)["TRAINYARD_DATA_MRI"], data)
	<-left
}
