package agentapi

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

func (s *Server) checkpointRoutes(rt httpapi.Router) {
	tags := []string{"agent"}

	huma.Register(rt.API, s.guarded(huma.Operation{
		OperationID: "locate-chunks", Method: http.MethodPost, Path: "/agent/v1/chunks",
		Summary: "Ask where chunks of checkpoints are uploaded to or downloaded from", Tags: tags, MaxBodyBytes: 4 << 20,
	}), s.locateChunks)

	huma.Register(rt.API, s.guarded(huma.Operation{
		OperationID: "add-checkpoint", Method: http.MethodPost, Path: "/agent/v1/checkpoints",
		Summary: "Enter a checkpoint whose chunks are uploaded in the catalogue", Tags: tags,
	}), s.addCheckpoint)

	query := []*huma.Param{{Name: "run", In: "query", Required: true, Schema: &huma.Schema{Type: "string"}}}

	rt.Plain(huma.Operation{
		OperationID: "put-chunk", Method: http.MethodPut, Path: "/agent/v1/chunks/{digest}", Parameters: query,
		Summary: "Upload a chunk of a checkpoint or its manifest, addressed by its SHA-256", Security: byNode, Tags: tags,
	}, s.identify, s.putChunk)

	rt.Plain(huma.Operation{
		OperationID: "get-chunk", Method: http.MethodGet, Path: "/agent/v1/chunks/{digest}", Parameters: slices.Clone(query),
		Summary: "Download a chunk of the checkpoint that a run restores, or its manifest", Security: byNode, Tags: tags,
	}, s.identify, s.getChunk)
}

// chunkRights remembers what was found out about who may touch which chunks: nothing of it ever changes. Past a bound
// all is found out again.
type chunkRights struct {
	mu       sync.Mutex
	uploads  map[runOn]bool             // runs that are or were on a node
	restores map[runOn]*job.Restore     // what a run on a node restores
	chunks   map[string]map[string]bool // digests that a manifest lists
	listed   int                        // digests in chunks
}

type runOn struct {
	run  id.Run
	node id.Node
}

// Bounds of what chunkRights remembers.
const (
	maxRights = 10_000
	maxListed = 2_000_000
)

// mayUpload lets a node upload for runs that were placed on it.
func (s *Server) mayUpload(ctx context.Context, run id.Run) error {
	key := runOn{run, nodeOf(ctx)}

	s.chunks.mu.Lock()
	known := s.chunks.uploads[key]
	s.chunks.mu.Unlock()

	if known {
		return nil
	}

	r, err := s.Store.Run(ctx, run)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(r.Ranks, func(k job.Rank) bool { return k.Node == key.node }) {
		return notYourRun(run, key.node)
	}

	s.chunks.mu.Lock()
	defer s.chunks.mu.Unlock()

	if s.chunks.uploads == nil || len(s.chunks.uploads) >= maxRights {
		s.chunks.uploads = map[runOn]bool{}
	}

	s.chunks.uploads[key] = true

	return nil
}

func notYourRun(run id.Run, n id.Node) error {
	return fault.New(fault.Denied, "not_your_run", "run %s is not on node %s", run, n)
}

// restoring returns what a run on the calling node restores.
func (s *Server) restoring(ctx context.Context, run id.Run) (*job.Restore, error) {
	key := runOn{run, nodeOf(ctx)}

	s.chunks.mu.Lock()
	r := s.chunks.restores[key]
	s.chunks.mu.Unlock()

	if r != nil {
		return r, nil
	}

	if err := s.query(ctx, func(y *yardmaster.Yard) { r = y.Restoring(run, key.node) }); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fault.New(fault.Denied, "not_your_run", "run %s on node %s restores nothing", run, key.node)
	}

	s.chunks.mu.Lock()
	defer s.chunks.mu.Unlock()

	if s.chunks.restores == nil || len(s.chunks.restores) >= maxRights {
		s.chunks.restores = map[runOn]*job.Restore{}
	}

	s.chunks.restores[key] = r

	return r, nil
}

// mayRestore lets a node fetch only what belongs to the checkpoint that a run there restores.
func (s *Server) mayRestore(ctx context.Context, run id.Run, digests ...string) error {
	r, err := s.restoring(ctx, run)
	if err != nil {
		return err
	}

	allowed := make([]map[string]bool, 0, len(r.Parts))
	for _, p := range r.Parts {
		if p.Manifest == "" {
			continue
		}

		listed, err := s.listed(ctx, p.Manifest)
		if err != nil {
			return err
		}

		allowed = append(allowed, listed)
	}

	for _, d := range digests {
		if !slices.ContainsFunc(allowed, func(listed map[string]bool) bool { return listed[d] }) {
			return fault.New(fault.Denied, "not_your_chunk", "chunk %s does not belong to checkpoint %s", d, r.Checkpoint)
		}
	}

	return nil
}

// listed returns the digests that a manifest lists, and its own. A manifest that is not there or cannot be read lists
// itself alone: whoever restores it finds out what is wrong with it.
func (s *Server) listed(ctx context.Context, manifest string) (map[string]bool, error) {
	s.chunks.mu.Lock()
	listed := s.chunks.chunks[manifest]
	s.chunks.mu.Unlock()

	if listed != nil {
		return listed, nil
	}

	m, err := httpapi.ReadManifest(ctx, s.Blobs, manifest)
	switch k := fault.KindOf(err); {
	case err == nil:
	case k == fault.NotFound || k == fault.Invalid:
		return map[string]bool{manifest: true}, nil
	default:
		return nil, err
	}

	listed = map[string]bool{manifest: true}
	for i := range m.Files {
		for _, c := range m.Files[i].Chunks {
			listed[c.Digest] = true
		}
	}

	s.chunks.mu.Lock()
	defer s.chunks.mu.Unlock()

	if s.chunks.chunks == nil || s.chunks.listed+len(listed) > maxListed {
		s.chunks.chunks, s.chunks.listed = map[string]map[string]bool{}, 0
	}

	s.chunks.chunks[manifest] = listed
	s.chunks.listed += len(listed)

	return listed, nil
}

// signedFor is how long a signed request may be used. An agent that was too slow asks again.
const signedFor = 15 * time.Minute

// locateChunks says where chunks are uploaded to, if they are not there yet, or downloaded from.
func (s *Server) locateChunks(
	ctx context.Context,
	in *httpapi.Body[api.ChunksRequest],
) (*httpapi.Body[api.ChunksReply], error) {
	chunks := in.Body.Chunks
	for i := range chunks {
		if err := checkChunk(&chunks[i]); err != nil {
			return nil, httpapi.ToProblem(err)
		}
	}

	var err error
	if in.Body.Restore {
		err = s.mayRestore(ctx, in.Body.Run, digestsOf(chunks)...)
	} else {
		err = s.mayUpload(ctx, in.Body.Run)
		if err == nil {
			err = s.Reserve.Uploads()
		}

		if err == nil {
			chunks, err = s.missing(ctx, chunks)
		}
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	reply := api.ChunksReply{Chunks: make([]api.ChunkPlace, len(chunks))}
	if local, ok := s.Blobs.(blob.Local); ok {
		reply.Folder = local.Folder()
		reply.Local = in.Body.Nonce != "" && local.Sees(in.Body.Nonce)
	}

	for i := range chunks {
		reply.Chunks[i], err = s.place(ctx, &chunks[i], in.Body.Restore)
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		if reply.Local {
			reply.Chunks[i].File = httpapi.ChunkBlob(chunks[i].Digest)
		}
	}

	return &httpapi.Body[api.ChunksReply]{Body: reply}, nil
}

// checkChunk refuses what no chunk is.
func checkChunk(c *api.CheckpointChunk) error {
	if c.Size < 0 || c.Size > api.MaxCheckpointManifest {
		return fault.New(fault.Invalid, "bad_size", "a chunk must have from 0 to %d bytes, got %d",
			api.MaxCheckpointManifest, c.Size).WithField("chunks")
	}

	return httpapi.CheckDigest(c.Digest, "chunks")
}

func digestsOf(chunks []api.CheckpointChunk) []string {
	list := make([]string, len(chunks))
	for i := range chunks {
		list[i] = chunks[i].Digest
	}

	return list
}

// missing returns the chunks that are not stored.
func (s *Server) missing(ctx context.Context, chunks []api.CheckpointChunk) ([]api.CheckpointChunk, error) {
	names := make([]string, len(chunks))
	byName := make(map[string]api.CheckpointChunk, len(chunks))

	for i, c := range chunks {
		names[i] = httpapi.ChunkBlob(c.Digest)
		byName[names[i]] = c
	}

	absent, err := blob.Missing(ctx, s.Blobs, names)
	if err != nil {
		return nil, err
	}

	list := make([]api.CheckpointChunk, len(absent))
	for i, name := range absent {
		list[i] = byName[name]
	}

	return list, nil
}

// place says where a chunk is uploaded to or downloaded from: directly where the store can sign a request for that, and
// through the server otherwise.
func (s *Server) place(ctx context.Context, c *api.CheckpointChunk, restore bool) (api.ChunkPlace, error) {
	to := api.ChunkPlace{Digest: c.Digest}
	signer, signs := s.Blobs.(blob.Signer)
	if !signs {
		return to, nil
	}

	var q blob.Request
	var err error
	if name := httpapi.ChunkBlob(c.Digest); restore {
		q, err = signer.SignGet(ctx, name, signedFor)
	} else {
		q, err = signer.SignPut(ctx, name, c.Size, c.Digest, signedFor)
	}

	to.URL, to.Header = q.URL, q.Header

	return to, err
}

func (s *Server) putChunk(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	if err := httpapi.CheckDigest(digest, "digest"); err != nil {
		return err
	}
	if err := s.mayUpload(r.Context(), id.Run(r.URL.Query().Get("run"))); err != nil {
		return err
	}

	content, err := httpapi.Uncompressed(w, r, api.MaxCheckpointManifest)
	if err != nil {
		return err
	}

	put := s.Blobs.Put
	if local, ok := s.Blobs.(blob.Local); ok {
		put = local.Stage // it is synced before it is catalogued
	}

	name := httpapi.ChunkBlob(digest)
	content = s.Reserve.Reader(content)

	if _, err := httpapi.PutVerified(r.Context(), put, name, digest, content, api.MaxCheckpointManifest); err != nil {
		return err
	}

	w.WriteHeader(http.StatusNoContent)

	return nil
}

func (s *Server) getChunk(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	if err := httpapi.CheckDigest(digest, "digest"); err != nil {
		return err
	}
	if err := s.mayRestore(r.Context(), id.Run(r.URL.Query().Get("run")), digest); err != nil {
		return err
	}

	f, err := s.Blobs.Get(r.Context(), httpapi.ChunkBlob(digest))
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.NotFound, "chunk_not_found", "chunk %s not found", digest)
	}
	if err != nil {
		return err
	}

	defer func() { _ = f.Close() }()

	w.Header().Set("Content-Type", "application/octet-stream")

	if _, err := io.Copy(w, f); err != nil {
		s.Log.WarnContext(r.Context(), "sending a chunk broke off", "digest", digest, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun; the only way to say that it is not whole
	}

	return nil
}

// addCheckpoint enters a checkpoint in the catalogue if all its chunks are there.
func (s *Server) addCheckpoint(
	ctx context.Context,
	in *httpapi.Body[api.NewCheckpoint],
) (*httpapi.Body[api.NewCheckpointReply], error) {
	c := fromNewCheckpoint(&in.Body, nodeOf(ctx))

	err := s.mayAdd(ctx, &in.Body)
	if err == nil {
		err = s.checkContent(ctx, &in.Body, &c)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.AddCheckpoint{Checkpoint: c})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	entry, _ := answer.(checkpoint.Checkpoint)

	return &httpapi.Body[api.NewCheckpointReply]{Body: api.NewCheckpointReply{ID: entry.ID, State: entry.State}}, nil
}

// mayAdd lets a node add only checkpoints of its rank of a run. The yardmaster refuses a run that is not the newest of
// its job; here one is refused that got its id in another history of the yard, also after the run has ended.
func (s *Server) mayAdd(ctx context.Context, in *api.NewCheckpoint) error {
	r, err := s.ownRank(ctx, in.Run, in.UID, in.Rank)
	if err != nil {
		return err
	}
	if in.Ranks < 1 || in.Ranks > len(r.Ranks) {
		return fault.New(fault.Invalid, "bad_ranks", "ranks must be from 1 to %d, the ranks of run %s", len(r.Ranks), in.Run).
			WithField("ranks")
	}

	return nil
}

// ownRank returns a run of which the calling node has a rank. One that got its id in another history of the yard is
// refused.
func (s *Server) ownRank(ctx context.Context, run id.Run, uid id.UID, rank int) (job.Run, error) {
	n := nodeOf(ctx)

	r, err := s.Store.Run(ctx, run)
	if err != nil {
		return r, err
	}
	if rank < 0 || rank >= len(r.Ranks) || r.Ranks[rank].Node != n {
		return r, notYourRun(run, n)
	}
	if r.UID != uid {
		return r, fault.New(fault.Conflict, api.CodeStaleEpoch,
			"run %s on node %s is not the run of that id that this yard knows", run, n)
	}

	return r, nil
}

// checkContent makes sure that all of a checkpoint is there, and sets its size.
func (s *Server) checkContent(ctx context.Context, in *api.NewCheckpoint, c *checkpoint.Checkpoint) error {
	if in.Shared != "" && (!id.Name(in.Shared) || !fs.ValidPath(in.Path) || in.Path == ".") {
		return fault.New(fault.Invalid, "bad_path", "%.200q is not a path below a shared file system", in.Path).
			WithField("path")
	}
	if err := httpapi.CheckDigest(in.Manifest, "manifest"); err != nil {
		return err
	}

	m, err := httpapi.ReadManifest(ctx, s.Blobs, in.Manifest)
	if fault.KindOf(err) == fault.NotFound {
		return missingChunk(in.Manifest)
	}
	if err != nil {
		return err
	}

	c.Parts[0].Size = job.Bytes(m.Size())
	if in.Shared != "" {
		return s.sync(ctx, []string{in.Manifest}) // its files are where they are; whoever restores them verifies them
	}

	return s.checkChunks(ctx, in.Manifest, m)
}

// checkChunks makes sure that all chunks of a manifest are there, and stay.
func (s *Server) checkChunks(ctx context.Context, manifest string, m *api.CheckpointManifest) error {
	var chunks []api.CheckpointChunk
	for i := range m.Files {
		for _, chunk := range m.Files[i].Chunks {
			if err := httpapi.CheckDigest(chunk.Digest, "manifest"); err != nil {
				return err
			}

			chunks = append(chunks, chunk)
		}
	}

	slices.SortFunc(chunks, func(a, b api.CheckpointChunk) int { return cmp.Compare(a.Digest, b.Digest) })
	chunks = slices.Compact(chunks)

	missing, err := s.missing(ctx, chunks)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return missingChunk(missing[0].Digest)
	}

	return s.sync(ctx, append(digestsOf(chunks), manifest))
}

// sync makes chunks survive a power cut that a store has taken without waiting for the disk: what is in the catalogue
// must be there for good.
func (s *Server) sync(ctx context.Context, digests []string) error {
	local, ok := s.Blobs.(blob.Local)
	if !ok {
		return nil
	}

	names := make([]string, len(digests))
	for i, d := range digests {
		names[i] = httpapi.ChunkBlob(d)
	}

	err := local.Sync(ctx, names)
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.Conflict, codeChunkMissing, "a chunk was lost before it was on disk").WithField("manifest").
			WithRemedy("upload it again").WithCause(err)
	}

	return err
}

// codeChunkMissing is the code of the error after which an agent uploads a checkpoint again.
const codeChunkMissing = "chunk_missing"

func missingChunk(digest string) error {
	return fault.New(fault.Conflict, codeChunkMissing, "chunk %s was not uploaded", digest).WithField("manifest").
		WithRemedy("upload it first with PUT /agent/v1/chunks/{digest}")
}

func fromNewCheckpoint(in *api.NewCheckpoint, n id.Node) checkpoint.Checkpoint {
	c := checkpoint.Checkpoint{
		Run: in.Run, UID: in.UID, Name: in.Name, Step: -1, World: in.World, Framework: in.Framework, Found: in.Found,
		Written: in.Written, Ranks: in.Ranks,
		Parts: []checkpoint.Part{{
			Rank: in.Rank, Node: n, Manifest: in.Manifest, Shared: in.Shared, Path: in.Path, Size: in.Size,
		}},
	}

	if in.Step != nil {
		c.Step = max(*in.Step, -1)
	}

	if in.Metric != "" && in.Value != nil {
		c.Metric, c.Value = in.Metric, *in.Value
	}

	return c
}
