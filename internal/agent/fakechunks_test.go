package agent_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"sync"

	"trainyard/internal/api"
)

// chunkShelf is where the yard keeps checkpoints.
type chunkShelf struct {
	mu      sync.Mutex
	chunks  map[string][]byte
	entered []api.NewCheckpoint
}

func (y *fakeYard) chunkRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /agent/v1/chunks", y.locateChunks)
	mux.HandleFunc("PUT /agent/v1/chunks/{digest}", y.putChunk)
	mux.HandleFunc("GET /agent/v1/chunks/{digest}", y.getChunk)
	mux.HandleFunc("POST /agent/v1/checkpoints", y.addCheckpoint)
	mux.HandleFunc("POST /agent/v1/outputs", y.addOutputs)
}

func (y *fakeYard) locateChunks(w http.ResponseWriter, r *http.Request) {
	var req api.ChunksRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	y.shelf.mu.Lock()
	defer y.shelf.mu.Unlock()

	reply := api.ChunksReply{Chunks: []api.ChunkPlace{}}
	for _, c := range req.Chunks {
		if _, ok := y.shelf.chunks[c.Digest]; !ok || req.Restore {
			reply.Chunks = append(reply.Chunks, api.ChunkPlace{Digest: c.Digest})
		}
	}

	answer(w, reply)
}

func (y *fakeYard) putChunk(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	sum := sha256.Sum256(data)
	if err != nil || hex.EncodeToString(sum[:]) != path.Base(r.URL.Path) {
		http.Error(w, "another digest", http.StatusBadRequest)
		return
	}

	y.shelf.mu.Lock()
	defer y.shelf.mu.Unlock()

	if y.shelf.chunks == nil {
		y.shelf.chunks = map[string][]byte{}
	}

	y.shelf.chunks[path.Base(r.URL.Path)] = data
	w.WriteHeader(http.StatusNoContent)
}

func (y *fakeYard) getChunk(w http.ResponseWriter, r *http.Request) {
	y.shelf.mu.Lock()
	defer y.shelf.mu.Unlock()

	_, _ = w.Write(y.shelf.chunks[path.Base(r.URL.Path)])
}

func (y *fakeYard) addCheckpoint(w http.ResponseWriter, r *http.Request) {
	var in api.NewCheckpoint
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	y.shelf.mu.Lock()
	y.shelf.entered = append(y.shelf.entered, in)
	y.shelf.mu.Unlock()

	y.change(func() {})
	answer(w, api.NewCheckpointReply{ID: "j1.c1", State: "stored"})
}

// catalogue returns the checkpoints that were entered.
func (y *fakeYard) catalogue() []api.NewCheckpoint {
	y.shelf.mu.Lock()
	defer y.shelf.mu.Unlock()

	return append([]api.NewCheckpoint(nil), y.shelf.entered...)
}
