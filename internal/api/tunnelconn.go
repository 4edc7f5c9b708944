package api

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// tunnelTransport returns the transport of tunnels. Each has a connection of its own, with HTTP/1.1.
func tunnelTransport(config *tls.Config) *http.Transport {
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"http/1.1"}
		config.DynamicRecordSizingDisabled = true // small records are for pages that are shown while they load
	}

	const patience = 10 * time.Second
	dialer := &net.Dialer{Timeout: patience, KeepAlive: 15 * time.Second}

	return &http.Transport{
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		DialContext:           dialer.DialContext,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*patience)
			defer cancel()

			conn, err := (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}

			return &gatherConn{Conn: conn}, nil
		},
	}
}

// gatherSize is how much a gatherConn writes at a time: the most that one TLS record holds.
const gatherSize = 16 << 10

// gatherConn gathers what is written while it is held. A client of a WebSocket masks what it sends in pieces of 4 KiB,
// and writes each of them; each would be encrypted and sent by itself.
type gatherConn struct {
	net.Conn

	holders atomic.Int32

	mu  sync.Mutex
	buf []byte
}

// hold lets writes be gathered until release.
func (c *gatherConn) hold() { c.holders.Add(1) }

// release writes what was gathered. Nothing needs to be written if sending has failed.
func (c *gatherConn) release(failed bool) error {
	c.holders.Add(-1)

	if failed {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	return c.flush()
}

// Write writes at once, unless the connection is held.
func (c *gatherConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.holders.Load() == 0 && len(c.buf) == 0 {
		return c.Conn.Write(p)
	}

	c.buf = append(c.buf, p...)

	if c.holders.Load() == 0 || len(c.buf) >= gatherSize {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}

	return len(p), nil
}

// flush writes what was gathered. The caller holds c.mu.
func (c *gatherConn) flush() error {
	if len(c.buf) == 0 {
		return nil
	}

	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]

	return err
}
