package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernelLog reads the kernel log, which names the process behind an Xid error. An agent without
// permission to read the log works without it.
type kernelLog struct {
	root string
	fd   int // -1 before the first read and without permission
	rest string
}

const (
	// maxRecord bounds the length of one message in bytes; those of the kernel are shorter.
	maxRecord = 16 << 10
	// maxRecords bounds the number of messages read in one look, so that a flood of messages cannot
	// block the agent.
	maxRecords = 200_000
)

// kernelMessage is one message of the kernel log.
type kernelMessage struct {
	seq  uint64
	at   time.Duration // since the machine was started
	text string
}

// since returns the messages written by the kernel itself after the message with the given number.
func (k *kernelLog) since(after uint64) ([]kernelMessage, error) {
	if k.fd < 0 {
		fd, err := unix.Open(filepath.Join(k.root, "dev/kmsg"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("open the kernel log: %w", err)
		}

		k.fd = fd
	}

	var all []kernelMessage

	buffer := make([]byte, maxRecord)
	for range maxRecords {
		n, err := unix.Read(k.fd, buffer)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // messages were overwritten before they were read
		case errors.Is(err, unix.EAGAIN), err == nil && n <= 0:
			return all, nil
		case err != nil:
			return all, fmt.Errorf("read the kernel log: %w", err)
		}

		all = append(all, k.split(string(buffer[:n]), after)...)
	}

	return all, nil
}

// split cuts the complete lines off the text read so far.
func (k *kernelLog) split(text string, after uint64) []kernelMessage {
	var all []kernelMessage
	k.rest += text
	for {
		line, rest, ok := strings.Cut(k.rest, "\n")
		if !ok {
			if len(k.rest) > maxRecord {
				k.rest = ""
			}

			return all
		}

		k.rest = rest

		if m, ok := parseKernelMessage(line); ok && m.seq > after {
			all = append(all, m)
		}
	}
}

// parseKernelMessage parses "priority,number,microseconds,flags;text". It rejects messages that
// programs wrote into the log (those have another facility), because otherwise any program with
// write access could declare a GPU dead.
func parseKernelMessage(line string) (kernelMessage, bool) {
	head, text, ok := strings.Cut(line, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 4 {
		return kernelMessage{}, false
	}

	priority, err1 := strconv.ParseUint(fields[0], 10, 32)
	seq, err2 := strconv.ParseUint(fields[1], 10, 64)

	micros, err3 := strconv.ParseInt(fields[2], 10, 52)
	if err1 != nil || err2 != nil || err3 != nil || micros < 0 || priority>>3 != 0 {
		return kernelMessage{}, false
	}

	return kernelMessage{seq: seq, at: time.Duration(micros) * time.Microsecond, text: text}, true
}

func (k *kernelLog) close() error {
	if k.fd < 0 {
		return nil
	}

	err := unix.Close(k.fd)
	k.fd = -1

	return err
}

// uptime returns how long ago the machine was started.
func uptime(root string) (time.Duration, error) {
	text := readText(filepath.Join(root, "proc/uptime"))
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil || seconds < 0 || seconds > 1e10 {
		return 0, fmt.Errorf("read boot time: %.40q", text)
	}

	return time.Duration(seconds * float64(time.Second)), nil
}

// bootID identifies this start of the machine, "" if the kernel does not report it.
func bootID(root string) string {
	return word(readText(filepath.Join(root, "proc/sys/kernel/random/boot_id")))
}
