package server

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func (s *Server) checkpointRoutes() {
	const tag, path = "checkpoints", "/api/v1/checkpoints/{checkpoint}"
	huma.Register(s.api, s.op("list-checkpoints", http.MethodGet, "/api/v1/jobs/{job}/checkpoints",
		"List the checkpoints of a job, oldest first", tag), s.listCheckpoints)
	huma.Register(s.api, s.op("get-checkpoint", http.MethodGet, path, "Show a checkpoint", tag), s.getCheckpoint)
	huma.Register(s.api, s.op("pin-checkpoint", http.MethodPut, path+"/pin",
		"Keep a checkpoint whatever the rule of its job says", tag), s.pinCheckpoint)
	huma.Register(s.api, s.op("unpin-checkpoint", http.MethodDelete, path+"/pin",
		"Let the rule of its job decide how long a checkpoint is kept", tag), s.unpinCheckpoint)

	remove := s.op("remove-checkpoint", http.MethodDelete, path, "Remove a checkpoint that its job does not need", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeCheckpoint)

	s.router.Plain(s.op("download-checkpoint", http.MethodGet, path+"/archive",
		"Download the files of a checkpoint as a tar archive", tag), admitted, s.downloadCheckpoint)
}

// maxCheckpoints is how many checkpoints of a job are listed at most.
const maxCheckpoints = 10_000

type checkpointsInput struct {
	Job     string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Removed bool   `query:"removed" doc:"also list those that were removed"`
}

func (s *Server) listCheckpoints(
	ctx context.Context,
	in *checkpointsInput,
) (*httpapi.Body[api.CheckpointList], error) {
	j, err := s.readJob(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	all, err := s.checkpointsOf(ctx, j.ID, in.Removed)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.CheckpointList]{Body: api.CheckpointList{Checkpoints: all}}, nil
}

// checkpointsOf lists the checkpoints of a job and says which one its next run continues from.
func (s *Server) checkpointsOf(ctx context.Context, j id.Job, removed bool) ([]api.Checkpoint, error) {
	stored, err := s.Store.Checkpoints(ctx, store.CheckpointFilter{Job: j, Removed: removed, Limit: maxCheckpoints})
	if err != nil {
		return nil, err
	}

	all := make([]*checkpoint.Checkpoint, len(stored))
	for i := range stored {
		all[i] = &stored[i]
	}

	next := checkpoint.Newest(all)

	list := make([]api.Checkpoint, len(all))
	for i, c := range all {
		list[i] = toCheckpoint(c)
		list[i].Next = c == next
	}

	return list, nil
}

func toCheckpoint(c *checkpoint.Checkpoint) api.Checkpoint {
	out := api.Checkpoint{
		ID: c.ID, Job: c.Job, Run: c.Run, Name: c.Name, Size: c.Size, World: c.World, Framework: c.Framework,
		Found: c.Found, State: c.State, Reason: c.Reason, Written: shown(c.Written), Added: shown(c.Added),
		Pinned: c.Pinned, Nodes: c.Nodes(),
	}

	if c.Step >= 0 {
		out.Step = new(c.Step)
	}

	if c.Metric != "" {
		out.Metric, out.Value = c.Metric, new(c.Value)
	}

	for i := range c.Parts {
		if c.Parts[i].Shared != "" {
			out.Shared = c.Parts[i].Shared
		}
	}

	if c.Image != (fleet.Image{}) {
		out.Image = &c.Image
	}

	return out
}

type checkpointInput struct {
	Checkpoint string `path:"checkpoint" maxLength:"60"`
}

// findCheckpoint returns a checkpoint that the caller may see, and its job. One they may not see is not there.
func (s *Server) findCheckpoint(ctx context.Context, name string) (checkpoint.Checkpoint, job.Job, error) {
	missing := fault.New(fault.NotFound, "checkpoint_not_found", "checkpoint %s not found", name).
		WithRemedy("trainyard checkpoints JOB lists those of a job")

	j, _, ok := id.Checkpoint(name).Split()
	if !ok {
		return checkpoint.Checkpoint{}, job.Job{}, missing
	}

	of, err := s.readJob(ctx, string(j))
	if fault.KindOf(err) == fault.NotFound {
		err = missing
	}

	if err != nil {
		return checkpoint.Checkpoint{}, job.Job{}, err
	}

	c, err := s.Store.Checkpoint(ctx, id.Checkpoint(name))
	if fault.KindOf(err) == fault.NotFound {
		err = missing
	}

	return c, of, err
}

func (s *Server) getCheckpoint(ctx context.Context, in *checkpointInput) (*httpapi.Body[api.Checkpoint], error) {
	c, _, err := s.findCheckpoint(ctx, in.Checkpoint)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	all, err := s.checkpointsOf(ctx, c.Job, true)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	out := toCheckpoint(&c)
	for i := range all {
		if all[i].ID == c.ID {
			out.Next = all[i].Next
		}
	}

	return &httpapi.Body[api.Checkpoint]{Body: out}, nil
}

func (s *Server) pinCheckpoint(ctx context.Context, in *checkpointInput) (*httpapi.Body[api.Checkpoint], error) {
	return s.setPin(ctx, in, true)
}

func (s *Server) unpinCheckpoint(ctx context.Context, in *checkpointInput) (*httpapi.Body[api.Checkpoint], error) {
	return s.setPin(ctx, in, false)
}

func (s *Server) setPin(ctx context.Context, in *checkpointInput, on bool) (*httpapi.Body[api.Checkpoint], error) {
	_, j, err := s.findCheckpoint(ctx, in.Checkpoint)
	if err == nil {
		err = allowJob(ctx, "change jobs", &j)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.PinCheckpoint{
		Checkpoint: id.Checkpoint(in.Checkpoint), Owner: j.Owner, By: callerOf(ctx).User, On: on,
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	c, _ := answer.(checkpoint.Checkpoint)

	return &httpapi.Body[api.Checkpoint]{Body: toCheckpoint(&c)}, nil
}

func (s *Server) removeCheckpoint(ctx context.Context, in *checkpointInput) (*struct{}, error) {
	_, j, err := s.findCheckpoint(ctx, in.Checkpoint)
	if err == nil {
		err = allowJob(ctx, "change jobs", &j)
	}

	if err == nil {
		by := string(callerOf(ctx).User)
		_, err = s.do(ctx, yardmaster.RemoveCheckpoint{
			Checkpoint: id.Checkpoint(in.Checkpoint), Owner: j.Owner, By: by, Why: "removed by " + by,
		})
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}

// downloadCheckpoint sends the files of a checkpoint. Its bytes are verified while they are sent: an answer that breaks
// off is the only way to say that they are wrong.
func (s *Server) downloadCheckpoint(w http.ResponseWriter, r *http.Request) error {
	ctx, stop := s.lasting(r.Context())
	defer stop()

	c, j, err := s.findCheckpoint(ctx, r.PathValue("checkpoint"))
	if err != nil {
		return err
	}

	manifests, err := s.manifestsOf(ctx, &c)
	if err != nil {
		return err
	}

	s.noteRead(ctx, j.Owner, c.Job, "checkpoint "+string(c.ID))

	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", string(c.ID)+".tar"))

	if err := s.writeArchive(ctx, w, &c, manifests); err != nil {
		s.Log.WarnContext(ctx, "sending a checkpoint broke off", "checkpoint", c.ID, "error", err)
		panic(http.ErrAbortHandler)
	}

	return nil
}

// manifestsOf reads the manifests of a checkpoint that can be downloaded.
func (s *Server) manifestsOf(ctx context.Context, c *checkpoint.Checkpoint) ([]*api.CheckpointManifest, error) {
	if c.State != checkpoint.Stored {
		return nil, fault.New(fault.Conflict, "checkpoint_state", "checkpoint %s is %s and cannot be downloaded",
			c.ID, c.State)
	}

	var list []*api.CheckpointManifest
	for i := range c.Parts {
		p := &c.Parts[i]
		if p.Shared != "" {
			return nil, fault.New(fault.Conflict, "checkpoint_shared", "checkpoint %s lies on the shared file system %s",
				c.ID, p.Shared).WithRemedy("read it there: %s", p.Path)
		}

		m, err := httpapi.ReadManifest(ctx, s.Blobs, p.Manifest)
		if err != nil {
			return nil, err
		}

		list = append(list, m)
	}

	return list, nil
}

// writeArchive writes the files of a checkpoint. A file that several ranks have is written once.
func (s *Server) writeArchive(
	ctx context.Context, w io.Writer, c *checkpoint.Checkpoint, manifests []*api.CheckpointManifest,
) error {
	out := tar.NewWriter(w)
	written := map[string]bool{}

	for _, m := range manifests {
		for i := range m.Files {
			f := &m.Files[i]
			if written[f.Path] {
				continue
			}

			written[f.Path] = true

			head := tar.Header{
				Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.Mode & 0o777), Size: f.Size, ModTime: c.Written,
			}
			if f.Link != "" {
				head.Typeflag, head.Linkname, head.Size = tar.TypeSymlink, f.Link, 0
			}

			if err := out.WriteHeader(&head); err != nil {
				return fmt.Errorf("write %s: %w", f.Path, err)
			}

			for _, chunk := range f.Chunks {
				if err := s.writeChunk(ctx, out, chunk.Digest); err != nil {
					return fmt.Errorf("write %s: %w", f.Path, err)
				}
			}
		}
	}

	return out.Close()
}

func (s *Server) writeChunk(ctx context.Context, w io.Writer, digest string) error {
	f, err := s.Blobs.Get(ctx, httpapi.ChunkBlob(digest))
	if err != nil {
		return err
	}

	defer func() { _ = f.Close() }()

	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), f); err != nil {
		return err
	}

	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return fmt.Errorf("chunk %s is corrupt", digest)
	}

	return nil
}
