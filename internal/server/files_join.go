package server

import (
	"context"
	"io"
	"sync"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

// joinWait is how long a request waits for a file to be joined: shorter than what clients and proxies bear.
const joinWait = 20 * time.Second

// joins are the files that are being made of parts. A large one takes longer than a request may.
type joins struct {
	mu  sync.Mutex
	all map[joinKey]*join
}

type joinKey struct {
	owner  id.User
	digest string
}

type join struct {
	done chan struct{}
	err  error // valid once done is closed
}

// begin joins a file, unless that is under way already.
func (j *joins) begin(key joinKey, do func() error) *join {
	j.mu.Lock()
	defer j.mu.Unlock()

	if running, ok := j.all[key]; ok {
		return running
	}

	if j.all == nil {
		j.all = map[joinKey]*join{}
	}

	made := &join{done: make(chan struct{})}
	j.all[key] = made

	go func() {
		made.err = do()

		j.mu.Lock()
		delete(j.all, key)
		j.mu.Unlock()
		close(made.done)
	}()

	return made
}

type joinInput struct {
	Digest string `path:"digest" maxLength:"64"`
	Body   api.JoinFileRequest
}

// joinFile makes a file of parts that the caller possesses. It is verified as if it was uploaded.
func (s *Server) joinFile(ctx context.Context, in *joinInput) (*httpapi.Body[api.JoinFileReply], error) {
	owner := callerOf(ctx).User
	if err := s.mayJoin(ctx, in); err != nil {
		return nil, s.fail(ctx, err)
	}

	// Whoever loses the connection asks again, and finds it further.
	lasting := context.WithoutCancel(ctx)
	made := s.joins.begin(joinKey{owner, in.Digest}, func() error { return s.join(lasting, owner, in) })

	if clock.Wait(ctx, joinWait, made.done) != clock.Woken {
		return &httpapi.Body[api.JoinFileReply]{}, nil
	}
	if made.err != nil {
		return nil, s.fail(ctx, made.err)
	}

	return &httpapi.Body[api.JoinFileReply]{Body: api.JoinFileReply{Done: true}}, nil
}

// mayJoin refuses parts that the caller does not possess, and files that are too large.
func (s *Server) mayJoin(ctx context.Context, in *joinInput) error {
	owner := callerOf(ctx).User
	if err := allow(ctx, tenant.SubmitJob, owner); err != nil {
		return err
	}

	for _, d := range append([]string{in.Digest}, in.Body.Parts...) {
		if err := httpapi.CheckDigest(d, "parts"); err != nil {
			return err
		}
	}

	if in.Body.Size > s.MaxFile {
		return fault.New(fault.OverLimit, httpapi.TooLarge, "a file must not be larger than %s, got %s",
			job.Bytes(s.MaxFile), job.Bytes(in.Body.Size))
	}

	missing, err := s.content.Missing(ctx, owner, in.Body.Parts)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fault.New(fault.Conflict, "part_missing", "part %s was not uploaded", missing[0]).WithField("parts").
			WithRemedy("upload it first with PUT /api/v1/files/{digest}")
	}

	return nil
}

// join stores a file that is made of parts, and records that its owner possesses it.
func (s *Server) join(ctx context.Context, owner id.User, in *joinInput) error {
	parts := &partReader{parts: in.Body.Parts, open: func(digest string) (io.ReadCloser, error) {
		return s.Blobs.Get(ctx, httpapi.FileBlob(digest))
	}}
	defer parts.close()

	upload, err := s.quota.Upload(ctx, owner, s.Reserve.Reader(parts), in.Body.Size)
	if err != nil {
		return err
	}

	size, err := httpapi.PutVerified(ctx, s.Blobs.Put, httpapi.FileBlob(in.Digest), in.Digest, upload, s.MaxFile)
	if err == nil {
		err = s.content.Uploaded(ctx, owner, in.Digest, size)
	}

	upload.End(err == nil)

	return err
}

// partReader reads parts one after the other.
type partReader struct {
	parts []string
	open  func(digest string) (io.ReadCloser, error)
	now   io.ReadCloser // nil before the first
}

func (p *partReader) Read(b []byte) (int, error) {
	for {
		if p.now != nil {
			n, err := p.now.Read(b)
			if n > 0 || err != io.EOF {
				return n, err
			}
		}

		p.close()

		if len(p.parts) == 0 {
			return 0, io.EOF
		}

		var err error
		p.now, err = p.open(p.parts[0])
		if err != nil {
			return 0, err
		}

		p.parts = p.parts[1:]
	}
}

func (p *partReader) close() {
	if p.now != nil {
		_ = p.now.Close() // it was only read
		p.now = nil
	}
}
