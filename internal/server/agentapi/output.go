package agentapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/httpapi"
)

// MaxLogPart bounds one upload of output, unpacked.
const MaxLogPart = 8 << 20

func (s *Server) putLog(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	rank, err := strconv.Atoi(r.PathValue("rank"))

	run := id.Run(r.PathValue("run"))
	if _, _, ok := run.Split(); !ok || err != nil {
		return fault.New(fault.NotFound, "run_not_found", "run not found")
	}

	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return fault.New(fault.Invalid, "bad_offset", "offset must be an integer").WithField("offset")
	}
	if err := s.mayWriteLog(ctx, run, rank); err != nil {
		return err
	}

	content, err := httpapi.Uncompressed(w, r, MaxLogPart)
	if err != nil {
		return err
	}

	data, err := io.ReadAll(io.LimitReader(content, MaxLogPart+1))
	if err != nil {
		return fault.New(fault.Invalid, "broken_upload", "the upload was interrupted").WithCause(err)
	}
	if len(data) > MaxLogPart {
		return fault.New(fault.OverLimit, httpapi.TooLarge, "an upload must not be larger than %d bytes", MaxLogPart)
	}

	if err := s.Loop.Held(); err != nil {
		return err
	}

	size, err := s.Archive.Append(ctx, run, rank, offset, data, r.URL.Query().Get("final") == "true")
	if err != nil {
		return err
	}

	return writeJSON(w, api.LogReply{Offset: size})
}

// mayWriteLog lets a node write only the output of ranks that were placed on it.
func (s *Server) mayWriteLog(ctx context.Context, run id.Run, rank int) error {
	n := nodeOf(ctx)
	key := archive.Name(run, rank)
	if s.writers.is(key, n) {
		return nil
	}

	r, err := s.Store.Run(ctx, run)
	if err != nil {
		return err
	}
	if rank < 0 || rank >= len(r.Ranks) || r.Ranks[rank].Node != n {
		return fault.New(fault.Denied, "not_your_run", "rank %d of run %s is not on node %s", rank, run, n)
	}

	s.writers.set(key, n)

	return nil
}

// writers remembers which node was found to be allowed to write a log.
type writers struct {
	mu sync.Mutex
	by map[string]id.Node
}

func (w *writers) is(key string, n id.Node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[key] == n
}

func (w *writers) set(key string, n id.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.by == nil || len(w.by) >= maxWriters {
		w.by = map[string]id.Node{}
	}

	w.by[key] = n
}

// maxWriters bounds the memory; past it all are asked for again.
const maxWriters = 50_000

func (s *Server) getFile(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	if err := httpapi.CheckDigest(digest, "digest"); err != nil {
		return err
	}

	f, err := s.Blobs.Get(r.Context(), httpapi.FileBlob(digest))
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.NotFound, "file_not_found", "there is no file %s", digest)
	}
	if err != nil {
		return err
	}

	defer func() { _ = f.Close() }()

	w.Header().Set("Content-Type", "application/octet-stream")

	if _, err := io.Copy(w, f); err != nil {
		s.Log.WarnContext(r.Context(), "sending a file broke off", "digest", digest, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun; the only way to say that it is not whole
	}

	return nil
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}
