package runtime

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstInherited is the first descriptor after the standard streams.
const firstInherited = 3

// withholdDescriptors keeps programs from the descriptors that this process inherited from whoever started it. Those
// that Go opens are closed on exec anyway, and what a child is to have is passed to it by name, so none is needed. They
// stay open in this process: a token may be read from one.
func withholdDescriptors() error {
	err := unix.CloseRange(firstInherited, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)

	// Linux has the call since 5.9 and the flag since 5.11. Some sandboxes refuse calls that they do not know.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		err = withholdListed("/proc/self/fd")
	}

	if err != nil {
		return fmt.Errorf("keep inherited descriptors from jobs: %w", err)
	}

	return nil
}

// withholdListed is withholdDescriptors for kernels without the call: it takes the descriptors from the list of the
// kernel, one by one.
func withholdListed(list string) error {
	files, err := os.ReadDir(list)
	if err != nil {
		return err
	}

	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			return err
		}

		if fd >= firstInherited {
			unix.CloseOnExec(fd) // one that was closed meanwhile, such as that of the list, changes nothing
		}
	}

	return nil
}
