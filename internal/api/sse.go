package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxFeedLine bounds one line of a feed; assignments of a busy node are the longest.
const maxFeedLine = 64 << 20

// FeedItem is one event of a live feed (server-sent events).
type FeedItem struct {
	ID   string // cursor to go on after this item
	Kind string // "" for the feed's ordinary items
	Data []byte // valid until the next item
}

// follow opens a live feed and calls fn for each item until fn fails, the feed ends or ctx ends.
func (c *Client) follow(ctx context.Context, path string, query url.Values, fn func(FeedItem) error) error {
	resp, err := c.send(ctx, c.stream, http.MethodGet, path, query, nil, "Accept", "text/event-stream")
	if err != nil {
		return err
	}

	defer func() { _ = resp.Body.Close() }()

	err = ReadFeed(resp.Body, fn)

	if ctx.Err() != nil {
		return ctx.Err()
	}

	return err
}

// ReadFeed reads server-sent events and calls fn for each. Comments, which
// keep connections open, are skipped. It returns nil when the feed ends.
func ReadFeed(r io.Reader, fn func(FeedItem) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxFeedLine)
	var item FeedItem
	var data []byte

	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if data != nil {
				item.Data = data
				if err := fn(item); err != nil {
					return err
				}
			}

			item, data = FeedItem{}, nil

			continue
		}

		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))

		switch string(name) {
		case "id":
			item.ID = string(value)
		case "event":
			item.Kind = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			} else {
				data = []byte{}
			}

			data = append(data, value...)
		}
	}

	if err := lines.Err(); err != nil {
		return fmt.Errorf("read feed: %w", err)
	}

	return nil
}
