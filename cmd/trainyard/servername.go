package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// serverName is how this start of the server is called among the servers of the yard.
type serverName struct {
	text   string
	former string   // begins the names of earlier starts that have ended for certain; "" if there are none
	lock   *os.File // nil where there can be only one server
}

// nameServer names this start of the server. If it is the only one with this data directory on this machine since the
// machine was started, which a lock proves, then all that had the directory before have ended, and it
// need not wait until their leadership has expired.
func nameServer(data string, shared bool) (serverName, error) {
	start, err := randomHex()
	if err != nil || !shared {
		return serverName{text: start}, err
	}

	lock, err := os.OpenFile(filepath.Join(data, "server.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return serverName{}, fmt.Errorf("open the lock of the data directory: %w", err)
	}

	n := serverName{text: start, lock: lock}

	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return n, nil //nolint:nilerr // another system: nothing proves that nobody else has the directory
	}

	info, err := lock.Stat()
	if err != nil {
		return n, errors.Join(fmt.Errorf("look at the lock of the data directory: %w", err), lock.Close())
	}

	inode, ok := info.Sys().(*syscall.Stat_t)
	locked := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil // otherwise another server has it
	if !ok || !locked {
		return n, nil
	}

	n.former = fmt.Sprintf("%s-%x-%x-", strings.TrimSpace(string(boot)), inode.Dev, inode.Ino)
	n.text = n.former + start

	return n, nil
}

// release gives the lock up, after all that this server did as the leader.
func (n *serverName) release() error {
	if n.lock == nil {
		return nil
	}

	return n.lock.Close()
}

func randomHex() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("name this start: %w", err)
	}

	return hex.EncodeToString(b[:]), nil
}
