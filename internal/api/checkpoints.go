package api

import (
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// MaxChunk is the most bytes of one chunk of a checkpoint.
const MaxChunk = 16 << 20

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

// ChunksRequest asks for where chunks are uploaded to or downloaded from.
type ChunksRequest struct {
	Run     id.Run            `json:"run" maxLength:"100" doc:"the run that uploads or restores; it must be assigned to the node"`
	Chunks  []CheckpointChunk `json:"chunks" maxItems:"10000"`
	Restore bool              `json:"restore,omitempty" doc:"they are to be downloaded"`
}

// ChunksReply says where the chunks are. An upload needs only those that the store lacks.
type ChunksReply struct {
	Chunks []ChunkPlace `json:"chunks"`
}

// ChunkPlace is where a chunk is uploaded to or downloaded from.
type ChunkPlace struct {
	Digest string            `json:"digest"`
	URL    string            `json:"url,omitempty" doc:"signed and valid for a short time; absent if the chunk goes through the server"`
	Header map[string]string `json:"header,omitempty" doc:"headers that the signed request must have"`
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
	Manifest  string           `json:"manifest,omitempty" doc:"digest; absent if it lies on a shared file system"`
	Shared    string           `json:"shared,omitempty" maxLength:"63" doc:"name of the shared file system"`
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
}
