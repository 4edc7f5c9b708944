package api

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"trainyard/internal/clock"
)

const (
	bulkBuffer = 256 << 10
	// bulkStall bounds how long a write to a connection may take.
	bulkStall = time.Minute
)

// bulkTransport returns the transport of large contents. Each transfer has a connection of its own, with HTTP/1.1: in
// one connection they would share one flow control and one thread that encrypts, and heartbeats would wait behind them.
func bulkTransport(config *tls.Config) *http.Transport {
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"http/1.1"}
		config.DynamicRecordSizingDisabled = true // small records are for pages that are shown while they load
	}

	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}

	return &http.Transport{
		TLSClientConfig:       config,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: bulkStall,
		ReadBufferSize:        bulkBuffer,
		WriteBufferSize:       bulkBuffer,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}

			return &stallConn{conn, bulkStall}, nil
		},
	}
}

// stallConn is a connection that closes itself when a write stands still: HTTP/1.1 has no pings by which one that went
// silent is noticed.
type stallConn struct {
	net.Conn
	limit time.Duration
}

func (c *stallConn) Write(p []byte) (int, error) {
	ctx, _, stop := clock.Progress(context.Background(), c.limit)
	defer stop()

	keep := context.AfterFunc(ctx, func() { _ = c.Close() }) // the write fails then
	defer keep()

	return c.Conn.Write(p)
}
