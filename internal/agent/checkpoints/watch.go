package checkpoints

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watch notices what is renamed into a directory. A program that writes beside the final name and renames leaves no
// other trace of it.
type watch struct {
	file *os.File
	wake chan struct{} // something was renamed
	done chan struct{}

	mu      sync.Mutex
	renamed map[string]bool // names that something was renamed to, and not written since
}

// newWatch watches the top of a directory.
func newWatch(dir string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}

	const mask = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, dir, mask); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), unix.Close(fd))
	}

	w := &watch{
		file: os.NewFile(uintptr(fd), "inotify"), wake: make(chan struct{}, 1), done: make(chan struct{}),
		renamed: map[string]bool{},
	}

	go w.run()

	return w, nil
}

func (w *watch) run() {
	defer close(w.done)

	buf := make([]byte, 64<<10)

	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return // closed
		}

		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			mask := binary.NativeEndian.Uint32(rest[4:])
			length := int(binary.NativeEndian.Uint32(rest[12:]))
			name := rest[unix.SizeofInotifyEvent:][:length]
			rest = rest[unix.SizeofInotifyEvent+length:]

			w.note(mask, string(bytes.TrimRight(name, "\x00")))
		}
	}
}

// note takes one event.
func (w *watch) note(mask uint32, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		clear(w.renamed) // what was written meanwhile is not known
	case mask&unix.IN_MOVED_TO != 0 && !unfinished(name):
		w.renamed[name] = true

		select {
		case w.wake <- struct{}{}:
		default:
		}
	default:
		delete(w.renamed, name)
	}
}

// names returns what was renamed to its name and is unchanged since.
func (w *watch) names() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.renamed)
}

func (w *watch) close() error {
	err := w.file.Close()
	<-w.done

	return err
}
