package rundir

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The lease, the stop request and the state of a rank decide whether a program runs on, so they must be writable
// on a disk that is full. Each is a file of two slots whose blocks are allocated before the program starts. A
// record is written in place into the slot with the older one: a write that is torn by a crash leaves the other
// slot, and no write needs a new block.
const (
	slotSize    = 8 << 10
	slotHeader  = 20 // mark, checksum, sequence number, length
	slotMark    = "TYS1"
	maxRecord   = slotSize - slotHeader
	slotReads   = 5 // a reader that meets a writer in both slots reads again
	recordSlots = 2
)

// reserveSlots creates a file of slots and allocates its blocks. A file that has them is left alone.
func reserveSlots(path string) error {
	f, err := openSlots(path)
	if err != nil {
		return err
	}

	return f.Close()
}

// openSlots opens a file of slots for a change. It creates the file, and allocates its blocks, if it has none.
func openSlots(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("reserve room for %s: %w", path, err)
	}

	info, err := f.Stat()
	if err == nil && info.Size() < recordSlots*slotSize {
		// Zeros are written, because some file systems allocate nothing for a file that was only made longer.
		_, err = f.WriteAt(make([]byte, recordSlots*slotSize-info.Size()), info.Size())
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("reserve room for %s: %w", path, err), f.Close())
	}

	return f, nil
}

// slot is one slot of a file.
type slot struct {
	seq   uint64 // 0 for an empty slot
	data  []byte
	valid bool
}

// parseSlot checks a slot. One without a record is valid and has the sequence number 0.
func parseSlot(raw []byte) slot {
	if [slotHeader]byte(raw) == [slotHeader]byte{} {
		return slot{valid: true}
	}

	length := binary.LittleEndian.Uint32(raw[16:])
	if string(raw[:4]) != slotMark || length > maxRecord {
		return slot{}
	}

	sum := crc32.ChecksumIEEE(raw[8 : slotHeader+length])
	if sum != binary.LittleEndian.Uint32(raw[4:]) {
		return slot{}
	}

	return slot{seq: binary.LittleEndian.Uint64(raw[8:]), data: raw[slotHeader : slotHeader+length], valid: true}
}

// slotBuffers are for the content of files of slots. A short job reads a dozen of them.
var slotBuffers = sync.Pool{New: func() any { return new([recordSlots * slotSize]byte) }}

// readSlots reads both slots into raw. It uses the system's calls alone: those of package os make twice as many, to
// find out whether the file is one that can be waited for.
func readSlots(path string, raw *[recordSlots * slotSize]byte) (slots [recordSlots]slot, err error) {
	fd, err := retried(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return slots, &fs.PathError{Op: "open", Path: path, Err: err}
	}

	defer func() { err = errors.Join(err, unix.Close(fd)) }()

	switch n, err := retried(func() (int, error) { return unix.Pread(fd, raw[:], 0) }); {
	case err != nil:
		return slots, &fs.PathError{Op: "read", Path: path, Err: err}
	case n < len(raw):
		return slots, fmt.Errorf("read %s: %w", path, errNoRoom)
	}

	return parseSlots(raw[:]), nil
}

// retried repeats a call of the system until no signal interrupts it.
func retried(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// parseSlots checks both slots.
func parseSlots(raw []byte) [recordSlots]slot {
	var slots [recordSlots]slot
	for i := range slots {
		slots[i] = parseSlot(raw[i*slotSize : (i+1)*slotSize])
	}

	return slots
}

// newest returns the index of the slot with the newest record, of an empty one if there is none, and -1 if both
// are damaged.
func newest(slots [recordSlots]slot) int {
	switch {
	case slots[0].valid && (!slots[1].valid || slots[0].seq >= slots[1].seq):
		return 0
	case slots[1].valid:
		return 1
	}

	return -1
}

// errNoRoom says that a file lost its content in a power cut: it has no slots.
var errNoRoom = errors.New("its content is lost")

// readRecord reads the newest record of a file into v and reports whether there is one. It fails if the file is
// damaged, or lost its content in a power cut.
func readRecord(path string, v any) (bool, error) {
	raw, _ := slotBuffers.Get().(*[recordSlots * slotSize]byte)
	defer slotBuffers.Put(raw)

	for try := 1; ; try++ {
		slots, err := readSlots(path, raw)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}

		i := newest(slots)

		switch {
		case i >= 0 && slots[i].seq == 0 && (slots[0].valid && slots[1].valid):
			return false, nil
		case i >= 0 && slots[i].seq > 0:
			if err := json.Unmarshal(slots[i].data, v); err != nil {
				return true, fmt.Errorf("read %s: %w", path, err)
			}

			return true, nil
		case try < slotReads:
		case i >= 0: // the first record was torn
			return false, nil
		default:
			return false, fmt.Errorf("read %s: both records are damaged", path)
		}
	}
}

// errRecordTooLarge says that a record does not fit into its slot.
var errRecordTooLarge = errors.New("record is too large")

// writeRecord replaces the record of a file in place. Only one process writes a file. It does not survive a power cut.
func writeRecord(path string, v any) error { return putRecord(path, v, false, func() {}) }

// putRecord is writeRecord that calls written when the record is there for others to read. With durable the record
// survives a power cut once the call returns.
func putRecord(path string, v any, durable bool, written func()) error {
	data, err := json.Marshal(v)
	if err == nil && len(data) > maxRecord {
		err = errRecordTooLarge
	}

	if err == nil {
		err = writeSlot(path, data, durable, written)
	}

	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	return nil
}

// writeSlot writes a record into the slot that does not hold the newest one.
func writeSlot(path string, data []byte, durable bool, written func()) (err error) {
	f, err := openSlots(path) // a run directory of an earlier version has no slots yet
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Close()) }()

	before, _ := slotBuffers.Get().(*[recordSlots * slotSize]byte)
	defer slotBuffers.Put(before)

	if _, err := f.ReadAt(before[:], 0); err != nil {
		return err
	}

	slots := parseSlots(before[:])
	last := max(newest(slots), 0)
	next := (last + 1) % recordSlots

	raw := make([]byte, slotHeader, slotHeader+len(data))
	copy(raw, slotMark)
	binary.LittleEndian.PutUint64(raw[8:], max(slots[0].seq, slots[1].seq)+1)
	binary.LittleEndian.PutUint32(raw[16:], uint32(len(data)))
	raw = append(raw, data...)
	binary.LittleEndian.PutUint32(raw[4:], crc32.ChecksumIEEE(raw[8:]))

	if _, err := f.WriteAt(raw, int64(next*slotSize)); err != nil {
		return err
	}

	written()

	if durable {
		return f.Sync()
	}

	return nil
}
