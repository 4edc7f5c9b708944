package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// RequestSave asks the program of a rank to save a checkpoint. Programs that use the Python SDK do; others do not look.
// Requests are numbered from 1, and a program sees that there was a new one however rarely it looks. A number that is
// not greater than the last one changes nothing. The caller makes one request at a time. The directory is that of
// Record.Requests.
func RequestSave(dir string, number int) error {
	path := filepath.Join(dir, SaveFile)

	last, err := readSave(path)
	if err != nil || number <= last {
		return err
	}

	// The program may run as another user, who must be able to read it.
	temp := path + ".new"
	if err := os.WriteFile(temp, []byte(strconv.Itoa(number)), 0o644); err != nil { //nolint:gosec // see above
		return err
	}

	return os.Rename(temp, path)
}

// readSave returns the number of the last request, 0 if there was none.
func readSave(path string) (int, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}

	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the request to save in %s: %w", path, err)
	}

	return number, nil
}
