package staging_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

// noVersion answers without ranges and without a version, as plain programs do.
func noVersion(data []byte) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(data)
	}
}

// TestABrokenFetchGoesOn cuts connections and looks at what is asked for then.
func TestABrokenFetchGoesOn(t *testing.T) {
	t.Parallel()
	data, other := content(1_000_000), content(1_000_001)[:1_000_000]

	const cutAt = 300_000
	for name, tc := range map[string]struct {
		handle func(http.ResponseWriter, *http.Request, int)
		digest bool
		want   []byte
		asked  []string
	}{
		"from where it was cut": {handle: turns(cut(cutAt, whole(data, "v1")), whole(data, "v1")), want: data, asked: []string{"", "bytes=300000-"}},
		"cut again and again": {handle: turns(cut(cutAt, whole(data, "v1")), cut(cutAt, whole(data, "v1")), whole(data, "v1")), want: data,
			asked: []string{"", "bytes=300000-", "bytes=600000-"}},
		"after errors between": {handle: turns(cut(cutAt, whole(data, "v1")), status(503), status(429), whole(data, "v1")), want: data,
			asked: []string{"", "bytes=300000-", "bytes=300000-", "bytes=300000-"}},
		"anew if the file has changed": {handle: turns(cut(cutAt, whole(data, "v1")), whole(other, "v2")), want: other, asked: []string{"", "bytes=300000-"}},
		"anew without a version":       {handle: turns(cut(cutAt, noVersion(data)), noVersion(data)), want: data, asked: []string{"", ""}},
		"without a version by its digest": {handle: turns(cut(cutAt, noVersion(data)), whole(data, "v1")), digest: true, want: data,
			asked: []string{"", "bytes=300000-"}},
		"anew if the source has no ranges": {handle: turns(cut(cutAt, whole(data, "v1")), noVersion(data)), want: data, asked: []string{"", "bytes=300000-"}},
		"anew if the file became shorter": {handle: turns(cut(cutAt, whole(data, "v1")), status(http.StatusRequestedRangeNotSatisfiable), whole(data[:1000], "v2")), want: data[:1000],
			asked: []string{"", "bytes=300000-", ""}},
		"anew if another part comes": {handle: turns(cut(cutAt, whole(data, "v1")), func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Range", "bytes 5-9/1000000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data[5:10])
		}, whole(data, "v1")), want: data, asked: []string{"", "bytes=300000-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tc.handle)
			ref := job.DataRef{Name: "mri", Source: s.URL + "/mri"}
			if tc.digest {
				ref.Source += "#sha256=" + digest(tc.want)
			}

			has(t, stage(t, open(t, options(t)), "j1.1.0", ref)["TRAINYARD_DATA_MRI"], tc.want)

			if diff := cmp.Diff(tc.asked, s.asked()); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnotherAgentGoesOnWithAFetch(t *testing.T) {
	t.Parallel()
	data := content(1_000_000)
	s := serve(t, turns(func(w http.ResponseWriter, r *http.Request, n int) {
		whole(data, "v1")(&holding{w, r, 400_000}, r, n)
	}, whole(data, "v1")))
	opt := options(t)
	c := open(t, opt)
	ref := job.DataRef{Name: "mri", Source: s.URL + "#sha256=" + digest(data), Size: 1_000_000}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Stage(t.Context(), "j1.1.0", []job.DataRef{ref})
		ended <- err
	}()

	soon(t, "a part", func() bool { return c.Progress("j1.1.0") == "fetching dataset mri: 390.6KB of 976.6KB" })
	c.Close()

	if err := <-ended; err == nil {
		t.Error("it was staged")
	}

	has(t, stage(t, open(t, opt), "j1.1.0", ref)["TRAINYARD_DATA_MRI"], data)

	if diff := cmp.Diff([]string{"", "bytes=400000-"}, s.asked()); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
}

// holding sends that many bytes and then nothing until the other side goes.
type holding struct {
	http.ResponseWriter
	r    *http.Request
	left int
}

func (h *holding) Write(p []byte) (int, error) {
	n, err := h.ResponseWriter.Write(p[:min(len(p), h.left)])
	h.left -= n
	if h.left == 0 && err == nil {
		if err = http.NewResponseController(h.ResponseWriter).Flush(); err == nil {
			<-h.r.Context().Done()
			panic(http.ErrAbortHandler)
		}
	}

	return n, err
}

func TestASourceThatFallsSilentIsAskedAgain(t *testing.T) {
	t.Parallel()
	data := content(500_000)
	s := serve(t, turns(
		func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() },
		func(w http.ResponseWriter, r *http.Request, n int) { whole(data, "v1")(&holding{w, r, 200_000}, r, n) },
		whole(data, "v1")))

	opt := options(t)
	opt.Stall = 300 * time.Millisecond
	has(t, stage(t, open(t, opt), "j1.1.0", job.DataRef{Name: "mri", Source: s.URL})["TRAINYARD_DATA_MRI"], data)

	if asked := s.asked(); len(asked) < 3 { // more on a machine that is itself slow
		t.Errorf("the source was asked %d times, want 3", len(asked))
	}
}

func TestWhatIsWrongMeanwhileIsTold(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	s := serve(t, turns(status(503), func(w http.ResponseWriter, r *http.Request, n int) {
		<-let
		whole([]byte("x"), "v1")(w, r, n)
	}))

	c := open(t, options(t))
	ended := make(chan error, 1)
	go func() {
		_, err := c.Stage(t.Context(), "j1.1.0", []job.DataRef{{Name: "mri", Source: s.URL}})
		ended <- err
	}()

	soon(t, "the second request", func() bool { return len(s.asked()) == 2 })

	if words := c.Progress("j1.1.0"); !strings.Contains(words, "answered 503 Service Unavailable, trying again") {
		t.Errorf("told %q", words)
	}

	close(let)

	if err := <-ended; err != nil {
		t.Error(err)
	}
}
