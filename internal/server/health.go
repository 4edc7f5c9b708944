package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// health checks loop and store again and again, so that asking is cheap and a
// check that hangs is seen as what it is.
type health struct {
	loop    *Loop
	store   store.Store
	clock   clock.Clock
	dataDir string
	mu      sync.Mutex
	fault   string
	good    time.Time // last time all was well
}

func newHealth(l *Loop, s store.Store, clk clock.Clock) *health {
	return &health{loop: l, store: s, clock: clk, fault: "just started"}
}

func (h *health) run(ctx context.Context) {
	clock.Every(ctx, h.clock, checkEvery, func(time.Time) {
		bounded, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()

		err := h.store.Ping(bounded)
		if err == nil {
			err = h.loop.Query(bounded, func(*yardmaster.Yard) {})
		}

		if err == nil {
			err = h.checkDisk()
		}

		h.mu.Lock()
		defer h.mu.Unlock()

		if err != nil {
			h.fault = err.Error()
			return
		}

		h.fault, h.good = "", h.clock.Now()
	})
}

// minFree is the free space below which a server counts as one without space.
const minFree = 1 << 20

// checkDisk says if the disk with the data directory is full. With PostgreSQL the store does not notice.
func (h *health) checkDisk() error {
	if h.dataDir == "" {
		return nil
	}

	free, _, err := diskspace.Free(h.dataDir)
	if err == nil && free < minFree {
		err = diskspace.Error(h.dataDir, nil)
	}

	return err
}

// why returns why the server is not ready, "" if it is.
func (h *health) why() string {
	if err := h.loop.Held(); err != nil {
		return err.Error()
	}
	if why := h.loop.Stuck(); why != "" {
		return why
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	if h.fault == "" && h.clock.Now().Sub(h.good) > 2*checkTimeout {
		return "the last health check has not finished"
	}

	return h.fault
}

// ready tells the truth: the loop answers and the store has just written and read.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if why := s.health.why(); why != "" {
		answerText(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
		return
	}

	answerText(w, http.StatusOK, "ready\n")
}

const (
	checkEvery   = time.Second
	checkTimeout = 3 * time.Second
)
