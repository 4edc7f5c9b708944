package api

import (
	"context"
	"io"
	"net/http"
)

// CodeTooManyUploads is the code of an upload that would be one too many at the same time.
const CodeTooManyUploads = "too_many_uploads"

// MissingRequest asks which of these files the server lacks.
type MissingRequest struct {
	Digests []string `json:"digests" maxItems:"10000"`
}

// MissingReply lists the files the server lacks.
type MissingReply struct {
	Digests []string `json:"digests"`
}

// Manifest lists the files of a working directory. Its digest, the SHA-256 of
// its canonical JSON, names the directory's content.
type Manifest struct {
	Files []ManifestFile `json:"files"`
}

// ManifestFile is one file of a working directory.
type ManifestFile struct {
	Path   string `json:"path" doc:"relative path with forward slashes; entries are sorted by path"`
	Mode   uint32 `json:"mode" doc:"permission bits"`
	Size   int64  `json:"size"`
	Digest string `json:"digest,omitempty" doc:"SHA-256 of the content, in hex"`
	Link   string `json:"link,omitempty" doc:"target of a symbolic link"`
}

// JoinFileRequest makes a file of parts that were uploaded as files.
type JoinFileRequest struct {
	Parts []string `json:"parts" minItems:"1" maxItems:"10000" doc:"SHA-256 of each part, in order"`
	Size  int64    `json:"size" minimum:"1" doc:"bytes of the file"`
}

// JoinFileReply says how far it is.
type JoinFileReply struct {
	Done bool `json:"done" doc:"the file is there; if it is not, make the same request again"`
}

// JoinFile makes a file of parts that were uploaded. It is called again until it is done.
func (c *Client) JoinFile(ctx context.Context, digest string, in JoinFileRequest) (JoinFileReply, error) {
	return post[JoinFileReply](ctx, c, at("files", digest, "join"), in)
}

// MissingFiles returns those of the digests whose files the server lacks.
func (c *Client) MissingFiles(ctx context.Context, digests []string) ([]string, error) {
	out, err := post[MissingReply](ctx, c, at("files", "missing"), MissingRequest{Digests: digests})
	return out.Digests, err
}

// PutFile uploads a file by the digest of its content. The body may be
// compressed; then encoding is "gzip", else "".
func (c *Client) PutFile(ctx context.Context, digest, encoding string, body io.Reader) error {
	header := []string{"Content-Type", "application/octet-stream"}
	if encoding != "" {
		header = append(header, "Content-Encoding", encoding)
	}

	// A large file on a slow line may take longer than any limit on a whole call.
	resp, err := c.send(ctx, c.stream, http.MethodPut, at("files", digest), nil, body, header...)
	if err != nil {
		return err
	}

	defer func() { _ = resp.Body.Close() }()

	_, err = io.Copy(io.Discard, resp.Body)

	return err
}
