package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/klauspost/compress/gzip"

	"trainyard/internal/id"
)

// MaxLogChunk is the most bytes of output that an agent sends at once.
const MaxLogChunk = 1 << 20

// packFrom is the size from which output is compressed: below it the gzip
// header and the time cost more than they save.
const packFrom = 512

// Join asks to become a node.
func (c *Client) Join(ctx context.Context, req JoinRequest) (JoinReply, error) {
	var reply JoinReply
	err := c.call(ctx, http.MethodPost, "/agent/v1/join", nil, req, &reply)
	return reply, err
}

// Renew asks for a new certificate.
func (c *Client) Renew(ctx context.Context, req RenewRequest) (RenewReply, error) {
	var reply RenewReply
	err := c.call(ctx, http.MethodPost, "/agent/v1/renew", nil, req, &reply)
	return reply, err
}

// Assignments calls fn with the desired state of the node, at once and at every
// change, until fn fails, the feed ends or ctx ends. It returns nil when the
// server ended the feed.
func (c *Client) Assignments(ctx context.Context, fn func(Assignments) error) error {
	return c.follow(ctx, "/agent/v1/assignments", nil, func(item FeedItem) error {
		if item.Kind != "" {
			return nil // a kind that a newer server knows
		}

		var a Assignments
		if err := json.Unmarshal(item.Data, &a); err != nil {
			return fmt.Errorf("read assignments: %w", err)
		}

		return fn(a)
	})
}

// Report tells the server that the node lives and what its runs do.
func (c *Client) Report(ctx context.Context, r Report) (ReportReply, error) {
	var reply ReportReply
	err := c.call(ctx, http.MethodPost, "/agent/v1/reports", nil, r, &reply)
	return reply, err
}

// UploadLog sends the bytes of a rank's output that begin at offset; final says
// that none will follow. The reply says how much the server holds now, which is
// less or more than was sent if it stood elsewhere, and whether it has all.
func (c *Client) UploadLog(
	ctx context.Context,
	run id.Run,
	uid id.UID,
	rank int,
	offset int64,
	data []byte,
	final bool,
) (LogReply, error) {
	path := "/agent/v1/logs/" + url.PathEscape(string(run)) + "/" + strconv.Itoa(rank)
	query := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if uid != "" {
		query.Set("uid", string(uid))
	}

	if final {
		query.Set("final", "true")
	}

	header := []string{"Content-Type", "application/octet-stream"}

	if len(data) >= packFrom {
		packed, err := pack(data)
		if err != nil {
			return LogReply{}, err
		}

		data = packed
		header = append(header, "Content-Encoding", "gzip")
	}

	resp, err := c.send(ctx, c.http, http.MethodPost, path, query, bytes.NewReader(data), header...)
	if err != nil {
		return LogReply{}, err
	}

	defer func() { _ = resp.Body.Close() }()

	var reply LogReply
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return LogReply{}, fmt.Errorf("read response to output of %s rank %d: %w", run, rank, err)
	}

	return reply, nil
}

func pack(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}

	return out.Bytes(), nil
}

// FetchFile opens a file of a working directory by its digest. The caller
// checks the digest and closes it.
func (c *Client) FetchFile(ctx context.Context, digest string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, c.stream, http.MethodGet, "/agent/v1/files/"+url.PathEscape(digest), nil, nil)
	if err != nil {
		return nil, err
	}

	return resp.Body, nil
}
