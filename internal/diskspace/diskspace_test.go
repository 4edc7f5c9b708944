package diskspace_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
)

func TestAFullDiskIsRecognisedAndNamed(t *testing.T) {
	t.Parallel()

	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		err := fmt.Errorf("write: %w", &fs.PathError{Op: "write", Path: "/data/x", Err: errno})
		named := diskspace.Named("/data", err)

		if !diskspace.Full(err) || !diskspace.Full(fmt.Errorf("store: %w", named)) || !errors.Is(named, errno) {
			t.Errorf("%v is not recognised: %v", errno, named)
		}

		if fault.KindOf(named) != fault.Unavailable || !strings.Contains(named.Error(), "the disk that holds /data") {
			t.Errorf("named: %v", named)
		}
	}

	other := errors.New("broken")
	if got := diskspace.Named("/data", other); got != other || diskspace.Full(other) || diskspace.Full(nil) { //nolint:errorlint // the same value
		t.Errorf("another error became %v", got)
	}
}

func TestFreeSpaceIsThatOfTheDisk(t *testing.T) {
	t.Parallel()

	free, total, err := diskspace.Free(t.TempDir())
	if err != nil || free <= 0 || total < free {
		t.Errorf("%d of %d free: %v", free, total, err)
	}

	if _, _, err := diskspace.Free("/does/not/exist"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
}
