package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// MaxChunk is the most bytes of one chunk of a checkpoint.
const MaxChunk = 16 << 20

// MaxCheckpointManifest is the most bytes of a manifest.
const MaxCheckpointManifest = 64 << 20

// CodeStaleEpoch is the code of the error that refuses a checkpoint of a run that is not the newest of its job. The
// agent does not try again.
const CodeStaleEpoch = "stale_epoch"

// CheckpointManifest lists the files of a checkpoint, or of one rank's part of it. It is stored like a chunk, by the
// SHA-256 of its JSON.
type CheckpointManifest struct {
	Files []CheckpointFile `json:"files"`
}

// CheckpointFile is one file of a checkpoint, in chunks that are stored by their SHA-256.
type CheckpointFile struct {
	Path   string            `json:"path" doc:"relative to the checkpoint directory, with forward slashes; entries are sorted by path"`
	Mode   uint32            `json:"mode" doc:"permission bits"`
	Size   int64             `json:"size"`
	Chunks []CheckpointChunk `json:"chunks,omitempty" doc:"in order"`
	Link   string            `json:"link,omitempty" doc:"target of a symbolic link inside the checkpoint directory"`
}

// CheckpointChunk is a piece of a file.
type CheckpointChunk struct {
	Digest string `json:"digest" doc:"SHA-256 in hex"`
	Size   int64  `json:"size"`
}

// Check refuses a manifest that does not describe files below a directory.
func (m *CheckpointManifest) Check() error {
	last := ""
	for i := range m.Files {
		f := &m.Files[i]
		if !fs.ValidPath(f.Path) || f.Path == "." || f.Path <= last {
			return badManifest("%q is not a relative path, or the files are not sorted by path", f.Path)
		}

		last = f.Path

		size := int64(0)
		for _, c := range f.Chunks {
			if c.Size <= 0 || c.Size > MaxChunk {
				return badManifest("a chunk of %s has %d bytes", f.Path, c.Size)
			}

			size += c.Size
		}

		if size != f.Size {
			return badManifest("the chunks of %s have %d bytes, the file has %d", f.Path, size, f.Size)
		}
	}

	return nil
}

func badManifest(format string, args ...any) error {
	return fault.New(fault.Invalid, "bad_manifest", "invalid manifest: %s", fmt.Sprintf(format, args...)).
		WithField("manifest")
}

// Size returns the bytes of all files.
func (m *CheckpointManifest) Size() int64 {
	size := int64(0)
	for i := range m.Files {
		size += m.Files[i].Size
	}

	return size
}

// ChunksRequest asks for where chunks are uploaded to or downloaded from.
type ChunksRequest struct {
	Run     id.Run            `json:"run" maxLength:"100" doc:"the run that uploads or restores; it must be assigned to the node"`
	Chunks  []CheckpointChunk `json:"chunks" maxItems:"10000"`
	Restore bool              `json:"restore,omitempty" doc:"they are to be downloaded"`
	Nonce   string            `json:"nonce,omitempty" maxLength:"200" doc:"names a file that the agent has made in the folder of an earlier reply: if the server sees it, both are on one machine"`
}

// ChunksReply says where the chunks are. An upload needs only those that the store lacks.
type ChunksReply struct {
	Chunks []ChunkPlace `json:"chunks"`
	Folder string       `json:"folder,omitempty" doc:"where the store is, if it is a folder on the server's machine"`
	Local  bool         `json:"local,omitempty" doc:"the server has seen the nonce: the chunks are files below the folder, which the agent may read and add to"`
}

// ChunkPlace is where a chunk is uploaded to or downloaded from.
type ChunkPlace struct {
	Digest string            `json:"digest"`
	URL    string            `json:"url,omitempty" doc:"signed and valid for a short time; absent if the chunk goes through the server"`
	Header map[string]string `json:"header,omitempty" doc:"headers that the signed request must have"`
	File   string            `json:"file,omitempty" doc:"path below the folder, if that is local"`
}

// NewCheckpoint is what an agent says of a checkpoint, or of one rank's part of it, whose chunks it has uploaded.
type NewCheckpoint struct {
	Run       id.Run           `json:"run" maxLength:"100"`
	UID       id.UID           `json:"uid" maxLength:"64"`
	Rank      int              `json:"rank"`
	Ranks     int              `json:"ranks" minimum:"1" doc:"how many ranks upload a part of it; 1 if this is all"`
	Name      string           `json:"name" maxLength:"1000" doc:"its path below the checkpoint directory; . if it is all of it"`
	Step      *int64           `json:"step,omitempty"`
	Metric    string           `json:"metric,omitempty" maxLength:"128"`
	Value     *float64         `json:"value,omitempty"`
	Size      job.Bytes        `json:"size"`
	World     int              `json:"world,omitempty" doc:"processes that wrote it"`
	Framework string           `json:"framework,omitempty" maxLength:"100"`
	Found     checkpoint.Found `json:"found" doc:"how the agent knew that it is complete"`
	Written   time.Time        `json:"written"`
	Manifest  string           `json:"manifest,omitempty" doc:"digest"`
	Shared    string           `json:"shared,omitempty" maxLength:"63" doc:"name of the shared file system on which its files are; absent if they were uploaded"`
	Path      string           `json:"path,omitempty" maxLength:"4096" doc:"path on the shared file system, below its root"`
}

// NewCheckpointReply names the entry of the catalogue.
type NewCheckpointReply struct {
	ID    id.Checkpoint    `json:"id"`
	State checkpoint.State `json:"state"`
}

// Checkpoint is an entry of the catalogue.
type Checkpoint struct {
	ID        id.Checkpoint    `json:"id"`
	Job       id.Job           `json:"job"`
	Run       id.Run           `json:"run" doc:"run that wrote it"`
	Name      string           `json:"name" doc:"path below the checkpoint directory; . if it is all of it"`
	Step      *int64           `json:"step,omitempty"`
	Metric    string           `json:"metric,omitempty"`
	Value     *float64         `json:"value,omitempty"`
	Size      job.Bytes        `json:"size"`
	World     int              `json:"world,omitempty" doc:"processes that wrote it"`
	Framework string           `json:"framework,omitempty"`
	Found     checkpoint.Found `json:"found" doc:"how the agent knew that it is complete"`
	State     checkpoint.State `json:"state"`
	Reason    string           `json:"reason,omitempty" doc:"why it is in this state"`
	Written   time.Time        `json:"written"`
	Added     time.Time        `json:"added"`
	Pinned    bool             `json:"pinned,omitempty"`
	Next      bool             `json:"next,omitempty" doc:"the next run of the job continues from it"`
	Nodes     []id.Node        `json:"nodes" doc:"nodes that wrote it"`
	Shared    string           `json:"shared,omitempty" doc:"shared file system on which it lies"`
	Image     *fleet.Image     `json:"image,omitempty" doc:"what a snapshot needs of the node that continues it"`
}

// CheckpointList lists the checkpoints of a job, oldest first.
type CheckpointList struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
}

// Chunks asks where chunks are uploaded to or downloaded from.
func (c *Client) Chunks(ctx context.Context, req ChunksRequest) (ChunksReply, error) {
	var reply ChunksReply
	err := c.call(ctx, http.MethodPost, "/agent/v1/chunks", nil, req, &reply)
	return reply, err
}

// PutChunk uploads a chunk or a manifest of a run through the server.
func (c *Client) PutChunk(ctx context.Context, run id.Run, digest string, content []byte) error {
	resp, err := c.send(ctx, c.bulk, http.MethodPut, chunkPath(digest), url.Values{"run": {string(run)}},
		bytes.NewReader(content), "Content-Type", "application/octet-stream")
	if err != nil {
		return err
	}

	defer func() { _ = resp.Body.Close() }()

	_, err = io.Copy(io.Discard, resp.Body)

	return err
}

// FetchChunk opens a chunk or a manifest that a run restores. The caller checks the digest and closes it.
func (c *Client) FetchChunk(ctx context.Context, run id.Run, digest string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, c.bulk, http.MethodGet, chunkPath(digest), url.Values{"run": {string(run)}}, nil)
	if err != nil {
		return nil, err
	}

	return resp.Body, nil
}

func chunkPath(digest string) string { return "/agent/v1/chunks/" + url.PathEscape(digest) }

// AddCheckpoint enters a checkpoint, or one rank's part of it, in the catalogue. All its chunks are uploaded.
func (c *Client) AddCheckpoint(ctx context.Context, in NewCheckpoint) (NewCheckpointReply, error) {
	var reply NewCheckpointReply
	err := c.call(ctx, http.MethodPost, "/agent/v1/checkpoints", nil, in, &reply)
	return reply, err
}

// UnneededDirs asks which directories on a shared file system are not needed any more.
func (c *Client) UnneededDirs(ctx context.Context, in SharedDirs) (SharedDirsReply, error) {
	var reply SharedDirsReply
	err := c.call(ctx, http.MethodPost, "/agent/v1/shared", nil, in, &reply)
	return reply, err
}

// Checkpoints lists the checkpoints of a job; removed asks also for those that were removed.
func (c *Client) Checkpoints(ctx context.Context, j id.Job, removed bool) (CheckpointList, error) {
	query := url.Values{}
	if removed {
		query.Set("removed", "true")
	}

	return get[CheckpointList](ctx, c, at("jobs", string(j), "checkpoints"), query)
}

// Checkpoint returns one checkpoint.
func (c *Client) Checkpoint(ctx context.Context, name id.Checkpoint) (Checkpoint, error) {
	return get[Checkpoint](ctx, c, at("checkpoints", string(name)), nil)
}

// PinCheckpoint keeps a checkpoint whatever the rule of its job says, or no longer.
func (c *Client) PinCheckpoint(ctx context.Context, name id.Checkpoint, on bool) (Checkpoint, error) {
	method := http.MethodPut
	if !on {
		method = http.MethodDelete
	}

	var out Checkpoint
	err := c.call(ctx, method, at("checkpoints", string(name), "pin"), nil, nil, &out)

	return out, err
}

// RemoveCheckpoint removes a checkpoint.
func (c *Client) RemoveCheckpoint(ctx context.Context, name id.Checkpoint) error {
	return c.call(ctx, http.MethodDelete, at("checkpoints", string(name)), nil, nil, nil)
}

// DownloadCheckpoint opens the files of a checkpoint as a tar stream. The caller closes it.
func (c *Client) DownloadCheckpoint(ctx context.Context, name id.Checkpoint) (io.ReadCloser, error) {
	resp, err := c.send(ctx, c.stream, http.MethodGet, at("checkpoints", string(name), "archive"), nil, nil)
	if err != nil {
		return nil, err
	}

	return resp.Body, nil
}
