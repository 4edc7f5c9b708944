package checkpoints

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/digest"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

const (
	// parallelTransfers is how many chunks are uploaded or downloaded at a time. It also bounds the memory of restores.
	parallelTransfers = 8
	// segmentSize is how much is read before it is hashed and uploaded, and segments how many of these are in memory.
	segmentSize = 32 << 20
	segments    = 4
	// readStep is how much is read at a time. It is searched for the end of a chunk while it is in the cache of the
	// processor.
	readStep = 512 << 10
	// alignment is of the addresses at which pieces begin. The kernel copies from any other at half the speed.
	alignment = 64
	// askBatch is how many chunks are asked for at a time. Signed addresses are valid for a short time only.
	askBatch = 64

	minRetryWait = 500 * time.Millisecond
	maxRetryWait = 30 * time.Second
	// corruptTries is how often a chunk may arrive with a wrong digest before it counts as corrupt.
	corruptTries = 3
	// transferStall bounds how long a transfer may stand still.
	transferStall = time.Minute
)

// piece is a chunk in memory. Its digest is computed into chunk, which is part of a manifest.
type piece struct {
	data  []byte
	chunk *api.CheckpointChunk
}

// store uploads and downloads chunks. It is safe for concurrent use.
type store struct {
	yard      func() Yard
	http      *http.Client // for signed addresses
	hasher    *digest.Hasher
	transfers chan struct{} // a place for each transfer at a time
	buffers   chan []byte
	folder    *folder
}

// newStore returns the store of an agent, which dir names among those on this machine.
func newStore(yard func() Yard, dir string) *store {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		MaxIdleConnsPerHost:   parallelTransfers,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: transferStall,
		WriteBufferSize:       256 << 10,
		ReadBufferSize:        256 << 10,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	}

	s := &store{
		yard: yard, http: &http.Client{Transport: transport},
		hasher:    digest.New(runtime.GOMAXPROCS(0)),
		transfers: make(chan struct{}, parallelTransfers), buffers: make(chan []byte, segments),
		folder: newFolder(dir),
	}

	for range segments {
		s.buffers <- nil // made when it is first needed
	}

	return s
}

func (s *store) close() {
	s.http.CloseIdleConnections()
	s.folder.leave()
}

// buffer waits for a free buffer of segmentSize bytes; release gives it back.
func (s *store) buffer(ctx context.Context) ([]byte, error) {
	select {
	case b := <-s.buffers:
		if b == nil {
			b = make([]byte, segmentSize)

			// Of large pages the processor remembers where all of them are. Small ones it looks up again and again while
			// it copies and hashes. It is only a hint, and no harm: the buffer is never freed.
			_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
		}

		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *store) release(b []byte) { s.buffers <- b[:segmentSize] }

// take waits for a place in one of the limits.
func take(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hash computes the digests of pieces.
func (s *store) hash(ctx context.Context, pieces []piece) error {
	list := make([][]byte, len(pieces))
	for i, p := range pieces {
		list[i] = p.data
	}

	for i, sum := range s.hasher.Sums(list...) {
		c := pieces[i].chunk
		c.Digest, c.Size = hex.EncodeToString(sum[:]), int64(len(list[i]))
	}

	return context.Cause(ctx)
}

// is reports whether data is the content of a chunk.
func (s *store) is(c *api.CheckpointChunk, data []byte) bool {
	sum := s.hasher.Sums(data)[0]
	return hex.EncodeToString(sum[:]) == c.Digest
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// upload stores the pieces that the store lacks. Their digests are known.
func (s *store) upload(ctx context.Context, run id.Run, pieces []piece, t *transfer) error {
	chunks := make([]api.CheckpointChunk, len(pieces))
	for i, p := range pieces {
		chunks[i] = *p.chunk
	}

	missing, err := s.missing(ctx, run, chunks, t)
	if err != nil {
		return err
	}

	g := newGroup(ctx)
	for _, p := range pieces {
		place, needed := missing[p.chunk.Digest]
		if !needed {
			t.skip(p.chunk.Size)
			continue
		}

		delete(missing, p.chunk.Digest) // pieces may be equal

		g.run(func(ctx context.Context) error { return s.send(ctx, run, p, place, t) })
	}

	return g.wait()
}

// missing asks which chunks the store lacks and where they are to be uploaded to. A server that does not answer is
// waited for.
func (s *store) missing(
	ctx context.Context, run id.Run, chunks []api.CheckpointChunk, t *transfer,
) (map[string]api.ChunkPlace, error) {
	return s.ask(ctx, api.ChunksRequest{Run: run, Chunks: chunks}, t)
}

func (s *store) ask(ctx context.Context, req api.ChunksRequest, t *transfer) (map[string]api.ChunkPlace, error) {
	var places map[string]api.ChunkPlace

	err := patiently(ctx, t, func() error {
		req.Nonce = s.folder.nonce()

		reply, err := s.yard().Chunks(ctx, req)
		if err != nil {
			return err
		}

		s.folder.learn(req.Nonce, &reply)

		places = make(map[string]api.ChunkPlace, len(reply.Chunks))
		for _, p := range reply.Chunks {
			places[p.Digest] = p
		}

		return nil
	})

	return places, err
}

// send uploads one chunk. After a failure it asks anew: a signed address expires, and what was sent may have arrived.
func (s *store) send(ctx context.Context, run id.Run, p piece, place api.ChunkPlace, t *transfer) error {
	if err := take(ctx, s.transfers); err != nil {
		return err
	}

	defer func() { <-s.transfers }()

	needed := true

	return patiently(ctx, t, func() error {
		if !needed {
			return nil
		}

		err := s.put(ctx, run, p, place, t)
		if err == nil {
			t.done(p.chunk.Size)
			return nil
		}
		if !temporary(err) {
			return err
		}

		places, askErr := s.ask(ctx, api.ChunksRequest{Run: run, Chunks: []api.CheckpointChunk{*p.chunk}}, t)
		if askErr != nil {
			return askErr
		}

		place, needed = places[p.chunk.Digest]

		return err
	})
}

// put uploads one chunk once.
func (s *store) put(ctx context.Context, run id.Run, p piece, place api.ChunkPlace, t *transfer) error {
	if place.File != "" {
		return s.folder.stage(ctx, place.File, p.data, t)
	}

	if place.URL == "" {
		return s.yard().PutChunk(ctx, run, p.chunk.Digest, p.data)
	}

	ctx, moved, stop := clock.Progress(ctx, transferStall)
	defer stop()

	body := &movingReader{bytes.NewReader(p.data), moved}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, place.URL, body)
	if err != nil {
		return fmt.Errorf("upload chunk: %w", err)
	}

	req.ContentLength = p.chunk.Size
	for k, v := range place.Header {
		req.Header.Set(k, v)
	}

	resp, err := s.http.Do(req)
	if err != nil {
		return unreachable(err)
	}

	defer func() { _ = resp.Body.Close() }()

	return answered(resp)
}

// fetch downloads one chunk into a buffer that has room for it, and verifies it.
func (s *store) fetch(ctx context.Context, run id.Run, c api.CheckpointChunk, place api.ChunkPlace, buf []byte,
	t *transfer) ([]byte, error) {
	data := buf[:c.Size]
	wrong := 0

	if place.File != "" && s.folder.read(ctx, place.File, data) && s.is(&c, data) {
		return data, nil
	}

	err := patiently(ctx, t, func() error {
		err := s.get(ctx, run, c, place, data)
		if err == nil && s.is(&c, data) {
			return nil
		}

		if err == nil {
			wrong++
			if wrong == corruptTries {
				return corrupt("chunk %s has another digest", c.Digest)
			}

			return fault.New(fault.Unavailable, "chunk_damaged", "chunk %s arrived with another digest", c.Digest)
		}

		if place.URL != "" && ctx.Err() == nil {
			places, askErr := s.ask(ctx, api.ChunksRequest{Run: run, Chunks: []api.CheckpointChunk{c}, Restore: true}, t)
			if askErr != nil {
				return askErr
			}

			place = places[c.Digest]
		}

		return err
	})

	return data, err
}

// get downloads one chunk once.
func (s *store) get(ctx context.Context, run id.Run, c api.CheckpointChunk, place api.ChunkPlace, data []byte) error {
	ctx, moved, stop := clock.Progress(ctx, transferStall)
	defer stop()

	body, err := s.open(ctx, run, c.Digest, place)
	if err != nil {
		return err
	}

	defer func() { _ = body.Close() }()

	_, err = io.ReadFull(&movingReader{body, moved}, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Unavailable, "chunk_short", "chunk %s is incomplete", c.Digest).WithCause(err)
	}
	if err != nil {
		return unreachable(err)
	}

	return nil
}

func (s *store) open(ctx context.Context, run id.Run, digest string, place api.ChunkPlace) (io.ReadCloser, error) {
	if place.URL == "" {
		return s.yard().FetchChunk(ctx, run, digest)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("download chunk: %w", err)
	}

	for k, v := range place.Header {
		req.Header.Set(k, v)
	}

	resp, err := s.http.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}

	if err := answered(resp); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}

	return resp.Body, nil
}

// answered returns an error for every answer of an object store but success. A refusal counts as temporary, since the
// signature may have expired.
func answered(resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}

	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		text = nil // the status says enough
	}

	kind := fault.Unavailable
	if resp.StatusCode == http.StatusNotFound {
		kind = fault.NotFound
	}

	return fault.New(kind, "object_store", "the object store answered %s", resp.Status).
		WithCause(fmt.Errorf("%.300s", text))
}

func unreachable(err error) error {
	return fault.New(fault.Unavailable, "object_store", "cannot reach the checkpoint store: %v", err).WithCause(err)
}

// temporary reports whether an error may go away by itself.
func temporary(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Unavailable || kind == fault.OverLimit || kind == fault.Internal || errors.Is(err, io.EOF)
}

// patiently calls a function until it succeeds, fails for good, or ctx ends.
func patiently(ctx context.Context, t *transfer, fn func() error) error {
	for tries := 1; ; tries++ {
		err := fn()
		if err == nil {
			t.note(nil)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !temporary(err) {
			return err
		}

		t.note(err)

		if !clock.Sleep(ctx, job.Backoff(tries, minRetryWait, maxRetryWait)) {
			return context.Cause(ctx)
		}
	}
}

// movingReader says that bytes move.
type movingReader struct {
	io.Reader
	moved func()
}

func (r *movingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.moved()
	}

	return n, err
}
