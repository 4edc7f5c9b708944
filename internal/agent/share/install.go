package share

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"trainyard/internal/atomicfile"
)

// ErrUnavailable says that this binary was built without the library that programs are loaded with.
var ErrUnavailable = errors.New(
	"GPUs cannot be shared: this binary was built without a C compiler; install gcc and run make build",
)

// libraryName is the file name of the library.
const libraryName = "libtrainyard-gpu.so"

// Version names the content of the library, "" if there is none.
func Version(library []byte) string {
	if len(library) == 0 {
		return ""
	}

	sum := sha256.Sum256(library)

	return hex.EncodeToString(sum[:8])
}

// Install writes the library below the agent's data directory, in a folder that is named by its content, and returns
// its path. Programs that were started with an older one keep that.
func Install(data string, library []byte) (string, error) {
	if len(library) == 0 {
		return "", ErrUnavailable
	}

	folder := filepath.Join(data, "gpushare", Version(library))
	path := filepath.Join(folder, libraryName)

	// Every user's programs load it.
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // programs of all users read it
		return "", fmt.Errorf("install the GPU sharing library: %w", err)
	}

	present, err := os.ReadFile(path)
	if err == nil && bytes.Equal(present, library) {
		return path, nil
	}

	err = atomicfile.Write(path, library)
	if err == nil {
		err = os.Chmod(path, 0o755) //nolint:gosec // programs of all users read it
	}

	if err != nil {
		return "", fmt.Errorf("install the GPU sharing library: %w", err)
	}

	return path, nil
}
