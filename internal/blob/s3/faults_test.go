package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"trainyard/internal/blob/blobtest"
	"trainyard/internal/cloud/cloudtest"
	"trainyard/internal/fault"
)

func put(t *testing.T, s *Store, name, text string) {
	t.Helper()

	if err := s.Put(t.Context(), name, strings.NewReader(text)); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

// throughProxy returns a store whose requests pass a proxy that injects faults.
func throughProxy(t *testing.T) (*Store, *cloudtest.Proxy) {
	t.Helper()
	s := server(t, "versitygw")
	direct := open(t, s)
	proxy := cloudtest.NewProxy(t, s.URL)

	return open(t, s, func(c *Config) { c.Bucket, c.Endpoint = direct.cfg.Bucket, proxy.URL }), proxy
}

// is matches requests by their method and a part of their query.
func is(method, query string) func(*cloudtest.Request) bool {
	return func(a *cloudtest.Request) bool {
		return a.Method == method && strings.Contains(a.URL.RawQuery, query)
	}
}

var content = bytes.Repeat([]byte("0123456789abcdef"), (partSize*2+100)/16)

func TestCallsThatFailForAWhileAreRetried(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t)
	busy := cloudtest.Say(http.StatusServiceUnavailable, "application/xml",
		"<Error><Code>SlowDown</Code><Message>Please reduce your request rate</Message></Error>")

	proxy.Next(is(http.MethodPut, ""), busy)
	proxy.Next(is(http.MethodPut, ""), cloudtest.Cut)
	put(t, s, "a", "hello")

	proxy.Next(is(http.MethodPost, "uploads"), busy)
	proxy.Next(is(http.MethodPut, "partNumber=2"), cloudtest.Cut)
	proxy.Next(is(http.MethodPut, "partNumber=3"), busy)

	if err := s.Put(t.Context(), "b", bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}

	proxy.Next(is(http.MethodGet, ""), busy)

	r, err := s.Get(t.Context(), "b")
	if got := blobtest.Read(t, r, err); got != string(content) {
		t.Errorf("read %d bytes that are not those that were put", len(got))
	}
}

// A store may not know an upload any more when it is asked again to make one blob of the parts, because it has done so
// and its answer was lost.
func TestALostAnswerToTheLastStepOfAnUploadIsFoundOut(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t)
	last := is(http.MethodPost, "uploadId=")
	forgotten := cloudtest.Say(http.StatusNotFound, "application/xml",
		"<Error><Code>NoSuchUpload</Code><Message>The specified upload does not exist</Message></Error>")

	proxy.Next(last, forgotten)
	proxy.Next(last, proxy.Lose) // the newest rule is the first

	if err := s.Put(t.Context(), "b", bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}

	r, err := s.Get(t.Context(), "b")
	if got := blobtest.Read(t, r, err); got != string(content) {
		t.Errorf("read %d bytes that are not those that were put", len(got))
	}

	proxy.Next(last, forgotten) // by a store that really knows nothing of it

	if err := s.Put(t.Context(), "c", bytes.NewReader(content)); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("put = %v, want it to fail", err)
	}
}

func TestAnUploadThatFailsLeavesNoParts(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t)
	stop := proxy.While(is(http.MethodPut, "partNumber=2"), cloudtest.Say(http.StatusForbidden, "application/xml",
		"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"))

	err := s.Put(t.Context(), "b", bytes.NewReader(content))
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "s3:ListBucket") {
		t.Errorf("put = %v, want it refused with a remedy", err)
	}

	stop()

	broken := errors.New("line is down")
	err = s.Put(t.Context(), "b", io.MultiReader(bytes.NewReader(content), &failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("put = %v, want the reader's error", err)
	}

	left, err := server(t, "versitygw").Client().ListMultipartUploads(t.Context(),
		&s3.ListMultipartUploadsInput{Bucket: &s.cfg.Bucket})
	if err != nil || len(left.Uploads) > 0 {
		t.Errorf("%d uploads are left (%v)", len(left.Uploads), err)
	}

	if names := blobtest.Names(t, s, ""); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// A server that is killed leaves parts behind. They go, but not those of uploads that may still be under way, and not
// those of another yard in the same bucket.
func TestUploadsThatWereNeverFinishedAreRemoved(t *testing.T) {
	t.Parallel()
	s := open(t, server(t, "versitygw")) // moto begins all uploads in 2010
	api := server(t, "versitygw").Client()

	for _, key := range []string{s.cfg.Prefix + "a", s.cfg.Prefix + "b", "another/yard/a"} {
		if _, err := api.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{
			Bucket: &s.cfg.Bucket, Key: &key,
		}); err != nil {
			t.Fatal(err)
		}
	}

	for _, tt := range []struct {
		before time.Duration
		want   int
	}{{-time.Hour, 0}, {time.Hour, 2}, {time.Hour, 0}} {
		n, err := s.RemoveUploads(t.Context(), time.Now().Add(tt.before))
		if n != tt.want || err != nil {
			t.Errorf("removed %d uploads (%v), want %d", n, err, tt.want)
		}
	}

	left, err := api.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &s.cfg.Bucket})
	if err != nil || len(left.Uploads) != 1 || *left.Uploads[0].Key != "another/yard/a" {
		t.Errorf("left: %+v (%v)", left, err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// Nothing waits for ever: not for an answer, not for content, not for a part to arrive.
func TestAServerThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t)
	put(t, s, "a", "hello")

	s.cfg.timeouts = timeouts{call: 200 * time.Millisecond, part: 200 * time.Millisecond}
	until := make(chan struct{})
	stop := proxy.While(cloudtest.Any, cloudtest.Hang(until))

	defer func() {
		close(until)
		stop()
	}()

	_, statErr := s.Stat(t.Context(), "a")
	_, getErr := s.Get(t.Context(), "a")
	var listErr error
	for _, err := range s.List(t.Context(), "") {
		listErr = err
	}

	for what, err := range map[string]error{
		"put": s.Put(t.Context(), "b", strings.NewReader("x")), "put in parts": s.Put(t.Context(), "c", bytes.NewReader(content)),
		"delete": s.Delete(t.Context(), "a"), "stat": statErr, "get": getErr, "list": listErr, "check": s.Check(t.Context()),
	} {
		if fault.KindOf(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the deadline", what, err)
		}
	}
}

// read returns a blob as far as it comes, and the first error: of the answer or of its content.
func read(t *testing.T, s *Store, key string) ([]byte, error) {
	t.Helper()

	r, err := s.Get(t.Context(), key)
	if err != nil {
		return nil, err
	}

	got, err := io.ReadAll(r)
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}

	return got, err
}

func TestContentThatDoesNotComeOrIsDamagedIsAnError(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t)
	put(t, s, "a", "hello")

	until := make(chan struct{})
	defer close(until)

	patient := s.cfg.timeouts
	hasty := timeouts{call: time.Second, part: patient.part}

	for what, tt := range map[string]struct {
		timeouts timeouts
		do       cloudtest.Trouble
		want     error
	}{
		"stalled": {hasty, func(w http.ResponseWriter, a *cloudtest.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = w.Write([]byte("he"))
			_ = http.NewResponseController(w).Flush()
			cloudtest.Hang(until)(w, a)
		}, context.DeadlineExceeded},
		"cut off": {patient, func(w http.ResponseWriter, _ *cloudtest.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = w.Write([]byte("he"))
		}, io.ErrUnexpectedEOF},
		"damaged": {patient, func(w http.ResponseWriter, a *cloudtest.Request) {
			answer, err := proxy.Forward(a)
			if err == nil {
				answer.Body[0]++
				answer.Write(w)
			}
		}, nil},
	} {
		proxy.Next(is(http.MethodGet, ""), tt.do)
		s.cfg.timeouts = tt.timeouts

		got, err := read(t, s, "a")
		if fault.KindOf(err) != fault.Unavailable || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: read %q, %v; want it to fail", what, got, err)
		}
	}
}
