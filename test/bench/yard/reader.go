package yard

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"trainyard/internal/auth"
)

// Reader asks the server and reads its answers without decoding them: a client that costs as little as it can on the
// machine that it shares with the server. It has a connection of its own.
type Reader struct {
	http  *http.Client
	base  string
	token string
}

// Reader returns a reader of the admin's.
func (y *Yard) Reader() (*Reader, error) {
	config, err := auth.PinnedTLS(y.ca)
	if err != nil {
		return nil, err
	}

	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true,
	}}

	return &Reader{http: client, base: y.url, token: y.token}, nil
}

// Get asks for a path with its query and returns how long the answer is.
func (r *Reader) Get(ctx context.Context, path string) (int64, error) {
	body, err := r.Open(ctx, path)
	if err != nil {
		return 0, err
	}

	defer func() { _ = body.Close() }()

	n, err := io.Copy(io.Discard, body)
	if err != nil {
		return n, fmt.Errorf("read %s: %w", path, err)
	}

	return n, nil
}

// Open asks for a path with its query and returns the answer as it comes. The caller closes it.
func (r *Reader) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}

	req.Header.Set("Authorization", "Bearer "+r.token)

	resp, err := r.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}

	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // only to say more about the failure
		_ = resp.Body.Close()

		return nil, fmt.Errorf("ask for %s: %s: %s", path, resp.Status, text)
	}

	return resp.Body, nil
}

// Close drops its connection.
func (r *Reader) Close() { r.http.CloseIdleConnections() }
