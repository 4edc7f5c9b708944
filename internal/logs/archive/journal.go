package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"trainyard/internal/atomicfile"
)

const (
	// journalDir is the folder of the journal, beside the logs.
	journalDir = ".journal"
	// journalSize is how long a file of the journal may become before the next one is begun.
	journalSize = 64 << 20
	// journalFull is how many full files there may be before uploads wait until their logs are synced.
	journalFull = 4
)

// journal makes what is appended to logs survive a power cut. To sync the file of every rank that
// prints something would cost a sync for each; so what is appended to all logs goes into one file
// first, which is synced once for all who wait, and only then into the logs. After a power
// cut the journal is copied into the logs again. A log's own file therefore never holds bytes that
// are not in the journal or synced, and whatever a power cut does to its end is repaired.
//
// There is a number of files, of which the last is written. A full one is removed when all logs
// that it is about have been synced, and always the oldest first.
type journal struct {
	disk atomicfile.Disk
	logs string // the folder of the logs
	dir  string

	mu      sync.Mutex
	waiting []*addition

	writing sync.Mutex // held by the one who writes for all; guards what follows
	file    atomicfile.File
	number  uint64 // of the file
	size    int64
	most    int64           // how long it may become
	dirty   map[string]bool // logs that are in the file
	made    bool            // logs were created whose names are not synced
	full    []fullJournal
	broken  error // a log could not be synced: only a new start can tell what is on the disk
}

type fullJournal struct {
	number uint64
	dirty  map[string]bool
}

// addition is what is appended to a log. Whoever waits for it has the log locked.
type addition struct {
	log     *logFile
	name    string
	offset  int64
	data    []byte
	settled bool
	err     error
}

// openJournal copies what an earlier server left in the journal into the logs and begins a new one.
func openJournal(disk atomicfile.Disk, logs string) (*journal, error) {
	j := &journal{
		disk: disk, logs: logs, dir: filepath.Join(logs, journalDir), most: journalSize, dirty: map[string]bool{},
	}

	numbers, err := j.list()
	if err != nil {
		return nil, fmt.Errorf("list the journal of the logs: %w", err)
	}

	for _, n := range numbers {
		changed, err := j.replay(n)
		if err != nil {
			return nil, fmt.Errorf("repair the logs from their journal: %w", err)
		}

		j.number = n
		j.full = append(j.full, fullJournal{n, changed})
	}

	return j, j.sweep()
}

// list returns the numbers of the files that there are, in order.
func (j *journal) list() ([]uint64, error) {
	entries, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var numbers []uint64
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not part of a journal", e.Name())
		}

		numbers = append(numbers, n)
	}

	slices.Sort(numbers)

	return numbers, nil
}

func (j *journal) path(number uint64) string {
	return filepath.Join(j.dir, strconv.FormatUint(number, 10))
}

// replay copies one file of the journal into the logs and returns which it changed.
func (j *journal) replay(number uint64) (map[string]bool, error) {
	rest, err := os.ReadFile(j.path(number))
	if err != nil {
		return nil, err
	}

	changed := map[string]bool{}
	for {
		a, n := parseAddition(rest)
		if n == 0 {
			return changed, nil // its end, or where the power cut tore it: nobody was answered
		}

		rest = rest[n:]
		if err := j.repair(&a); err != nil {
			return nil, err
		}

		changed[a.name] = true
	}
}

// repair writes an addition into its log. A log that is not there has been archived: a new one is synced
// with its name before anything is acknowledged. One that is too short comes from a copy of the folder
// that was made while a server ran; its agent sends the rest again.
func (j *journal) repair(a *addition) (err error) {
	f, err := j.disk.OpenFile(filepath.Join(j.logs, a.name), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	info, err := f.Stat()
	if err != nil || info.Size() < a.offset {
		return err
	}

	_, err = f.WriteAt(a.data, a.offset)

	return err
}

// add appends to a log and returns when that is safe from a power cut. Whoever comes first writes for
// all who have come by then; who comes meanwhile waits for the next turn.
func (j *journal) add(a *addition) error {
	j.mu.Lock()
	j.waiting = append(j.waiting, a)
	j.mu.Unlock()

	j.writing.Lock()
	defer j.writing.Unlock()

	if a.settled {
		return a.err
	}

	j.mu.Lock()
	group := j.waiting
	j.waiting = nil
	j.mu.Unlock()

	err := j.write(group)
	for _, g := range group {
		g.settled, g.err = true, errors.Join(g.err, err)
	}

	return a.err
}

// write writes a group: into the journal, which is synced, and then into the logs.
func (j *journal) write(group []*addition) error {
	if err := errors.Join(j.broken, j.turnPage()); err != nil {
		return err
	}

	var text []byte
	for _, a := range group {
		text = a.appendTo(text)
	}

	// A disk that is full may take a part. It is written over by the next group.
	if _, err := j.file.WriteAt(text, j.size); err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}

	if err := j.file.Sync(); err != nil {
		j.size = j.most // what came of it is not known, and a second sync would not tell: use it no more
		return err
	}

	j.size += int64(len(text))

	for _, a := range group {
		if a.log.file == nil {
			a.log.file, a.err = j.disk.OpenFile(filepath.Join(j.logs, a.name), os.O_RDWR|os.O_CREATE)
			if a.err != nil {
				continue
			}

			j.made = true
		}

		j.dirty[a.name] = true
		_, a.err = a.log.file.WriteAt(a.data, a.offset)
	}

	if !j.made {
		return nil
	}

	err := j.disk.SyncDir(j.logs)
	j.made = err != nil

	return err
}

// turnPage begins the next file of the journal if there is none yet or it is full.
func (j *journal) turnPage() error {
	if j.file != nil && j.size < j.most {
		return nil
	}

	if len(j.full) >= journalFull {
		if err := j.removeFull(); err != nil {
			return err
		}
	}

	if err := atomicfile.MkdirAll(j.disk, j.logs, j.dir); err != nil {
		return err
	}

	// A file that is there belongs to a server that has taken over meanwhile.
	path := j.path(j.number + 1)
	next, err := j.disk.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	if err := j.disk.SyncDir(j.dir); err != nil {
		return errors.Join(err, next.Close(), j.disk.Remove(path))
	}

	if j.file != nil {
		j.full = append(j.full, fullJournal{j.number, j.dirty})
		err = j.file.Close()
	}

	j.file, j.size, j.dirty = next, 0, map[string]bool{}
	j.number++

	return err
}

// sweep removes the files of the journal that are full.
func (j *journal) sweep() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.removeFull()
}

// removeFull syncs the logs that the full files are about and removes the files. Each removal is synced
// before the next, so that no older file can come back without the newer ones.
func (j *journal) removeFull() error {
	for len(j.full) > 0 {
		oldest := j.full[0]
		for _, name := range slices.Sorted(maps.Keys(oldest.dirty)) {
			if err := j.syncLog(name); err != nil {
				j.broken = fmt.Errorf("sync log %s: %w; restart the server to repair it", name, err)
				return j.broken
			}
		}

		if err := errors.Join(j.disk.Remove(j.path(oldest.number)), j.disk.SyncDir(j.dir)); err != nil {
			return fmt.Errorf("remove a full journal of the logs: %w", err)
		}

		j.full = j.full[1:]
	}

	return nil
}

// syncLog syncs a log that may have been archived meanwhile.
func (j *journal) syncLog(name string) error {
	f, err := j.disk.OpenFile(filepath.Join(j.logs, name), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	return errors.Join(f.Sync(), f.Close())
}

// An addition in the journal is its length and checksum in 4 bytes each, and then the name of the log
// and the offset, each with its length as a varint, and the data.
const headerSize = 8

func (a *addition) appendTo(text []byte) []byte {
	start := len(text)
	text = append(text, make([]byte, headerSize)...)
	text = binary.AppendUvarint(text, uint64(len(a.name)))
	text = append(text, a.name...)
	text = binary.AppendUvarint(text, uint64(a.offset))
	text = append(text, a.data...)

	body := text[start+headerSize:]
	binary.LittleEndian.PutUint32(text[start:], uint32(len(body)))
	binary.LittleEndian.PutUint32(text[start+4:], crc32.ChecksumIEEE(body))

	return text
}

// parseAddition reads the addition with which a text begins and returns its length, 0 if there is no whole
// one.
func parseAddition(text []byte) (addition, int) {
	if len(text) < headerSize {
		return addition{}, 0
	}

	length := int64(binary.LittleEndian.Uint32(text))
	if length == 0 || length > int64(len(text)-headerSize) {
		return addition{}, 0
	}

	end := headerSize + int(length)
	body := text[headerSize:end]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(text[4:]) {
		return addition{}, 0
	}

	r := bytes.NewReader(body)
	size, err := binary.ReadUvarint(r)
	if err != nil || size > uint64(r.Len()) {
		return addition{}, 0
	}

	name := make([]byte, size)
	_, err = r.Read(name)
	offset, err2 := binary.ReadUvarint(r)
	if err != nil || err2 != nil || !filepath.IsLocal(string(name)) {
		return addition{}, 0
	}

	return addition{name: string(name), offset: int64(offset), data: body[len(body)-r.Len():]}, end
}
