package agentapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

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
	log, err := s.mayWriteLog(ctx, run, id.UID(r.URL.Query().Get("uid")), rank)
	if err != nil {
		return err
	}

	if err := s.Reserve.Uploads(); err != nil {
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

	size, ended, err := s.Archive.Append(ctx, log, offset, data, r.URL.Query().Get("final") == "true")
	if err != nil {
		return err
	}

	return writeJSON(w, api.LogReply{Offset: size, Ended: ended})
}

// mayWriteLog lets a node write only the output of ranks that were placed on it, and returns the log.
// A node may have a run that got the same id in another history of the yard: it has another UID. An
// agent that knows none has the run from an earlier version.
func (s *Server) mayWriteLog(ctx context.Context, run id.Run, uid id.UID, rank int) (archive.Log, error) {
	n := nodeOf(ctx)
	asked := archive.Log{Run: run, UID: uid, Rank: rank}
	if log, ok := s.writers.find(s.Clock.Now(), asked, n); ok {
		return log, nil
	}

	r, err := s.Store.Run(ctx, run)
	if err != nil {
		return archive.Log{}, err
	}
	if uid != "" && uid != r.UID {
		return archive.Log{}, fault.New(fault.Conflict, api.CodeOtherRun,
			"run %s on node %s is not the run of that id that this yard knows", run, n)
	}
	if rank < 0 || rank >= len(r.Ranks) || r.Ranks[rank].Node != n {
		return archive.Log{}, fault.New(fault.Denied, "not_your_run", "rank %d of run %s is not on node %s", rank, run, n)
	}

	log := archive.Log{Run: run, UID: r.UID, Rank: rank}
	s.writers.add(s.Clock.Now(), asked, writer{node: n, log: log})

	return log, nil
}

// writers remembers which node was found to be allowed to write a log, as long as it does. Those that have not been
// asked for between two turns are forgotten.
type writers struct {
	mu         sync.Mutex
	young, old map[archive.Log]writer // by the log as the node names it; those in old were not asked for since the turn
	turned     time.Time
}

// writer is a node that may write a log.
type writer struct {
	node id.Node
	log  archive.Log
}

const (
	writersTurn = 5 * time.Minute // between two turns
	maxWriters  = 50_000          // that are remembered; past it all others are asked for again
)

func (w *writers) find(now time.Time, asked archive.Log, n id.Node) (archive.Log, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.turn(now)

	found, ok := w.young[asked]
	if !ok {
		if found, ok = w.old[asked]; ok {
			w.young[asked] = found
		}
	}

	return found.log, ok && found.node == n
}

func (w *writers) add(now time.Time, asked archive.Log, found writer) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.turn(now)
	w.young[asked] = found
}

// turn lets the young ones become old if it is time.
func (w *writers) turn(now time.Time) {
	age := now.Sub(w.turned)
	if w.young != nil && age >= 0 && age < writersTurn && len(w.young) < maxWriters/2 {
		return
	}

	w.young, w.old, w.turned = map[archive.Log]writer{}, w.young, now
	if age >= 2*writersTurn {
		w.old = nil // what was young then has not been asked for since
	}
}

func (s *Server) getFile(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	if err := httpapi.CheckDigest(digest, "digest"); err != nil {
		return err
	}

	if err := s.mayFetch(r.Context(), digest); err != nil {
		return err
	}

	f, err := s.Blobs.Get(r.Context(), httpapi.FileBlob(digest))
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.NotFound, "file_not_found", "file %s not found", digest)
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

// mayFetch lets a node fetch only the working directories of runs that are ordered there. Whether any other file is on
// the server it is not told.
func (s *Server) mayFetch(ctx context.Context, digest string) error {
	n := nodeOf(ctx)
	asked := map[string]bool{"": true} // manifests that were looked at; many runs have the same

	orders, _, _ := s.Assignments.Desired(n)
	for i := range orders {
		manifest := orders[i].Launch.Workdir
		if asked[manifest] {
			continue
		}

		asked[manifest] = true

		listed, err := s.Content.Lists(ctx, manifest, digest)
		if listed || err != nil {
			return err
		}
	}

	return fault.New(fault.Denied, "not_your_file", "file %s belongs to no run on node %s", digest, n)
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}
