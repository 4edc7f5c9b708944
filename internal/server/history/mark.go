// Package history recognises that the yard's database was restored from a backup, and lets the yard
// go on so that nothing of the lost history is mixed with what follows.
//
// A file beside the output of runs records after every commit how far the yard has come. A database
// that is behind it at the start of a server is an older copy. The yard then begins a new
// incarnation: its numbers continue beyond all of which there is a trace, and its runs have UIDs
// that no earlier run had. A copy of the whole data directory has an older record too; then the
// yardmaster recognises it by what nodes report. The package decides nothing about jobs.
package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// markSize is the length of the file. It never changes, so that writing needs no space on the disk.
const markSize = 512

// Mark is the file that records how far the yard has come.
type Mark struct {
	log  *slog.Logger
	mu   sync.Mutex
	file *os.File
	at   position
	err  string // why the last write failed, "" if it did not
}

// position is how far a yard has come.
type position struct {
	Number uint64             `json:"incarnation"`
	Mark   id.UID             `json:"mark"`
	Last   yardmaster.Numbers `json:"last"`
}

// OpenMark opens the file and makes it if it is not there.
func OpenMark(path string, log *slog.Logger) (*Mark, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the record of the yard's history: %w", err)
	}

	return &Mark{log: log, file: file}, nil
}

// load reads what the last server has recorded.
func (m *Mark) load() (position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.at = position{}
	text, err := io.ReadAll(io.NewSectionReader(m.file, 0, markSize))
	if err != nil {
		return m.at, fmt.Errorf("read the record of the yard's history: %w", err)
	}

	if len(bytes.TrimSpace(text)) > 0 && json.Unmarshal(text, &m.at) != nil {
		// A power cut may have torn it. It is evidence of a restore; without it there is less.
		m.at = position{}
		m.log.Warn("the record of the yard's history is damaged; it is written anew", "file", m.file.Name())
	}

	return m.at, nil
}

// Close closes the file.
func (m *Mark) Close() error { return m.file.Close() }

// reset records where the yard goes on from.
func (m *Mark) reset(to position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.write(to)
}

// Follow records how far a committed batch brings the yard. It is not forced to the disk: after a
// power cut the record may be behind the database, which proves nothing.
func (m *Mark) Follow(b *yardmaster.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()

	to := m.at
	for i := range b.Incarnations {
		to.Number, to.Mark = b.Incarnations[i].Number, b.Incarnations[i].Mark
	}

	for i := range b.Events {
		to.Last.Event = max(to.Last.Event, b.Events[i].Seq)
	}

	for i := range b.Jobs {
		n, _ := b.Jobs[i].ID.Number()
		to.Last.Job = max(to.Last.Job, n)
	}

	for i := range b.Users {
		to.Last.User = max(to.Last.User, uint64(b.Users[i].Number))
	}

	for i := range b.Leases {
		n, _ := b.Leases[i].ID.Number()
		to.Last.Lease = max(to.Last.Lease, n)
	}

	if to != m.at {
		m.write(to)
	}
}

// write writes the file in place. A failure is logged when it begins: the yard works without.
func (m *Mark) write(to position) {
	m.at = to
	text, err := json.Marshal(to)
	if err == nil {
		_, err = m.file.WriteAt(append(text, bytes.Repeat([]byte{' '}, markSize-len(text))...), 0)
	}

	why := ""
	if err != nil {
		why = err.Error()
	}

	if why != m.err && why != "" {
		m.log.Error("cannot write the record of the yard's history; a restored database may not be recognised", "error", err)
	}

	m.err = why
}
