package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/job"
	"trainyard/internal/netguard"
)

// maxWait bounds the wait between two attempts of a fetch.
const maxWait = 30 * time.Second

// version is the content of from.json: the version of the source that the bytes in the part
// directory belong to.
type version struct {
	Validator string `json:"validator"` // sent in If-Range
}

// passing marks a temporary failure, after which the fetch is tried again.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// passed returns a temporary failure.
func passed(format string, args ...any) error { return passing{fmt.Errorf(format, args...)} }

// download fetches a file over HTTP. After an interruption it resumes where the last attempt
// stopped; it gives up after Options.Tries consecutive attempts that brought no new byte.
func (c *Cache) download(ctx context.Context, f *fetch) error {
	d := &getting{fetch: f, cache: c, sum: sha256.New()}
	best := int64(0)

	for failures := 0; ; {
		err := d.attempt(ctx)
		var soon passing
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &soon):
			return err
		}

		if got := f.got.Load(); got > best {
			best, failures = got, 0
		}

		failures++
		if failures >= c.opt.Tries {
			return failed(f.ref.Name, "%v, %d times in a row", err, failures)
		}

		c.opt.Log.Warn("fetching of a dataset broke off", "dataset", f.ref.Name, "error", err)
		why := err.Error() + ", trying again"
		f.trouble.Store(&why)
		clock.Sleep(ctx, job.Backoff(failures, c.opt.Wait, maxWait))
	}
}

// getting is the state of one file that is downloaded over HTTP.
type getting struct {
	*fetch
	cache  *Cache
	sum    hash.Hash // digest of the first summed bytes
	summed int64
	part   *os.File
}

// attempt makes one request and writes the bytes of its answer to the part.
func (d *getting) attempt(ctx context.Context) (err error) {
	ctx, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop(nil)

	came := make(chan struct{}, 1)
	watch.Go(func() {
		for stall := d.cache.opt.Stall; ; {
			switch clock.Wait(ctx, stall, came) {
			case clock.Woken:
			case clock.Passed:
				stop(passed("no data received for %v", job.Duration(stall)))
				return
			case clock.Ended:
				return
			}
		}
	})

	//nolint:gosec // programs that run as other users may read it
	if err := os.Chmod(d.target(), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(d.ref.Name, "%v", err)
	}

	//nolint:gosec // programs that run as other users may read it
	d.part, err = os.OpenFile(d.target(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return failed(d.ref.Name, "%v", err)
	}

	defer func() { err = errors.Join(err, d.part.Close()) }()

	offset, validator, err := d.resumes()
	if err != nil {
		return failed(d.ref.Name, "%v", err)
	}

	resp, err := d.ask(ctx, offset, validator)
	if err != nil {
		return err
	}

	defer func() { _ = resp.Body.Close() }()

	offset, err = d.answered(resp, offset)
	if err != nil {
		return err
	}

	err = d.take(ctx, &lively{resp.Body, came}, offset)
	if err == nil {
		err = d.whole()
	}

	return err
}

// lively reports each read, so that a connection that delivers nothing for Options.Stall can be
// closed.
type lively struct {
	io.Reader
	came chan<- struct{}
}

// Read implements io.Reader.
func (l *lively) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if n > 0 {
		select {
		case l.came <- struct{}{}:
		default:
		}
	}

	return n, err
}

// resumes returns the offset from which to request the file and the validator that the source must
// still report. Without a validator, only a registered digest can prove that the two halves belong
// to the same version of the file; without either the download starts over.
func (d *getting) resumes() (offset int64, validator string, err error) {
	info, err := d.part.Stat()
	if err != nil || info.Size() == 0 {
		return 0, "", err
	}

	var v version
	if err := readJSON(filepath.Join(d.dir, fromFile), &v); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, "", nil // the record is incomplete: start over
	}
	if v.Validator == "" && d.src.SHA256 == "" {
		return 0, "", nil
	}

	return info.Size(), v.Validator, nil
}

// ask sends the request for the bytes from offset on.
func (d *getting) ask(ctx context.Context, offset int64, validator string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.src.At, nil)
	if err != nil {
		return nil, failed(d.ref.Name, "%v", err)
	}

	req.Header.Set("Accept-Encoding", "identity") // ranges and sizes are those of the file
	req.Header.Set("User-Agent", "trainyard-agent")

	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))

		if validator != "" {
			req.Header.Set("If-Range", validator)
		}
	}

	resp, err := d.cache.client.Do(req)
	if r, ok := netguard.RefusalOf(err); ok {
		return nil, failed(d.ref.Name, "%s: %s", d.from(), refusalText(r))
	}
	if err != nil {
		return nil, d.brokeOff(ctx, err)
	}

	return resp, nil
}

// brokeOff returns the error for a connection that failed.
func (d *getting) brokeOff(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		err = cause
	}

	// The address in it may have a signature, which is not for everybody who reads why a run waits.
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}

	return passed("%s: %w", d.from(), err)
}

// answered checks the status and headers of the answer and returns the offset at which its bytes
// belong.
func (d *getting) answered(resp *http.Response, asked int64) (offset int64, err error) {
	total := resp.ContentLength
	switch {
	case resp.StatusCode == http.StatusPartialContent && asked > 0:
		start, size, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || start != asked {
			return 0, errors.Join(passed("%s sent a different range than requested", d.from()), d.restart())
		}

		offset, total = start, size
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, errors.Join(passed("%s is smaller than what was already fetched", d.from()), d.restart())
	case resp.StatusCode >= 500,
		resp.StatusCode == http.StatusRequestTimeout,
		resp.StatusCode == http.StatusTooManyRequests:
		return 0, passed("%s answered %s", d.from(), resp.Status)
	default:
		return 0, failed(d.ref.Name, "%s answered %s", d.from(), resp.Status)
	}

	d.trouble.Store(nil)
	d.got.Store(offset)
	d.total.Store(max(total, 0))

	if total >= 0 {
		if err := d.sized(total); err != nil {
			return 0, err
		}
	}

	if err := d.cache.reserve(d.fetch, max(total, offset)); err != nil {
		return 0, err
	}
	if err := writeJSON(filepath.Join(d.dir, fromFile), version{Validator: validatorOf(resp.Header)}); err != nil {
		return 0, failed(d.ref.Name, "%v", err)
	}

	return offset, nil
}

// restart truncates the part to nothing. The file stays open.
func (d *getting) restart() error {
	d.got.Store(0)
	return d.part.Truncate(0)
}

// contentRange parses a Content-Range header such as "bytes 100-199/1000". A size that the source
// does not state is -1.
func contentRange(text string) (start, size int64, ok bool) {
	text, found := strings.CutPrefix(text, "bytes ")
	span, all, slash := strings.Cut(text, "/")
	first, _, dash := strings.Cut(span, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	if !found || !slash || !dash || err != nil {
		return 0, 0, false
	}
	if all == "*" {
		return start, -1, true
	}

	size, err = strconv.ParseInt(all, 10, 64)

	return start, size, err == nil
}

// validatorOf returns a value that identifies this version of the file, "" if the source sends none
// that is reliable.
func validatorOf(h http.Header) string {
	if tag := h.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}

	return h.Get("Last-Modified")
}

// take writes the body of the answer behind the first offset bytes.
func (d *getting) take(ctx context.Context, body io.Reader, offset int64) error {
	if err := d.part.Truncate(offset); err != nil {
		return failed(d.ref.Name, "%v", err)
	}
	if err := d.catchUp(offset); err != nil {
		return failed(d.ref.Name, "%v", err)
	}
	if _, err := d.part.Seek(offset, io.SeekStart); err != nil {
		return failed(d.ref.Name, "%v", err)
	}

	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if werr := d.write(buf[:n]); werr != nil {
				return werr
			}
		}

		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return d.brokeOff(ctx, err)
		}
	}

	if total, got := d.total.Load(), d.got.Load(); total > 0 && got < total {
		return passed("%s: connection closed after %d of %d bytes", d.from(), got, total)
	}

	return nil
}

// write appends to the part. It fails if the disk has no room or if the source sends more bytes
// than it announced.
func (d *getting) write(p []byte) error {
	next := d.got.Load() + int64(len(p))
	if total := d.total.Load(); total > 0 && next > total {
		return failed(d.ref.Name, "%s sent more than the announced %d bytes", d.from(), total)
	}
	if limit := float64(d.ref.Size) * (1 + slack); limit > 0 && float64(next) > limit {
		return d.sized(next)
	}

	if next > d.reserved.Load() {
		if err := d.cache.reserve(d.fetch, next+step); err != nil {
			return err
		}
	}

	if _, err := d.part.Write(p); err != nil {
		failure := failed(d.ref.Name, "%v", diskspace.Named(d.cache.opt.Dir, err))
		if diskspace.Full(err) { // somebody else took the room that was reserved: leave the disk as it was
			return errors.Join(failure, d.restart())
		}

		return failure
	}

	if d.src.SHA256 != "" {
		d.sum.Write(p)
		d.summed = next
	}

	d.got.Store(next)

	return nil
}

// catchUp brings the digest up to date with the first offset bytes of the part, which an earlier
// attempt, perhaps of an earlier agent process, has written.
func (d *getting) catchUp(offset int64) error {
	if d.src.SHA256 == "" || d.summed == offset {
		return nil
	}

	d.sum.Reset()
	d.summed = offset
	_, err := io.Copy(d.sum, io.NewSectionReader(d.part, 0, offset))

	return err
}

// whole checks the size and digest of a file that was received to its end.
func (d *getting) whole() error {
	if err := d.sized(d.got.Load()); err != nil {
		return errors.Join(err, d.discard())
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); d.src.SHA256 != "" && got != d.src.SHA256 {
		return errors.Join(failed(d.ref.Name, "SHA-256 of %s is not the registered one: got %s", d.from(), got), d.discard())
	}
	if err := d.part.Chmod(0o444); err != nil {
		return failed(d.ref.Name, "%v", err)
	}

	return nil
}
