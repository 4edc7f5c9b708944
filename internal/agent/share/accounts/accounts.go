// Package accounts keeps what the processes of one job use of the memory of one GPU, in a file.
//
// The agent makes it, with the cap of the job; the library in the processes (native/gpushare) maps it and enters what
// they allocate before they do. It needs neither agent nor processes to be read: the supervisor of a rank finds in it
// why a program has ended.
package accounts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// fileName is the name of the file in the folder of a job and GPU.
const fileName = "memory"

// The layout of the file: a header and a slot for each process. Processes map it; the
// agent reads and writes single fields of it. A slot belongs to whoever has its byte of the file locked.
// native/gpushare/gpushare.c has the other side.
const (
	magicNumber   = 0x3155504759544e54
	formatVersion = 1

	atCap   = 16
	atBare  = 24
	atCount = 32
	atUUID  = 40

	slots     = 128
	slotSize  = 64
	atSlots   = 256
	inSlotPID = 0
	inSlotAll = 8  // bytes allocated
	inSlotCtx = 16 // bytes of the driver itself
	inSlotMax = 24 // the most that was allocated
	inSlotAt  = 32 // when an allocation last failed, by CLOCK_MONOTONIC; then its bytes, those used, and the cap

	locksAt  = 1 << 20
	uuidSize = 64
	fileSize = atSlots + slots*slotSize
)

// Memory is what a job uses of the GPU's memory.
type Memory struct {
	Cap       uint64 // 0 for none
	Allocated uint64 // by its processes
	Context   uint64 // by the driver for them
	Peak      uint64 // the sum of the most that each process of now had allocated
}

// Used returns what counts against the cap.
func (m Memory) Used() uint64 { return m.Allocated + m.Context }

// Accounts is the file of one job and one GPU.
type Accounts struct {
	file *os.File
}

// Open opens the file in a folder, or makes it. What processes have entered stays.
func Open(folder, uuid string) (*Accounts, error) {
	if len(uuid) >= uuidSize {
		return nil, fmt.Errorf("the UUID of a GPU has fewer than %d bytes, got %q", uuidSize, uuid)
	}

	// The file belongs to the job, which may do anything to it; a link that stands in its place is not followed.
	file, err := os.OpenFile(filepath.Join(folder, fileName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}

	a := &Accounts{file: file}

	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	if magic, err := a.get(0); err == nil && magic == magicNumber && info.Size() == fileSize {
		return a, nil
	}

	content := make([]byte, fileSize)
	binary.LittleEndian.PutUint64(content[8:], formatVersion)
	binary.LittleEndian.PutUint64(content[atCount:], slots)
	copy(content[atUUID:], uuid)

	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt(content, 0)
	}

	if err == nil {
		err = a.set(0, magicNumber)
	}

	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return a, nil
}

// Close closes the file. What is entered in it stays.
func (a *Accounts) Close() error { return a.file.Close() }

// Give gives the file to the user of the job.
func (a *Accounts) Give(uid, gid int) error { return a.file.Chown(uid, gid) }

func (a *Accounts) get(at int64) (uint64, error) {
	var b [8]byte
	if _, err := a.file.ReadAt(b[:], at); err != nil {
		return 0, err
	}

	return binary.LittleEndian.Uint64(b[:]), nil
}

func (a *Accounts) set(at int64, value uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], value)
	_, err := a.file.WriteAt(b[:], at)

	return err
}

// Limit sets the cap, and what a context costs where that cannot be measured.
func (a *Accounts) Limit(limit, bare uint64) error {
	return errors.Join(a.set(atBare, bare), a.set(atCap, limit))
}

// slot is the account of a process.
type slot struct {
	at                            int64
	pid, allocated, context, peak uint64
}

// live returns the accounts of the processes that are there.
func (a *Accounts) live() ([]slot, error) {
	content := make([]byte, fileSize)
	if _, err := a.file.ReadAt(content, 0); err != nil {
		return nil, err
	}

	var found []slot
	for i := range slots {
		at := atSlots + i*slotSize
		field := func(n int) uint64 { return binary.LittleEndian.Uint64(content[at+n:]) }

		s := slot{int64(at), field(inSlotPID), field(inSlotAll), field(inSlotCtx), field(inSlotMax)}
		if s.pid == 0 {
			continue
		}

		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: locksAt + int64(i), Len: 1}
		if err := unix.FcntlFlock(a.file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			return nil, fmt.Errorf("look for the process of a memory account: %w", err)
		}

		if lock.Type != unix.F_UNLCK {
			found = append(found, s)
		}
	}

	return found, nil
}

// Memory sums up the accounts.
func (a *Accounts) Memory() (Memory, error) {
	var m Memory
	var err error

	if m.Cap, err = a.get(atCap); err != nil {
		return Memory{}, err
	}

	live, err := a.live()
	for _, s := range live {
		m.Allocated += s.allocated
		m.Context += s.context
		m.Peak += s.peak
	}

	return m, err
}

// Correct enters what NVML says that processes use, by their process ids as they see them themselves: what they have
// not allocated is the driver's.
func (a *Accounts) Correct(used map[uint64]uint64) error {
	live, err := a.live()
	if err != nil {
		return err
	}

	for _, s := range live {
		total, known := used[s.pid]
		if !known || total < s.allocated || total-s.allocated == s.context {
			continue
		}

		if err := a.set(s.at+inSlotCtx, total-s.allocated); err != nil {
			return err
		}
	}

	return nil
}

// Denial is an allocation that failed.
type Denial struct {
	Bytes uint64 // that it wanted
	Used  uint64 // by the job
	Cap   uint64 // of the job; 0 for none
}

// ByCap reports whether the job's cap refused it, and not a GPU that is full.
func (d Denial) ByCap() bool { return d.Cap != 0 && d.Used+d.Bytes > d.Cap }

// LastDenial reads from the folder of a job which allocation of it failed last, and how long ago that was. It needs no
// broker, and a process that has ended is included. It reports false if there was none.
func LastDenial(folder string) (d Denial, ago time.Duration, found bool, err error) {
	// What a job makes of its file is up to it: it may be a pipe that nobody writes.
	file, err := os.OpenFile(filepath.Join(folder, fileName), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Denial{}, 0, false, nil
	}

	if err != nil {
		return Denial{}, 0, false, err
	}

	defer func() { _ = file.Close() }()

	content := make([]byte, fileSize)
	if _, err := io.ReadFull(file, content); err != nil {
		return Denial{}, 0, false, fmt.Errorf("read the memory accounts of a shared GPU: %w", err)
	}

	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return Denial{}, 0, false, err
	}

	last := uint64(0)

	for i := range slots {
		field := func(n int) uint64 { return binary.LittleEndian.Uint64(content[atSlots+i*slotSize+n:]) }

		if at := field(inSlotAt); at > last && at <= uint64(now.Nano()) {
			last = at
			d = Denial{Bytes: field(inSlotAt + 8), Used: field(inSlotAt + 16), Cap: field(inSlotAt + 24)}
		}
	}

	return d, time.Duration(uint64(now.Nano()) - last), last > 0, nil
}
