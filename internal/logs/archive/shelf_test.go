package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/fault"
	"trainyard/internal/logs"
)

// handClock is a clock that tests can put forward.
type handClock struct{ ahead atomic.Int64 }

func (c *handClock) Now() time.Time          { return time.Now().UTC().Add(time.Duration(c.ahead.Load())) }
func (c *handClock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// testBlobs is a blob store that fails when it is told to.
type testBlobs struct {
	blob.Store
	mu   sync.Mutex
	left int // puts that still succeed, if limited
	err  error
	puts atomic.Int64

	listing  func()             // called before a list is answered
	deleting func(string) error // called before a blob is deleted
}

func (b *testBlobs) Delete(ctx context.Context, name string) error {
	if b.deleting != nil {
		if err := b.deleting(name); err != nil {
			return err
		}
	}

	return b.Store.Delete(ctx, name)
}

// Prune implements blob.Pruner.
func (b *testBlobs) Prune(name string) error {
	p, ok := b.Store.(blob.Pruner)
	if !ok {
		return nil
	}

	return p.Prune(name)
}

func (b *testBlobs) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	if b.listing != nil {
		b.listing()
	}

	return b.Store.List(ctx, prefix)
}

// failAfter lets so many puts through and fails the others; nil for all.
func (b *testBlobs) failAfter(n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.left, b.err = n, err
}

func (b *testBlobs) Put(ctx context.Context, name string, r io.Reader) error {
	b.mu.Lock()
	b.left--
	err := b.err
	if b.left >= 0 {
		err = nil
	}

	b.mu.Unlock()

	if err != nil {
		return err
	}

	b.puts.Add(1)

	return b.Store.Put(ctx, name, r)
}

// wantFault checks the kind and code of an error that a client got.
func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != kind || f.Code != code {
		t.Fatalf("got the error %v, want one of kind %s with the code %s", err, kind, code)
	}
}

// output is a log with these frames: "o:text", "e:text" or "y:text".
func output(t testing.TB, frames ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := logs.NewWriter(&out, 0)
	for i, f := range frames {
		if err := w.Write(logs.Stream(f[0]), time.UnixMilli(int64(1000+i)), []byte(f[2:])); err != nil {
			t.Fatal(err)
		}
	}

	return out.Bytes()
}
