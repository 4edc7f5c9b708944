package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The file with the memory accounts of a job on a GPU: a header and a slot for each process. Processes map it; the
// agent reads and writes single fields of it. A slot belongs to whoever has its byte of the file locked.
// native/gpushare/gpushare.c has the other side.
const (
	accountsMagic   = 0x3155504759544e54
	accountsVersion = 1

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

	locksAt      = 1 << 20
	uuidSize     = 64
	accountsSize = atSlots + slots*slotSize
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

// accounts is the file of one job and one GPU.
type accounts struct {
	file *os.File
}

// openAccounts opens the file in a folder, or makes it. What processes have entered stays.
func openAccounts(folder, uuid string) (*accounts, error) {
	if len(uuid) >= uuidSize {
		return nil, fmt.Errorf("the UUID of a GPU has fewer than %d bytes, got %q", uuidSize, uuid)
	}

	// The file belongs to the job, which may do anything to it; a link that stands in its place is not followed.
	file, err := os.OpenFile(filepath.Join(folder, "memory"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}

	a := &accounts{file: file}

	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	if magic, err := a.get(0); err == nil && magic == accountsMagic && info.Size() == accountsSize {
		return a, nil
	}

	content := make([]byte, accountsSize)
	binary.LittleEndian.PutUint64(content[8:], accountsVersion)
	binary.LittleEndian.PutUint64(content[atCount:], slots)
	copy(content[atUUID:], uuid)

	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt(content, 0)
	}

	if err == nil {
		err = a.set(0, accountsMagic)
	}

	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return a, nil
}

func (a *accounts) close() error { return a.file.Close() }

func (a *accounts) get(at int64) (uint64, error) {
	var b [8]byte
	if _, err := a.file.ReadAt(b[:], at); err != nil {
		return 0, err
	}

	return binary.LittleEndian.Uint64(b[:]), nil
}

func (a *accounts) set(at int64, value uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], value)
	_, err := a.file.WriteAt(b[:], at)

	return err
}

// limit sets the cap, and what a context costs where that cannot be measured.
func (a *accounts) limit(limit, bare uint64) error {
	return errors.Join(a.set(atBare, bare), a.set(atCap, limit))
}

// slot is the account of a process.
type slot struct {
	at                            int64
	pid, allocated, context, peak uint64
}

// live returns the accounts of the processes that are there.
func (a *accounts) live() ([]slot, error) {
	content := make([]byte, accountsSize)
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

// memory sums up the accounts.
func (a *accounts) memory() (Memory, error) {
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

// correct enters what NVML says that processes use, by their process ids as they see them themselves: what they have
// not allocated is the driver's.
func (a *accounts) correct(used map[uint64]uint64) error {
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
