package checkpoints

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// folder is the folder in which the server keeps chunks, if that is on this machine and this agent may write there.
// Then chunks are written to and read from it and do not travel through the server, which would encrypt and hash each
// again. The server says where it is, and with each answer whether it sees the nonce that the agent has put there.
type folder struct {
	owner string // names this agent in the folder

	mu      sync.Mutex
	joined  *blob.Dir // nil if there is none
	sign    string    // the nonce
	foreign string    // a folder that is not here, or not that of the server
}

func newFolder(dir string) *folder {
	sum := sha256.Sum256([]byte(dir))
	return &folder{owner: "agent-" + hex.EncodeToString(sum[:8])}
}

// nonce is what the server is to look for, "" if no folder is joined.
func (f *folder) nonce() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sign
}

// learn joins the folder that the server names, unless it is joined already or known not to be here. shown is the nonce
// that the server was asked to look for.
func (f *folder) learn(shown string, reply *api.ChunksReply) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if reply.Local || reply.Folder == "" || reply.Folder == f.foreign || shown != f.sign {
		return
	}

	// A server that starts removes the nonce. If it is there all the same, the server's folder is another one.
	if f.joined != nil && f.joined.Sees(f.sign) {
		f.foreign = f.joined.Folder()
	}

	f.drop()

	if reply.Folder == f.foreign {
		return
	}

	joined, nonce, err := blob.JoinDir(reply.Folder, f.owner)
	if err != nil { // it is on another machine, or not for this agent
		f.foreign = reply.Folder
		return
	}

	f.joined, f.sign = joined, nonce
}

// drop leaves the folder. What is left behind is removed when it is joined again, or when the server starts.
func (f *folder) drop() {
	if f.joined != nil {
		_ = f.joined.Leave()
	}

	f.joined, f.sign = nil, ""
}

func (f *folder) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
}

// dir returns the folder, or an error if it was left meanwhile.
func (f *folder) dir() (*blob.Dir, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.joined == nil {
		return nil, fault.New(fault.Unavailable, "folder_left", "the folder of the server is no longer in use")
	}

	return f.joined, nil
}

// stage writes a chunk. It is to be synced before its checkpoint is catalogued.
func (f *folder) stage(ctx context.Context, name string, data []byte, t *transfer) error {
	dir, err := f.dir()
	if err != nil {
		return err
	}

	if err := dir.Stage(ctx, name, bytes.NewReader(data)); err != nil {
		return err
	}

	t.stage(name)

	return nil
}

// sync waits until the chunks that an upload has staged are on disk. If one is lost, the next look uploads it again.
func (f *folder) sync(ctx context.Context, t *transfer) error {
	names := t.unsynced()
	if len(names) == 0 {
		return nil
	}

	dir, err := f.dir()
	if err != nil {
		return err
	}

	err = dir.Sync(ctx, names)
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.Unavailable, "chunk_lost", "a chunk was lost before it was on disk").WithCause(err)
	}

	return err
}

// read reads a chunk into data and reports whether it has as many bytes. Otherwise the server is asked for it.
func (f *folder) read(ctx context.Context, name string, data []byte) bool {
	dir, err := f.dir()
	if err != nil {
		return false
	}

	r, err := dir.GetRange(ctx, name, 0, int64(len(data)))
	if err != nil {
		return false
	}

	defer func() { _ = r.Close() }()

	_, err = io.ReadFull(r, data)

	return err == nil
}
